"""The rule of the calls, as chosen by the user."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Final, Literal, TypeAlias, get_args

from virnucpro.errors import UsageError

PresetName: TypeAlias = Literal["sensitive", "default", "conservative"]

PRESETS: Final[tuple[PresetName, ...]] = get_args(PresetName)
"""Names of the presets, by rising threshold."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The rule of a call, as chosen by the user.

    Attributes
    ----------
    preset
        Thresholds of the bundle: ``sensitive``, ``default`` (also if None) or ``conservative``.
        Beside a threshold or an FDR, only its limit below which a record is non-viral counts.
    threshold
        Probability (score, without a calibration) from which a record is viral; None for the
        preset's.
    fdr
        Maximum expected share of non-viral records among the viral calls; None for no limit.
    prevalence
        Expected share of viral records; ``auto`` to estimate it from the run, which is done for
        None too, if the bundle has a calibration.

    Raises
    ------
    UsageError
        If a value is not allowed, or both `threshold` and `fdr` are given.
    """

    preset: PresetName | None = None
    threshold: float | None = None
    fdr: float | None = None
    prevalence: float | Literal["auto"] | None = None

    def __post_init__(self) -> None:
        if self.preset not in (None, *PRESETS):
            raise UsageError(f"unknown preset {self.preset!r}: give {', '.join(PRESETS)}")
        if self.threshold is not None and self.fdr is not None:
            raise UsageError("a threshold and an FDR are two rules: give one of them")
        for name, value in (("threshold", self.threshold), ("FDR", self.fdr)):
            if value is not None and not _is_share(value):
                raise UsageError(f"invalid {name} {value!r}: give a number from 0 to 1")
        share = self.prevalence
        if share not in (None, "auto") and not (isinstance(share, float) and 0 < share < 1):
            raise UsageError(
                f"invalid prevalence {share!r}: give a number between 0 and 1, or auto"
            )

    def after(self, former: Mapping[str, Any]) -> "CallOptions":
        """Return the rule of a run with the rule `former` (empty: a new run), when this is given.

        A given prevalence replaces the former one. A given preset, threshold or FDR replaces all
        three. The rest stays, unless only the preset ``default`` is given.
        """
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if given == {"preset": "default"}:
            return self
        if given.keys() - {"prevalence"}:
            former = {"prevalence": former.get("prevalence")}
        return CallOptions(**{"preset": "default", **former, **given})

    @property
    def text(self) -> str:
        """Return the rule in words, such as ``preset conservative, prevalence 0.1``."""
        limit = "threshold" if self.threshold is not None else "fdr" if self.fdr is not None else ""
        preset = f"preset {self.preset or 'default'}"
        rule = f"{limit} {getattr(self, limit)}" if limit else preset
        if limit and self.preset not in (None, "default"):
            rule += f" (non-viral: {preset})"
        return rule if self.prevalence is None else f"{rule}, prevalence {self.prevalence}"


def _is_share(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return 0 <= float(value) <= 1
