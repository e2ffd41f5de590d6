"""The same encoder nearer to fp32: for rows that are not finite at a run's own precision."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory.memory_needed import memory_wanted
from virnucpro.encoders.memory.out_of_memory import Shortage, within_memory
from virnucpro.encoders.memory.placement import device_bytes, free_bytes, open_device
from virnucpro.encoders.registry import load_encoder, shapes_of

__all__ = ["Fallback", "NoFallback", "open_fallback"]

_LADDER: Final[Mapping[Precision, tuple[Precision, ...]]] = {
    "fp16": ("fp32", "bf16"),
    "bf16": ("fp32",),
}
"""What holds larger numbers, the nearest to fp32 first; bf16 takes no more room than fp16."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """An encoder nearer to fp32.

    Attributes
    ----------
    short
        Why it is no nearer; "" where it computes at fp32.
    """

    precision: Precision
    encoder: Encoder
    short: str = ""


@dataclass(frozen=True, slots=True)
class NoFallback:
    """There is no room for any; `short` says what each wants, and what there is."""

    short: str


def open_fallback(spec: EncoderSpec, device: str, precision: Precision) -> Fallback | NoFallback:
    """Load the twin of an encoder that computes with `precision`, not fp32, and stays loaded.

    fp32 where that has room beside it, else bf16 beside fp16. Room is asked for before: a process
    whose machine runs out of memory is killed. Where a GPU is full all the same, that is no end.

    Parameters
    ----------
    spec, device
        As `load_encoder` takes them.

    Raises
    ------
    BundleError
        When the weights have been damaged meanwhile.
    """
    missed: list[str] = []
    for finer in _LADDER[precision]:
        short = _shortage(spec, device, finer)
        twin = None if short else within_memory(partial(load_encoder, spec, device, finer))
        if twin is not None and not isinstance(twin, Shortage):
            return Fallback(finer, twin, "; ".join(missed))
        missed.append(short or f"{finer} does not fit into what {device} has left")
    return NoFallback("; ".join(missed))


def _shortage(spec: EncoderSpec, device: str, precision: Precision) -> str:
    """Say what is missing beside all that is loaded already; "" where nothing is."""
    torch_device = open_device(device)
    if torch_device.type == "cuda":
        torch.cuda.empty_cache()  # what former batches took is counted as free only then
    wanted = memory_wanted(shapes_of(spec), precision, device)
    rooms = [
        room for room in (free_bytes(torch_device), device_bytes(torch_device)) if room is not None
    ]
    if all(wanted <= room for room in rooms):
        return ""
    left = min(rooms) / 1e9
    return f"{precision} wants {wanted / 1e9:.2f} GB and {device} has {left:.2f} GB left"
