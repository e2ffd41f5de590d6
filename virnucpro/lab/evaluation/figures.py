"""Figures of an evaluation: ROC, precision and recall, reliability, calls by group."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.durable import write_file
from virnucpro.lab.evaluation.answers import Answers
from virnucpro.lab.evaluation.comparison import ALL, Comparison, Row
from virnucpro.lab.evaluation.fragments import WHOLE, Fragment, group_key
from virnucpro.lab.groups import Groups
from virnucpro.lab.metrics import BINS, bin_of, ranked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Axes: TypeAlias = Any
_Curve: TypeAlias = Callable[[_Axes, str, Answers, BoolArray, FloatArray], None]

_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours of the tools, distinguishable by colour-blind readers (Okabe and Ito 2008)."""
_MARKERS: Final = "osD^vPX"
_PANEL: Final = 3.2
_MOST_COLUMNS: Final = 3
_MOST_NAMES: Final = 60
_FILLED: Final = 0.5
_SHARE_TITLE: Final = (
    "share called viral: viral groups above the line, non-viral below\n"
    "(hollow: less than half of the fragments have a score)"
)
_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "virnucpro",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_figures(
    folder: Path,
    comparison: Comparison,
    fragments: Mapping[str, Sequence[Fragment]],
    prevalence: float,
) -> list[Path]:
    """Write each figure as PNG and SVG into `folder`; return the paths.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(_STYLE):
        for name, figure in _drawn(comparison, fragments, prevalence):
            for kind in ("png", "svg"):
                path = folder / f"{name}.{kind}"
                metadata = {"Date": None} if kind == "svg" else {"Software": None}
                with write_file(path) as stream:
                    figure.savefig(stream, format=kind, dpi=150, metadata=metadata)
                figure.set_layout_engine("none")  # keeps the computed layout
                written.append(path)
    return written


def _drawn(
    comparison: Comparison, fragments: Mapping[str, Sequence[Fragment]], prevalence: float
) -> "Iterator[tuple[str, Figure]]":
    for name, curve, value, labels in (
        ("roc", _roc, "auroc", ("false positive rate", "recall")),
        ("precision_recall", _precision_recall, "auprc", ("recall", "precision")),
        ("reliability", _reliability, "ece", ("predicted probability", "share of viral")),
    ):
        yield name, _panels(comparison, fragments, prevalence, curve, value, labels)
    yield "groups", _calls_by_group(comparison.rows)


def _panels(
    comparison: Comparison,
    fragments: Mapping[str, Sequence[Fragment]],
    prevalence: float,
    curve: _Curve,
    value: str,
    labels: tuple[str, str],
) -> "Figure":
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional dependency

    tools = list(dict.fromkeys(row.tool for row in comparison.rows))
    columns = min(_MOST_COLUMNS, len(fragments))
    lines = -(-len(fragments) // columns)
    figure = Figure(figsize=(_PANEL * columns, (_PANEL + 0.2) * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis, (length, members) in zip(axes, fragments.items(), strict=False):
        weights = Groups.of([*map(group_key, members)]).own_weights(prevalence)
        viral = np.array([fragment.viral for fragment in members])
        for tool, answers in comparison.answers[length].items():
            colour = _COLOURS[tools.index(tool) % len(_COLOURS)]
            axis.set_prop_cycle(color=[colour])
            curve(axis, _label(comparison.rows, tool, length, value), answers, viral, weights)
        axis.set(title=_title(length), xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axis.set(xlabel=labels[0], ylabel=labels[1])
        if comparison.answers[length]:
            axis.legend(fontsize=7, frameon=False, loc="best")
    for axis in axes[len(fragments) :]:
        axis.remove()
    return figure


def _label(rows: Sequence[Row], tool: str, length: str, name: str) -> str:
    row = next(row for row in rows if (row.tool, row.length, row.kingdom) == (tool, length, ALL))
    value = row.values[name]
    return f"{tool}: {name.upper()} {'NA' if np.isnan(value) else f'{value:.3f}'}"


def _roc(axis: _Axes, label: str, answers: Answers, viral: BoolArray, weights: FloatArray) -> None:
    axis.plot([0, 1], [0, 1], color="0.8", linewidth=0.8, zorder=0)
    curve = ranked(answers.score, viral, weights)
    axis.plot(curve.false_positives, curve.recall, label=label, linewidth=1.4)


def _precision_recall(
    axis: _Axes, label: str, answers: Answers, viral: BoolArray, weights: FloatArray
) -> None:
    curve = ranked(answers.score, viral, weights)
    axis.axhline(weights[viral].sum() / weights.sum(), color="0.8", linewidth=0.8, zorder=0)
    axis.step(curve.recall, curve.precision, where="pre", label=label, linewidth=1.4)


def _reliability(
    axis: _Axes, label: str, answers: Answers, viral: BoolArray, weights: FloatArray
) -> None:
    """Draw a point per bin; its area is the share of fragments in the bin."""
    axis.plot([0, 1], [0, 1], color="0.8", linewidth=0.8, zorder=0)
    bins = bin_of(answers.probability)
    points = []
    for i in range(BINS):
        inside = bins == i
        if weight := float(weights[inside].sum()):
            mean = np.average(answers.probability[inside], weights=weights[inside])
            share = np.average(viral[inside], weights=weights[inside])
            points.append((float(mean), float(share), weight / float(weights[bins >= 0].sum())))
    x, y, size = zip(*points, strict=True) if points else ((), (), ())
    (line,) = axis.plot(x, y, linewidth=1.0, label=label)
    axis.scatter(x, y, s=[8 + 150 * part for part in size], color=line.get_color(), alpha=0.7)


_Name: TypeAlias = tuple[str, str, str]
"""Label, kingdom and group."""


def _calls_by_group(rows: Sequence[Row]) -> "Figure":
    """Draw the share of each group that is called viral, a panel per length, viral groups first."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional dependency

    names = _names(rows)
    lengths = list(dict.fromkeys(row.length for row in rows))
    tools = list(dict.fromkeys(row.tool for row in rows))
    place = {name: len(names) - number for number, name in enumerate(names)}
    size = (2.4 + 1.7 * len(lengths), 1.2 + 0.19 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(lengths), squeeze=False, sharey=True).ravel()
    line = len(names) - sum(label == "viral" for label, _, _ in names) + 0.5
    for axis, length in zip(axes, lengths, strict=True):
        for number, tool in enumerate(tools):
            marker, colour = _MARKERS[number % len(_MARKERS)], _COLOURS[number % len(_COLOURS)]
            points = [
                (share, place[name], colour if scored >= _FILLED else "none")
                for row in rows
                if (row.tool, row.length) == (tool, length)
                for name, (share, scored) in _shares(row).items()
                if name in place
            ]
            shift = 0.0 if len(tools) == 1 else 0.4 * (number / (len(tools) - 1) - 0.5)
            axis.scatter(
                [share for share, _, _ in points],
                [height - shift for _, height, _ in points],
                s=16,
                marker=marker,
                facecolors=[face for _, _, face in points],
                edgecolors=colour,
            )
            axis.scatter([], [], s=16, marker=marker, color=colour, label=tool)
        axis.axhline(line, color="0.5", linewidth=0.8)
        axis.set(title=_title(length), xlim=(-0.04, 1.04), ylim=(0.3, len(names) + 0.7))
        axis.grid(axis="both", color="0.92", linewidth=0.6)
        axis.set_axisbelow(True)
    axes[0].set_yticks(list(place.values()), [_shown(name) for name in names], fontsize=7)
    figure.supxlabel(_SHARE_TITLE, fontsize=9)
    if len(tools) > 1:
        handles = axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _shares(row: Row) -> dict[_Name, tuple[float, float]]:
    """Return the shares called viral and scored; the row of everything has both classes."""
    return {
        (label, row.kingdom, row.group): (
            row.values[f"{short}_as_viral"],
            row.values[f"scored_{short}"],
        )
        for label, short in (("viral", "viral"), ("non-viral", "non_viral"))
        if row.label in (ALL, label)
    }


def _names(rows: Sequence[Row]) -> list[_Name]:
    """Return each class, and its groups if they fit into a figure, else its kingdoms."""
    every = sorted({name for row in rows for name in _shares(row)}, key=_order)
    groups = [name for name in every if name[2] != ALL]
    fits = 0 < len(groups) <= _MOST_NAMES
    return [name for name in every if name[1] == ALL or (name[2] != ALL) == fits]


def _order(name: _Name) -> tuple[bool, bool, str, str]:
    label, kingdom, group = name
    return label != "viral", kingdom != ALL, kingdom, group


def _shown(name: _Name) -> str:
    label, kingdom, group = name
    if group == ALL:
        return f"all {label}" if kingdom == ALL else kingdom
    return group if kingdom == label else f"{kingdom}: {group}"


def _title(length: str) -> str:
    return "whole records" if length == WHOLE else f"{int(length):,} bases"
