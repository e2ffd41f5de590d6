"""What to evaluate, and how.

This module imports quickly, because the command line needs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from virnucpro.run.options import PrecisionChoice

if TYPE_CHECKING:
    from virnucpro.lab.evaluation.answers import Unanswered
    from virnucpro.lab.evaluation.input_table import Excluded
    from virnucpro.lab.evaluation.labels import Source


@dataclass(frozen=True, slots=True)
class OtherTool:
    """Tables of another tool, see `virnucpro.lab.evaluation.predictions`.

    Attributes
    ----------
    score_column, threshold
        As for `read_table`.
    """

    name: str
    paths: tuple[Path, ...]
    score_column: str | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """What to evaluate, and how.

    Attributes
    ----------
    sources
        Labelled sequences, see `virnucpro.lab.evaluation.labels`.
    bundles
        Names or folders of bundles.
    lengths
        Lengths of fragments in bases as text, or ``whole``. The default are lengths that
        metagenomic reads and contigs have.
    per_group, per_class
        Maximum number of fragments per group and length, and per class and length.
    excluded
        Regions without fragments.
    prevalence
        Share of viral sequences that the figures stand for.
    n_resamples
        Number of bootstrap resamples; 0 for no intervals.
    unanswered
        Rank of fragments without a score. ``auto``: ``mean`` for bundles, ``lowest`` for tables.
    origin
        Description of the inputs, for evaluation.json.
    tables
        Files of the user beside the sequences, which the evaluation must not replace.
    """

    sources: "Sequence[Source]" = ()
    bundles: Sequence[str] = ("mini",)
    others: Sequence[OtherTool] = ()
    lengths: Sequence[str] = ("300", "500", "1000", "3000", "10000")
    per_group: int = 100
    per_class: int = 5000
    seed: int = 1
    excluded: "Excluded" = field(default_factory=dict)
    prevalence: float = 0.5
    n_resamples: int = 1000
    unanswered: 'Unanswered | Literal["auto"]' = "auto"
    precision: PrecisionChoice = "auto"
    origin: Mapping[str, Any] = field(default_factory=dict)
    tables: "Sequence[Path]" = ()

    def rule(self, automatic: "Unanswered") -> "Unanswered":
        """Return the rank of fragments without a score; `automatic` if it is ``auto``."""
        return automatic if self.unanswered == "auto" else self.unanswered
