"""Detection of the GPUs that a launch can use."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from virnucpro.errors import DeviceError, UsageError
from virnucpro.runtime.devices import Gpu, GpuFacts, gpu_facts, visible_gpus


class GPUDetector:
    """Detects GPUs through the driver; CUDA itself would allocate memory on every GPU.

    GPUs have the same numbers as in CUDA in this process, also if CUDA_VISIBLE_DEVICES is set. If a
    GPU is partitioned (MIG), its instances are listed instead of the GPU.

    Parameters
    ----------
    environ
        The environment variables; default: those of this process.
    gpus, describe
        Functions that return all GPUs and the properties of one GPU. Default:
        `virnucpro.runtime.devices.list_gpus` and `virnucpro.runtime.devices.gpu_facts`.
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
        """Return the numbers of the GPUs that this process can use; empty if there is no driver.

        Raises
        ------
        DeviceError
            If the driver fails.
        """
        return list(range(len(self._visible())))

    def is_cuda_available(self) -> bool:
        """Return whether this process can use a GPU; raise DeviceError if the driver fails."""
        return bool(self._visible())

    def parse_gpu_list(self, spec: str) -> list[int]:
        """Return the GPU numbers for ``auto`` (all available GPUs) or a list such as ``0,1,2``.

        Raises
        ------
        UsageError
            If `spec` has another format, or contains a GPU twice.
        """
        if spec.strip() == "auto":
            return self.get_available_gpus()
        pieces = [piece.strip() for piece in spec.split(",")]
        if not all(piece.isdecimal() for piece in pieces):
            raise UsageError(f"{spec!r} is not a list of GPUs: give auto, or numbers as in 0,1,2.")
        gpu_ids = [int(piece) for piece in pieces]
        if len(set(gpu_ids)) < len(gpu_ids):
            raise UsageError(f"{spec!r} names a GPU twice: give each GPU number once.")
        return gpu_ids

    def validate_gpus(self, gpu_ids: Sequence[int]) -> tuple[bool, str]:
        """Return two values: whether all `gpu_ids` can be used here, and an error message or ""."""
        if not gpu_ids:
            return False, "the list of GPUs is empty: name one, or use CPUs (cpu:N)."
        if len(set(gpu_ids)) < len(gpu_ids):
            return False, f"a GPU is named twice in {list(gpu_ids)}: give each number once."
        try:
            available = self.get_available_gpus()
        except DeviceError as error:
            return False, str(error)
        missing = [gpu_id for gpu_id in gpu_ids if gpu_id not in available]
        if missing:
            return False, f"there is no GPU {missing[0]}: available GPUs: {available}."
        return True, ""

    def get_gpu_info(self, gpu_id: int) -> dict[str, Any]:
        """Return the properties of a GPU, as reported by the driver.

        Returns
        -------
        A dict: id, name, uuid, total_memory and free_memory (bytes), mig (whether the device is an
        instance of a partitioned GPU).

        Raises
        ------
        DeviceError
            If the GPU does not exist, or the driver fails.
        """
        ok, error = self.validate_gpus([gpu_id])
        if not ok:
            raise DeviceError(error)
        return {"id": gpu_id, **asdict(self._describe(list(self._visible().values())[gpu_id]))}

    def _visible(self) -> dict[str, str]:
        return visible_gpus(self._environ, self._gpus)
