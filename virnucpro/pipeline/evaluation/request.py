"""What to evaluate, and how."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from virnucpro.errors import UsageError
from virnucpro.evaluation.answers import Unanswered
from virnucpro.evaluation.fragments import Excluded
from virnucpro.evaluation.labels import Source
from virnucpro.pipeline.jobs.job import PrecisionChoice

__all__ = ["DEFAULT_LENGTHS", "Evaluation", "OtherTool", "require_extra"]

DEFAULT_LENGTHS: Final = ("300", "500", "1000", "3000", "10000")
"""Lengths in bases that metagenomic reads and contigs have."""

_EXTRA: Final = {"sklearn": "scikit-learn", "matplotlib": "matplotlib"}


@dataclass(frozen=True, slots=True)
class OtherTool:
    """Tables of another tool, see `virnucpro.evaluation.predictions`.

    Attributes
    ----------
    score_column, threshold
        As for `read_table`.
    """

    name: str
    paths: tuple[Path, ...]
    score_column: str | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What to evaluate, and how.

    Attributes
    ----------
    sources
        Labelled sequences, see `virnucpro.evaluation.labels`.
    bundles
        Names or folders of bundles.
    lengths
        Lengths of fragments in bases as text, or ``whole``.
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
    """

    sources: Sequence[Source]
    bundles: Sequence[str] = ("mini",)
    others: Sequence[OtherTool] = ()
    lengths: Sequence[str] = DEFAULT_LENGTHS
    per_group: int = 100
    per_class: int = 5000
    seed: int = 1
    excluded: Excluded = field(default_factory=dict)
    prevalence: float = 0.5
    n_resamples: int = 1000
    unanswered: Unanswered | Literal["auto"] = "auto"
    precision: PrecisionChoice = "auto"
    origin: Mapping[str, Any] = field(default_factory=dict)

    def rule(self, automatic: Unanswered) -> Unanswered:
        """Return the rank of fragments without a score; `automatic` if it is ``auto``."""
        return automatic if self.unanswered == "auto" else self.unanswered


def require_extra() -> None:
    """Raise an error if scikit-learn or matplotlib is not installed.

    Raises
    ------
    UsageError
        If a package of the extra ``evaluate`` is missing.
    """
    if missing := [name for module, name in _EXTRA.items() if find_spec(module) is None]:
        raise UsageError(
            f"evaluate needs {' and '.join(missing)}: pip install 'virnucpro[evaluate]'. Only "
            "--fragments-only works without."
        )
