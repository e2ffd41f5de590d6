"""Sizes of all parts: full for a GPU, small for a CPU or a first try."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple


class Sizes(NamedTuple):
    """Models and amounts of work of all parts.

    Attributes
    ----------
    nucleotide, proteins
        Encoders: published names, or ``mini-deep`` for the one of that bundle. The first protein
        encoder is that of two_ranks, memory and killed, the last one that of predict.
    precision
        Of throughput and runs.
    batch_tokens, proteins_timed, bases_timed, seconds
        Throughput: tokens of a batch, sequences of each kind, least seconds a measurement.
    parity_items, longest
        Parity: sequences, and residues of the longest.
    predict_seconds, predict_records
        Time that the encoders of predict should take; its records if their rate is not known.
    records
        Input of two_ranks and killed.
    proteins_in_memory, long_protein
        Memory: proteins that fit, and residues of the one that must not fit.
    """

    nucleotide: str
    proteins: tuple[str, ...]
    precision: str
    batch_tokens: int
    proteins_timed: int
    bases_timed: int
    seconds: float
    parity_items: int
    longest: int
    predict_seconds: float
    predict_records: int
    records: int
    proteins_in_memory: int
    long_protein: int


SIZES: Final = {
    "full": Sizes(
        nucleotide="dnabert_s",
        proteins=("esm2_t33_650M_UR50D", "esm2_t36_3B_UR50D"),
        precision="fp16",
        batch_tokens=65_536,
        proteins_timed=600,
        bases_timed=6_000,
        seconds=2.0,
        parity_items=64,
        longest=1_022,
        predict_seconds=45.0,
        predict_records=16_000,
        records=10_000,
        proteins_in_memory=300,
        long_protein=600_000,
    ),
    "small": Sizes(
        nucleotide="mini-deep",
        proteins=("esm2_t6_8M_UR50D",),
        precision="fp32",
        batch_tokens=2_048,
        proteins_timed=16,
        bases_timed=16,
        seconds=0.2,
        parity_items=6,
        longest=120,
        predict_seconds=1.0,
        predict_records=20,
        records=100,
        proteins_in_memory=8,
        long_protein=5_000,
    ),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how large.

    Attributes
    ----------
    device
        ``cpu`` or ``cuda``.
    work
        Folder for weights and runs, shared by all parts.
    log
        File that gets the output of commands.
    """

    device: str
    sizes: Sizes
    work: Path
    log: Path

    @property
    def gpu(self) -> bool:
        """The device is a GPU."""
        return self.device == "cuda"
