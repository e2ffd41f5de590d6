"""The summary that ``virnucpro evaluate`` prints."""

from math import isnan
from typing import TYPE_CHECKING, Final

from virnucpro.cli.tables import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from virnucpro.evaluation.comparison import Comparison, Difference, Row

__all__ = ["as_text"]

_ALL: Final = "all"
_COLUMNS: Final = {
    "auroc": "AUROC [95 %]",
    "auroc_scored": "scored only",
    "auprc": "AUPRC",
    "recall_at_fpr_1": "recall at 1 % FP",
    "recall_at_fpr_5": "at 5 % FP",
    "f1": "F1",
    "mcc": "MCC",
    "fdr": "FDR",
    "ece": "ECE",
}
_COMPARED: Final = ("auroc", "recall_at_fpr_5", "mcc")
_MOST_KINGDOMS: Final = 20
_FEW: Final = 20
_RULES: Final = {"mean": "at the mean score", "lowest": "below all scores"}


def as_text(comparison: "Comparison", prevalence: float) -> str:
    """Return the figures of all groups, the share called viral by kingdom, and the differences."""
    rows = [row for row in comparison.rows if row.kingdom == _ALL]
    rules = {f"{row.tool} {_RULES[row.unanswered]}": None for row in rows}
    head = ("tool", "length", "viral", "non-viral", "scored", *_COLUMNS.values())
    about = (
        f"kingdoms, and groups within a kingdom, count equally; viral share {prevalence:g}; "
        f"fragments without a score: {', '.join(rules)}"
    )
    lines = [
        about,
        *aligned([head, *map(_figures, rows)], right=set(range(1, len(head)))),
    ]
    title = f"share called viral (number of fragments if below {_FEW}):"
    lines += ["", title, *_called(comparison.rows)]
    if comparison.differences:
        lines += ["", "difference [95 %]:", *_differences(comparison.differences)]
    notes = {f"no intervals at {row.length}: {row.note}" for row in rows if row.note}
    return "\n".join([*lines, *sorted(notes)])


def _figures(row: "Row") -> tuple[str, ...]:
    total = row.counts["n_viral"] + row.counts["n_non_viral"]
    cells = [_decimal(row.values[name]) for name in _COLUMNS]
    cells[0] += _interval(row.intervals.get("auroc"))
    return (
        row.tool,
        row.length,
        f"{row.counts['n_viral']:,}",
        f"{row.counts['n_non_viral']:,}",
        f"{(total - row.counts['n_without_score']) / total:.1%}",
        *cells,
    )


def _called(rows: "Sequence[Row]") -> list[str]:
    """Return a table with a line per tool and kingdom, and a column per length."""
    lengths = list(dict.fromkeys(row.length for row in rows))
    shares: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        if row.group != _ALL:
            continue
        for label, short in (("viral", "viral"), ("non-viral", "non_viral")):
            if row.label in (_ALL, label):
                cell = _share(row.values[f"{short}_as_viral"], row.counts[f"n_{short}"])
                shares.setdefault((row.tool, label, row.kingdom), {})[row.length] = cell
    kingdoms = {name[1:] for name in shares if name[2] != _ALL}
    shown = [name for name in shares if name[2] == _ALL or len(kingdoms) <= _MOST_KINGDOMS]
    tools = list(dict.fromkeys(row.tool for row in rows))
    shown.sort(key=lambda one: (tools.index(one[0]), one[1] != "viral", one[2] != _ALL, one[2]))
    lines = [
        (tool, label, kingdom, *(shares[tool, label, kingdom].get(one, "") for one in lengths))
        for tool, label, kingdom in shown
    ]
    head = ("tool", "label", "kingdom", *lengths)
    return aligned([head, *lines], right=set(range(3, len(head))))


def _differences(differences: "Sequence[Difference]") -> list[str]:
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for one in differences:
        if one.kingdom == _ALL and one.figure in _COMPARED:
            name = (f"{one.tool} - {one.reference}", one.length)
            text = f"{one.value:+.3f}" if not isnan(one.value) else "NA"
            cells.setdefault(name, {})[one.figure] = text + _interval(one.interval, "+")
    head = ("tools", "length", "AUROC", "recall at 5 % FP", "MCC")
    lines = [(*name, *(values[figure] for figure in _COMPARED)) for name, values in cells.items()]
    return aligned([head, *lines], right=set(range(1, len(head))))


def _interval(interval: tuple[float, float] | None, sign: str = "") -> str:
    if interval is None or isnan(interval[0]):
        return ""
    low, high = (format(value, f"{sign}.3f") for value in interval)
    return f" [{low}, {high}]"


def _decimal(value: float) -> str:
    return "NA" if isnan(value) else f"{value:.3f}"


def _share(value: float, count: int) -> str:
    return f"{value:.1%}" + (f" ({count})" if count < _FEW else "")
