"""What a rank is told: plain data, light to import, picklable."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro.encoders.registry import EncoderSpec, Precision
from virnucpro.run_dir import RunDirectory

__all__ = ["EmbeddingsDtype", "RankTask"]

EmbeddingsDtype = Literal["fp16", "fp32", "none"]


@dataclass(frozen=True, slots=True)
class RankTask:
    """The part of a run that is the same for every rank.

    Attributes
    ----------
    run
        The run's folder; holds the index, the plan and, in the end, the segments.
    launch
        Number of the launch whose plan is dealt.
    fingerprint
        The run's; stands in every segment.
    encoders
        In the order in which their vectors are joined.
    head
        Weights of the classifier, or None where vectors are all that is wanted.
    unit_rows, unit_positions
        Caps of a unit; with the index they determine all unit bounds.
    batch_tokens
        Budget of a batch: padded length times number of sequences.
    """

    run: RunDirectory
    launch: int
    fingerprint: str
    encoders: tuple[EncoderSpec, ...]
    head: Path | None
    precision: Precision
    embeddings: EmbeddingsDtype
    unit_rows: int
    unit_positions: int
    batch_tokens: int
    torch_device: Literal["cpu", "cuda"]
    threads: int
