"""Single rows encoded again at fp32, or at the nearest precision that fits into memory."""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Final, NamedTuple

import torch

from virnucpro.encoders.base import EncoderSpec, IntArray, Precision
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory.memory_needed import require_room
from virnucpro.encoders.memory.out_of_memory import Shortage, within_memory
from virnucpro.encoders.memory.placement import device_bytes, free_bytes, open_device
from virnucpro.encoders.registry import load_encoder, shapes_of
from virnucpro.errors import DeviceError

__all__ = ["FallbackPrecision", "Retry", "encode_alone"]

_LADDER: Final[Mapping[Precision, tuple[Precision, ...]]] = {
    "fp16": ("fp32", "bf16"),
    "bf16": ("fp32",),
}
"""Precisions with a larger range; bf16 needs no more memory than fp16."""


class Retry(NamedTuple):
    """Result of a row encoded again, alone.

    Attributes
    ----------
    vector
        (dim,) float32 on the CPU; None without a vector.
    precision
        Precision of the vector.
    attempts
        All attempts as text, for the reason of a quarantined row.
    shortage
        The shortage of memory; None if the row fits.
    """

    vector: torch.Tensor | None
    precision: Precision
    attempts: str
    shortage: Shortage | None = None


class FallbackPrecision:
    """An encoder with a larger range, loaded for the first row that needs it.

    Parameters
    ----------
    spec, device, precision
        As `load_encoder` takes them.
    encoder
        The encoder of the run, used again at fp32.
    """

    def __init__(
        self, spec: EncoderSpec, device: str, precision: Precision, encoder: Encoder
    ) -> None:
        self._spec, self._device = spec, device
        self._precision, self._encoder = precision, encoder

    def retry(self, ids: IntArray) -> Retry:
        """Encode one row.

        Raises
        ------
        BundleError
            If the weights have been damaged since the run started.
        """
        encoder, precision, missing = self._opened
        if self._precision == "fp32":
            attempts = "in a batch and alone"
        else:
            attempts = f"at {self._precision} in a batch"
            if encoder is not None:
                attempts += f" and at {precision} alone"
        if missing:
            attempts += (
                f"; too little memory for a higher precision: {missing}. Run this sequence "
                "separately with another --precision or with more memory"
            )
        if encoder is None:
            return Retry(None, self._precision, attempts)
        vectors = encode_alone(encoder, ids)
        if isinstance(vectors, Shortage):
            return Retry(None, precision, attempts, vectors)
        return Retry(vectors[0], precision, attempts)

    @cached_property
    def _opened(self) -> tuple[Encoder | None, Precision, str]:
        """The encoder, its precision, and the memory missing for the precisions before it.

        The free memory is compared first: the system kills a process that exceeds it.
        """
        if self._precision == "fp32":
            return self._encoder, "fp32", ""
        missing: list[str] = []
        for wider in _LADDER[self._precision]:
            try:
                self._require_memory(wider)
                loaded = within_memory(partial(load_encoder, self._spec, self._device, wider))
            except DeviceError as error:
                missing.append(str(error).partition(". ")[0])
                continue
            if not isinstance(loaded, Shortage):
                return loaded, wider, "; ".join(missing)
            missing.append(f"{wider} does not fit into the free memory of {self._device}")
        return None, self._precision, "; ".join(missing)

    def _require_memory(self, precision: Precision) -> None:
        """Raise DeviceError if the encoder does not fit beside those of the run."""
        device = open_device(self._device)
        if device.type == "cuda":
            torch.cuda.empty_cache()  # memory of former batches counts as free afterwards
        name, shapes = self._spec.name, shapes_of(self._spec)
        for room in (free_bytes(device), device_bytes(device)):
            require_room(name, shapes, precision, self._device, room, free=True)


def encode_alone(encoder: Encoder, ids: IntArray) -> torch.Tensor | Shortage:
    """Encode one row: (1, dim) float32 on the CPU."""
    return within_memory(lambda: encoder.encode(encoder.collate([ids])).cpu())
