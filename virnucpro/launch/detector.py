"""Detection of the GPUs that a launch can use."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from virnucpro.errors import DeviceError, UsageError
from virnucpro.runtime.devices import Gpu, visible_gpus
from virnucpro.runtime.gpu_facts import GpuFacts, gpu_facts

__all__ = ["GPUDetector"]


class GPUDetector:
    """Detect GPUs through the driver: CUDA itself would take memory on every GPU.

    GPUs are numbered as CUDA numbers them in this process. An inherited CUDA_VISIBLE_DEVICES is
    respected. The instances of a partitioned (MIG) GPU count instead of the GPU.

    Parameters
    ----------
    environ
        The environment; the process's own by default.
    gpus, describe
        Replacements of the driver; `virnucpro.runtime.devices.list_gpus` and
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
        """Return the numbers of the GPUs that this process can use; empty without a driver.

        Raises
        ------
        DeviceError
            If the driver fails.
        """
        return list(range(len(self._visible())))

    def is_cuda_available(self) -> bool:
        """Return whether there is a GPU to use; raise DeviceError if the driver fails."""
        return bool(self._visible())

    def parse_gpu_list(self, spec: str) -> list[int]:
        """Parse ``auto`` (all GPUs, maybe none) or ``0,1,2``.

        Raises
        ------
        UsageError
            If it is neither, or names a GPU twice.
        """
        if spec.strip() == "auto":
            return self.get_available_gpus()
        pieces = [piece.strip() for piece in spec.split(",")]
        if not all(piece.isdecimal() for piece in pieces):
            raise UsageError(f"{spec!r} is not a list of GPUs: give auto, or numbers as in 0,1,2.")
        gpu_ids = [int(piece) for piece in pieces]
        if len(set(gpu_ids)) < len(gpu_ids):
            raise UsageError(f"{spec!r} names a GPU twice: name each once.")
        return gpu_ids

    def validate_gpus(self, gpu_ids: Sequence[int]) -> tuple[bool, str]:
        """Return whether all of these GPUs can be used, and an error message if not."""
        if not gpu_ids:
            return False, "the list of GPUs is empty: name one, or use CPUs (cpu:N)."
        if len(set(gpu_ids)) < len(gpu_ids):
            return False, f"a GPU is named twice in {list(gpu_ids)}: name each once."
        try:
            available = self.get_available_gpus()
        except DeviceError as error:
            return False, str(error)
        missing = [gpu_id for gpu_id in gpu_ids if gpu_id not in available]
        if missing:
            return False, f"there is no GPU {missing[0]}: available GPUs: {available}."
        return True, ""

    def get_gpu_info(self, gpu_id: int) -> dict[str, Any]:
        """Return the driver's data of a GPU.

        Returns
        -------
        id, name, uuid, total_memory and free_memory (bytes), mig (whether it is an instance of a
        partitioned GPU).

        Raises
        ------
        DeviceError
            If there is no such GPU, or the driver fails.
        """
        ok, error = self.validate_gpus([gpu_id])
        if not ok:
            raise DeviceError(error)
        return {"id": gpu_id, **asdict(self._describe(list(self._visible().values())[gpu_id]))}

    def _visible(self) -> dict[str, str]:
        return visible_gpus(self._environ, self._gpus)
