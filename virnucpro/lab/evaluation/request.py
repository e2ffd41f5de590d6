"""What to evaluate, and how.

This module imports quickly, because the command line needs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virnucpro.run.options import PrecisionChoice

if TYPE_CHECKING:
    from virnucpro.lab.evaluation.input_table import Excluded
    from virnucpro.lab.evaluation.labels import Source


@dataclass(frozen=True)
class Evaluation:
    """What to evaluate, and how.

    Attributes
    ----------
    sources
        Labelled sequences, see `virnucpro.lab.evaluation.labels`.
    bundles
        Names or folders of bundles.
    tables
        Tables of other tools by their names, see `virnucpro.lab.evaluation.predictions`.
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
    inputs
        Files of the user beside the sequences by their options, for evaluation.json; the
        evaluation must not replace them.
    """

    sources: "Sequence[Source]" = ()
    bundles: Sequence[str] = ("mini",)
    tables: Mapping[str, Path] = field(default_factory=dict)
    lengths: Sequence[str] = ("300", "500", "1000", "3000", "10000")
    per_group: int = 100
    per_class: int = 5000
    seed: int = 1
    excluded: "Excluded" = field(default_factory=dict)
    prevalence: float = 0.5
    n_resamples: int = 1000
    precision: PrecisionChoice = "auto"
    inputs: Mapping[str, Path] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the sequences and tools, for evaluation.json."""
        names = ("lengths", "per_group", "per_class", "seed", "prevalence", "n_resamples")
        return {name: getattr(self, name) for name in (*names, "precision")}
