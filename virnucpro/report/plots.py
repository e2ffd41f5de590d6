"""Figures of a run for papers: distribution of scores, and window scores of one record."""

import warnings
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from virnucpro.errors import UsageError
from virnucpro.report.html.best import record_rows, regions_by_record
from virnucpro.report.html.counts import BINS, COLOURS, histogram
from virnucpro.report.output_file import write_output
from virnucpro.report.reading.facts import RunFacts
from virnucpro.report.reading.records import read_tracks
from virnucpro.tables.schema import Block

_MIDDLE: Final = 0.5
_DPI: Final = 200
_STRIP: Final = -0.14
"""Place of the regions, below the scores."""
_LONG_NAME: Final = 40
"""Letters of a name that has a line of the title for itself if it is longer."""


def plot_scores(facts: RunFacts, path: Path) -> None:
    """Draw the distribution of probabilities, or of scores if the run has no probabilities.

    Raises
    ------
    RunError
        If the file cannot be written.
    """
    column = "probability" if facts.records.calibrated else "score"
    counts = histogram(facts.records, column) or {}
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    edges = np.linspace(0, 1, BINS + 1)
    bottom = np.zeros(BINS)
    for call in ("non-viral", "ambiguous", "viral"):
        heights, colour = np.asarray(counts.get(call, [0] * BINS)), COLOURS[call]
        label = f"{call} ({int(heights.sum()):,})"
        axes.bar(
            edges[:-1], heights, 1 / BINS, bottom, align="edge", color=colour, label=label, lw=0
        )
        bottom += heights
    if facts.drawn_threshold is not None:
        label = "threshold of viral calls"
        axes.axvline(facts.drawn_threshold, color="black", lw=0.8, ls="--", label=label)
    axes.spines[["top", "right"]].set_visible(False)
    # matplotlib leaves no margin above stacked bars.
    axes.set(xlim=(0, 1), ylim=(0, 1.05 * max(1.0, bottom.max())))
    axes.set(xlabel=column, ylabel="sequences", title=_plain(facts.sample))
    axes.legend(frameon=False, fontsize="small")
    _save(figure, path)


def plot_record(
    facts: RunFacts, record: int, path: Path, place: tuple[int | None, int | None] = (None, None)
) -> None:
    """Draw the scores of the windows of one record along it, with its call and regions.

    Parameters
    ----------
    record
        Number of the row in predictions.tsv, from 0.
    place
        First and last base to draw, from 1; None: those of the record.

    Raises
    ------
    UsageError
        If the first base is not before the last one, or behind the record.
    StoreError
        If windows.tsv is missing or damaged.
    RunError
        If the file cannot be written.
    """
    row = record_rows(facts, np.array([record]))
    length = row["length"][0]
    first, last = place[0] or 1, min(place[1] or length, length)
    if first >= last:
        raise UsageError(f"nothing to draw from base {first:,} to {last:,} of {length:,}")
    (track,) = read_tracks(facts.windows, facts.records, np.array([record]))
    figure = Figure(figsize=(9.0, 2.8), layout="constrained")
    axes = figure.subplots()
    shown = (np.asarray(track["end"]) >= first) & (np.asarray(track["start"]) <= last)
    _draw_windows(axes, {name: np.asarray(values)[shown] for name, values in track.items()})
    strips = regions_by_record(facts.regions).get((row["file"][0], row["record"][0]), ())
    for low, high, state in strips:
        colour = COLOURS.get(state, COLOURS["not_scored"])
        axes.barh(_STRIP, high - low + 1, 0.12, low - 1, color=colour, lw=0)
    kind = "score" if row["probability"][0] is None else "probability"
    value = "NA" if row[kind][0] is None else f"{row[kind][0]:.4f}"
    call = row["call"][0].replace("_", " ")
    name = row["seq_name"][0]
    gap = "\n" if len(name) > _LONG_NAME else ": "
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(
        xlim=(first - 1, last),
        ylim=(-0.24 if strips else 0, 1),
        xlabel="position (bases)",
        ylabel="window score",
        yticks=(*([_STRIP] if strips else []), 0, 0.5, 1),
        yticklabels=(*(["regions"] if strips else []), "0", "0.5", "1"),
        title=f"{_plain(name[:80])}{gap}{call}, {kind} {value}",
    )
    axes.axhline(_MIDDLE, color="black", lw=0.6, ls=":")
    axes.axhline(0, color="black", lw=0.6)
    axes.xaxis.set_major_formatter(lambda at, _: f"{at:,.0f}")
    _save(figure, path)


def _draw_windows(axes: Any, track: Block) -> None:  # noqa: ANN401 - of matplotlib
    """Draw a bar for each scored window, up to the start of the next, which it may overlap."""
    starts, ends, scores = (np.asarray(track[name]) for name in ("start", "end", "score"))
    ends = np.append(np.minimum(ends[:-1], starts[1:] - 1), ends[-1:])
    known = np.isfinite(scores)
    colours = np.where(scores[known] >= _MIDDLE, COLOURS["viral"], COLOURS["non-viral"])
    starts = starts[known] - 1
    axes.bar(
        starts, scores[known], ends[known] - starts, align="edge", color=colours.tolist(), lw=0
    )


def _plain(name: str) -> str:
    r"""Return a name without the marks of formulas: matplotlib reads text between dollar signs."""
    return name.replace("$", r"\$")


def _save(figure: Figure, path: Path) -> None:
    """Write the figure atomically; equal data give equal bytes."""
    ending = path.suffix.lower().removeprefix(".")
    changing = {"svg": "Date", "pdf": "CreationDate", "png": "Software"}[ending]
    with (
        mpl.rc_context({"svg.hashsalt": "virnucpro"}),
        write_output(path) as stream,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box is drawn instead
        figure.savefig(stream, format=ending, dpi=_DPI, metadata={changing: None})
