"""Which GPUs there are for a launch."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from virnucpro.errors import DeviceError, UsageError
from virnucpro.runtime.devices import Gpu, visible_gpus
from virnucpro.runtime.gpu_facts import GpuFacts, gpu_facts

__all__ = ["GPUDetector"]


class GPUDetector:
    """Asks the driver, never CUDA: a process that has asked CUDA has a context on every GPU.

    GPUs are numbered as CUDA would in this process: an inherited CUDA_VISIBLE_DEVICES is respected,
    and the instances of a partitioned GPU count in its place.

    Parameters
    ----------
    environ
        The environment; the process's own by default.
    gpus, describe
        Answer for the driver; `virnucpro.runtime.devices.list_gpus` and
        `virnucpro.runtime.gpu_facts.gpu_facts` by default.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        gpus: Callable[[], Sequence[Gpu]] | None = None,
        describe: Callable[[str], GpuFacts] = gpu_facts,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._gpus = gpus
        self._describe = describe

    def get_available_gpus(self) -> list[int]:
        """List the numbers of the GPUs that this process may use; none where there is no driver.

        Raises
        ------
        DeviceError
            When the driver is there but fails.
        """
        return list(range(len(self._visible())))

    def is_cuda_available(self) -> bool:
        """Say whether there is a GPU to use.

        Raises
        ------
        DeviceError
            When the driver is there but fails.
        """
        return bool(self._visible())

    def parse_gpu_list(self, spec: str) -> list[int]:
        """Read ``auto`` (all there are, maybe none) or ``0,1,2``.

        Raises
        ------
        UsageError
            When it is neither, or names a GPU twice.
        """
        if spec.strip() == "auto":
            return self.get_available_gpus()
        pieces = [piece.strip() for piece in spec.split(",")]
        if not all(piece.isdecimal() for piece in pieces):
            raise UsageError(f"{spec!r} is no list of GPUs: write auto, or numbers such as 0,1,2.")
        gpu_ids = [int(piece) for piece in pieces]
        if len(set(gpu_ids)) < len(gpu_ids):
            raise UsageError(f"{spec!r} names a GPU twice: name each once.")
        return gpu_ids

    def validate_gpus(self, gpu_ids: Sequence[int]) -> tuple[bool, str]:
        """Say whether all of these GPUs can be used, and why not."""
        if not gpu_ids:
            return False, "no GPU is named: name one, or use the CPU (cpu:N)."
        if len(set(gpu_ids)) < len(gpu_ids):
            return False, f"a GPU is named twice in {list(gpu_ids)}: name each once."
        try:
            there = self.get_available_gpus()
        except DeviceError as error:
            return False, str(error)
        lacking = [gpu_id for gpu_id in gpu_ids if gpu_id not in there]
        if lacking:
            return False, f"there is no GPU {lacking[0]}: those that can be used are {there}."
        return True, ""

    def get_gpu_info(self, gpu_id: int) -> dict[str, Any]:
        """Say what the driver knows of a GPU.

        Returns
        -------
        id, name, uuid, total_memory and free_memory (bytes), mig (whether it is an instance of a
        partitioned GPU).

        Raises
        ------
        DeviceError
            When there is no such GPU, or the driver does not answer for it.
        """
        ok, error = self.validate_gpus([gpu_id])
        if not ok:
            raise DeviceError(error)
        facts = self._describe(list(self._visible().values())[gpu_id])
        return {
            "id": gpu_id,
            "name": facts.name,
            "uuid": facts.uuid,
            "total_memory": facts.total_memory,
            "free_memory": facts.free_memory,
            "mig": facts.mig,
        }

    def _visible(self) -> dict[str, str]:
        return visible_gpus(self._environ, self._gpus)
