"""What a run has come to: the counts of its results."""

from dataclasses import dataclass
from pathlib import Path

from virnucpro.classifier.prevalence import Expectation


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts of a run's results.

    Attributes
    ----------
    records
        Number of records by status.
    calls
        Number of records by call; empty for a run without a classifier.
    units
        Number of units.
    rows_missing, rows_quarantined
        Number of missing rows, and of quarantined rows. A resume computes missing rows, but not
        quarantined rows.
    rows_overflowing
        Number of quarantined rows whose vectors are too large for fp16; a new run with
        ``--embeddings fp32`` can store these vectors.
    rule
        Rule of the calls in words; "" for a run without a classifier.
    proviruses
        Number of provirus candidates: records with viral and non-viral stretches.
    expectation
        Assumed prevalence and expected number of false calls; None without a calibration or a
        scored record.
    by_length
        Number of records, and of viral records, by length class (`LENGTH_CLASSES`).
    files
        Paths of the outputs for people, the most important first.
    precision
        Precision of the run.
    again
        For each precision, the number of rows that were recomputed one by one at this precision,
        because vectors or scores from a batch were NaN or infinite. Rows of failed ranks are not
        counted.
    missing_units
        Units without a valid segment, ascending.
    copies
        Number of valid segments of units that another segment has too.
    rejected
        Files that are named like segments and cannot be used.
    """

    root: Path
    records: dict[str, int]
    calls: dict[str, int]
    units: int
    rows_missing: int
    rows_quarantined: int
    rows_overflowing: int
    rule: str
    by_length: dict[str, tuple[int, int]]
    files: tuple[Path, ...]
    precision: str
    again: dict[str, int]
    missing_units: tuple[int, ...]
    copies: int
    rejected: tuple[Path, ...] = ()
    expectation: Expectation | None = None
    proviruses: int = 0

    @property
    def complete(self) -> bool:
        """Return whether every row of the run has a result."""
        return not (self.rows_missing or self.rows_quarantined)
