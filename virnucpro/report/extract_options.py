"""Which records of a run are written as FASTA or FASTQ, as chosen by the user."""

from collections.abc import Sequence
from dataclasses import dataclass

from virnucpro.errors import UsageError
from virnucpro.run_dir import EXTRACTS


@dataclass(frozen=True, slots=True)
class ExtractOptions:
    """Which records are written as FASTA or FASTQ.

    Attributes
    ----------
    calls
        Calls of `EXTRACTS`; one file for each.
    compress
        Whether the files are compressed with gzip.

    Raises
    ------
    UsageError
        If a call is unknown.
    """

    calls: Sequence[str] = ("viral",)
    compress: bool = False

    def __post_init__(self) -> None:
        for call in self.calls:
            if call not in EXTRACTS:
                raise UsageError(f"cannot extract {call!r}: give {', '.join(EXTRACTS)}, or none")
