"""The report of a cross-validation: figures of groups that were left out, as one HTML file."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from virnucpro import __version__
from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.bundles.manifest import Bundle
from virnucpro.classifier.prevalence import posterior
from virnucpro.lab.metrics import BINS, bin_of
from virnucpro.lab.training.fit import CALLED_AT, Piece
from virnucpro.lab.training.genomes import Group, are_viral
from virnucpro.lab.training.new_bundle import of_kingdoms, rates, with_interval
from virnucpro.lab.training.weights import equal_weights
from virnucpro.report.html.page import write_charts

_PREVALENCE: Final = 0.5
_RECORD_BASES: Final = 1000
_WEAKEST: Final = 25
_DATA: Final = ("lengths", "auroc", "recall", "calibration")


def write_report(path: Path, bundle: Bundle, held_out: Mapping[int, Sequence[Piece]]) -> None:
    """Write the report of the training of a bundle.

    Parameters
    ----------
    held_out
        Pieces of the cross-validation by length in bases, see `Fitted.held_out`.

    Raises
    ------
    RunError
        If the file cannot be written.
    """
    figures: dict[str, Any] = dict(bundle.metrics["cross_validation"])  # type: ignore[call-overload]
    provenance: Mapping[str, Any] = bundle.provenance
    shown = next((length for length in figures if int(length) >= _RECORD_BASES), [*figures][-1])
    at = figures[shown]
    counts = provenance["counts"]
    kingdoms = sorted({name for row in figures.values() for name in row["auroc_of_kingdom"]})
    threshold = (bundle.calibration or {})["presets"]["default"]["viral"]  # type: ignore[index]
    training = {
        "command": provenance["command"],
        "seed": provenance["seed"],
        "encoders": ", ".join(f"{encoder.name} ({encoder.view})" for encoder in bundle.encoders),
        "items": bundle.items,
        "window": f"{bundle.window} bases",
        "classes": ", ".join(bundle.classes) or "viral, non-viral",
        "record head": "no" if bundle.record is None else "yes",
        "viral genomes": f"{counts['genomes_viral']:,} of {counts['groups_viral']:,} groups",
        "other genomes": f"{counts['genomes_others']:,} of {counts['groups_others']:,} groups",
        "bases": f"{counts['bases']:,}",
    }
    content = {
        "title": f"{bundle.name} {bundle.version}: cross-validation",
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "answer": f"AUROC {with_interval(at, 'auroc')} for sequences of {int(shown):,} bases",
        "tiles": [
            (f"{int(length):,} bases", f"{row['auroc']:.3f}", f"{row['pieces']:,} sequences")
            for length, row in figures.items()
        ],
        "lengths": [int(length) for length in (min(figures, key=int), max(figures, key=int))],
        "auroc": [*_aurocs(figures, kingdoms)],
        "auroc_table": (
            ("kingdom (groups)", *figures),
            [
                ["all", *(with_interval(row, "auroc") for row in figures.values())],
                *of_kingdoms(figures, kingdoms),
            ],
        ),
        "recall": _recalls(figures),
        "fdr_table": (
            ("bases", "rate at 50 % viral", "recall", "rate at 10 % viral", "recall"),
            [[bases, *rates(row["realised_fdr"])] for bases, row in figures.items()],
        ),
        "calibration": [
            {"title": f"{length:,} bases", "points": _curve(pieces)}
            for length, pieces in held_out.items()
        ],
        "weakest": (
            ("kingdom", "class", "group", "sequences", "AUROC", "called viral"),
            weakest_groups(held_out, threshold)[:_WEAKEST],
        ),
        "training": [(name, str(value)) for name, value in training.items()],
        "networks": [
            (name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
            for name, value in provenance["recipe"].items()
        ],
        "versions": [*provenance["versions"].items()],
    }
    write_charts(path, "cross_validation", content, _DATA)


def _point(bases: str, row: Mapping[str, Any], name: str) -> dict[str, float]:
    low, high = row.get(f"{name}_interval", (row[name], row[name]))
    return {"bases": int(bases), "value": row[name], "low": low, "high": high}


def _aurocs(figures: Mapping[str, Any], kingdoms: Sequence[str]) -> list[dict[str, Any]]:
    panels = [{"title": "all", "points": [_point(*row, "auroc") for row in figures.items()]}]
    for kingdom in kingdoms:
        found = {bases: row["auroc_of_kingdom"].get(kingdom) for bases, row in figures.items()}
        points = [_point(bases, auroc, "auroc") for bases, auroc in found.items() if auroc]
        panels.append({"title": kingdom, "points": points})
    return panels


def _recalls(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a panel of recalls for each share of viral sequences."""
    shares = next(iter(figures.values()))["realised_fdr"]
    return [
        {
            "title": f"{float(share):.0%} viral",
            "points": [
                _point(bases, row["realised_fdr"][share], "recall")
                for bases, row in figures.items()
                if row["realised_fdr"][share]
            ],
        }
        for share in shares
    ]


