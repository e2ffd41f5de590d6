"""Predictions for groups outside the training set, the calibration and thresholds from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from virnucpro.classifier.calibration import PlattLine, Preset
from virnucpro.classifier.call_options import PresetName
from virnucpro.errors import InputError
from virnucpro.training.groups import VIRUS, Group
from virnucpro.training.network import Ensemble, Examples, Recipe, train
from virnucpro.training.platt import LengthClass, fit, held_out, posterior
from virnucpro.training.weights import equal_weights, share_above

__all__ = ["Calibrated", "Pieces", "calibrate", "choose_presets", "cross_validate"]

FloatArray = NDArray[np.float64]

HOSTS = ("plant", "vertebrate", "fungi", "invertebrate")
"""Kingdoms of hosts: most samples contain their DNA."""

_SENSITIVE = 0.5
_MOST_CALLED = 0.01
"""Maximum share of other records called viral, mean of all lengths: of hosts at the default
threshold, of all kingdoms at the conservative threshold."""
_HOST_BASES = 5000
_RECORD_BASES = 3000
_NON_VIRAL = 0.5
"""Records below this probability are non-viral at every preset."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of one length, with the features of their windows.

    Attributes
    ----------
    groups
        Group of each piece.
    features
        (n_windows, dim) float32.
    first
        (n_pieces + 1,) int64: piece i has the windows ``first[i]`` to ``first[i + 1] - 1``.
    """

    groups: Sequence[Group]
    features: NDArray[np.float32]
    first: NDArray[np.int64]

    @property
    def viral(self) -> NDArray[np.bool_]:
        """(n_pieces,) bool."""
        return np.array([kingdom == VIRUS for kingdom, _ in self.groups], np.bool_)

    def logits(self, ensemble: Ensemble) -> FloatArray:
        """Return the mean logit of each piece's windows."""
        found: FloatArray = np.add.reduceat(ensemble.logits(self.features), self.first[:-1])
        return found / np.diff(self.first)

    def select(self, chosen: NDArray[np.bool_]) -> "Pieces":
        """Return the pieces for which `chosen`, (n_pieces,), is True."""
        counts = np.diff(self.first)
        rows = np.repeat(chosen, counts)
        first = np.concatenate(([0], np.cumsum(counts[chosen])))
        groups = [group for group, kept in zip(self.groups, chosen, strict=True) if kept]
        return Pieces(groups, self.features[rows], first)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A length class with its calibration.

    Attributes
    ----------
    length_class, line
        The class of records, and the line of its calibration.
    held_out
        (n_pieces,) probability of each piece, by a calibration without the piece's group.
    """

    length_class: LengthClass
    line: PlattLine
    held_out: FloatArray


def cross_validate(
    examples: Examples,
    groups: Sequence[Group],
    pieces: Mapping[int, Pieces],
    folds: Mapping[str, int],
    recipe: Recipe,
    seed: int,
    report: Callable[[str], object],
) -> dict[int, FloatArray]:
    """Return, by length, the mean logit of each piece by an ensemble without the piece's group.

    Parameters
    ----------
    groups
        Group of each training window.
    pieces
        Pieces of each length in bases.
    folds
        Fold of each group's name.
    report
        Called with a text about each fold.
    """
    found = {length: np.zeros(len(one.groups)) for length, one in pieces.items()}
    of_window = np.array([folds[name] for _, name in groups])
    n_folds = max(folds.values()) + 1
    for fold in range(n_folds):
        report(f"training for fold {fold + 1} of {n_folds}")
        ensemble = train(_without(examples, of_window == fold), recipe, seed)
        for length, one in pieces.items():
            inside = np.array([folds[name] == fold for _, name in one.groups])
            if inside.any():
                found[length][inside] = one.select(inside).logits(ensemble)
    return found


def calibrate(
    logits: Mapping[int, FloatArray],
    pieces: Mapping[int, Pieces],
    classes: Sequence[LengthClass],
    warn: Callable[[str], object],
) -> list[Calibrated]:
    """Fit a calibration for each of the length classes of which there are pieces.

    A class whose pieces are not separated has none; `warn` is called with a text.

    Raises
    ------
    InputError
        If no class has a calibration.
    """
    found = []
    for one in classes:
        if one.bases not in pieces:
            continue
        groups, viral = pieces[one.bases].groups, pieces[one.bases].viral
        left_out = held_out(one, logits[one.bases], groups)
        line = fit(one, logits[one.bases], viral, equal_weights(groups))
        if line is not None:
            found.append(Calibrated(one, _rounded(line), left_out))
        else:
            warn(f"pieces of {one.bases:,} bases are not separated: they have no calibration")
    if not found:
        raise InputError(
            "the classifier separates viral from non-viral pieces of no length in the "
            "cross-validation. Check the labels, or add groups and longer sequences."
        )
    return found


def choose_presets(
    calibrated: Sequence[Calibrated],
    logits: Mapping[int, FloatArray],
    pieces: Mapping[int, Pieces],
    warn: Callable[[str], object],
) -> dict[PresetName, Preset]:
    """Choose the thresholds of the presets from the predictions for groups left out.

    ``sensitive`` is 0.5. At ``default``, at most 1 % of the host pieces of 5,000 bases or more
    are called viral, at ``conservative`` at most 1 % of all other pieces of 3,000 bases or more.
    Lengths and kingdoms count equally. Without a host kingdom, the limit of ``default`` applies to
    all non-viral kingdoms; without such long pieces, to the longest. `warn` is called with a text
    if a limit applies to other pieces or cannot be reached.
    """
    probabilities = {
        one.length_class.bases: posterior(one.line, logits[one.length_class.bases])
        for one in calibrated
    }

    present = {kingdom for one in pieces.values() for kingdom, _ in one.groups}
    known_hosts = [host for host in HOSTS if host in present] or None
    if known_hosts is None:
        warn(
            f"no kingdom is one of {', '.join(HOSTS)}: the default threshold is chosen for all "
            "non-viral kingdoms"
        )

    def called(threshold: float, hosts: Sequence[str] | None, shortest: int) -> float:
        shares: list[float] = []
        for length, values in probabilities.items():
            if length >= shortest:
                of_kingdom = share_above(values, pieces[length].groups, {"": threshold})[""]
                kept = [
                    share
                    for kingdom, share in of_kingdom.items()
                    if kingdom != VIRUS and (hosts is None or kingdom in hosts)
                ]
                shares.append(float(np.mean(kept)) if kept else 0.0)
        return float(np.mean(shares)) if shares else 0.0

    def least(hosts: Sequence[str] | None, shortest: int) -> float:
        grid = [percent / 100 for percent in range(50, 100)]
        found = [one for one in grid if called(one, hosts, min(shortest, longest)) <= _MOST_CALLED]
        if not found:
            warn(f"at no threshold are at most {_MOST_CALLED:.1%} of others viral: 0.99 is used")
        return found[0] if found else grid[-1]

    longest = max(probabilities)
    default = least(known_hosts, _HOST_BASES)
    conservative = max(default, least(None, _RECORD_BASES))
    return {
        "sensitive": Preset(_SENSITIVE, _NON_VIRAL),
        "default": Preset(default, _NON_VIRAL),
        "conservative": Preset(conservative, _NON_VIRAL),
    }


def _rounded(line: PlattLine) -> PlattLine:
    """Return the line with the digits of a bundle."""
    below = line.slope_below
    return replace(
        line,
        slope=round(line.slope, 6),
        intercept=round(line.intercept, 6),
        slope_below=None if below is None else round(below, 6),
    )


def _without(examples: Examples, left_out: NDArray[np.bool_]) -> Examples:
    kept = ~left_out
    _, groups = np.unique(examples.groups[kept], return_inverse=True)
    return Examples(
        examples.features[kept],
        examples.classes[kept],
        examples.viral,
        groups,
        examples.weights[kept],
    )