def _columns(pieces: Sequence[Piece]) -> tuple[list[Group], FloatArray, BoolArray, FloatArray]:
    """Return groups, log odds, which are viral, and equal weights of pieces."""
    groups = [(kingdom, group) for kingdom, group, *_ in pieces]
    odds = np.array([piece[4] for piece in pieces])
    viral = are_viral(groups)
    return groups, odds, viral, equal_weights(groups)


def _curve(pieces: Sequence[Piece]) -> list[dict[str, float]]:
    """Return mean probability and share of viral pieces in bins of the probability."""
    _, odds, viral, weights = _columns(pieces)
    probability = posterior(odds, _PREVALENCE)
    bins = bin_of(probability)
    chosen = [bins == number for number in range(BINS) if (bins == number).any()]
    return [
        {
            "probability": round(
                float(np.average(probability[inside], weights=weights[inside])), 4
            ),
            "viral": round(float(np.average(viral[inside], weights=weights[inside])), 4),
            "pieces": int(inside.sum()),
        }
        for inside in chosen
    ]


def weakest_groups(
    held_out: Mapping[int, Sequence[Piece]], threshold: float
) -> list[tuple[str, str, str, str, str, str]]:
    """Return the groups by their AUROC against the other side, mean of their lengths, ascending.

    Parameters
    ----------
    held_out
        As `Fitted.held_out`.
    threshold
        Least probability of a viral call.

    Returns
    -------
    list
        Kingdom, class, group, number of pieces, AUROC, share called viral; as text.
    """
    found: dict[Group, list[tuple[str, float, float, int]]] = {}
    for pieces in held_out.values():
        groups, odds, viral, weights = _columns(pieces)
        called = posterior(odds, CALLED_AT) >= threshold
        better = np.zeros(len(odds))
        for side in (viral, ~viral):
            order = np.argsort(odds[~side])
            below = np.concatenate(([0.0], np.cumsum(weights[~side][order])))
            ends = (
                np.searchsorted(odds[~side][order], odds[side], end) for end in ("left", "right")
            )
            better[side] = sum(below[end] for end in ends) / 2
        better = np.where(viral, better, 1 - better)
        rows: dict[Group, list[int]] = {}
        for row, group in enumerate(groups):
            rows.setdefault(group, []).append(row)
        for group, own in rows.items():
            pair = float(better[own].mean()), float(called[own].mean())
            found.setdefault(group, []).append((pieces[own[0]][2], *pair, len(own)))
    means = {group: np.mean([row[1:3] for row in own], axis=0) for group, own in found.items()}
    return [
        (
            group[0],
            found[group][0][0],
            group[1],
            f"{sum(row[3] for row in found[group]):,}",
            f"{means[group][0]:.3f}",
            f"{means[group][1]:.0%}",
        )
        for group in sorted(means, key=lambda group: (means[group][0], group))
    ]
