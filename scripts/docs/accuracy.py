"""Write the tables of docs/accuracy.md from the card of a bundle, between their marks.

virnucpro bundle show mini --json | python scripts/docs/accuracy.py docs/accuracy.md
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virnucpro.bundles.families import family_rows
from virnucpro.lab.training.new_bundle import rates, with_interval

Card = Mapping[str, Any]


def main() -> None:
    """Read the card from standard input and renew the tables of a page."""
    page = Path(sys.argv[1])
    page.write_text(renewed(page.read_text(), json.load(sys.stdin)))


def renewed(page: str, card: Card) -> str:
    """Return the page with the tables of this card.

    Raises
    ------
    ValueError
        If the page has not exactly one place for each table.
    """
    figures = card["metrics"]["cross_validation"]
    relatives = card["metrics"].get("relatives", {})  # mini 3.4 has none, and no families
    of_families = card["metrics"].get("families")
    for name, table in {
        "auroc": auroc(figures, relatives),
        **({"families": families(of_families)} if of_families else {}),
        "kingdoms": kingdoms(figures),
        "calls": called(figures, relatives),
        "fdr": false_discoveries(figures),
    }.items():
        marks = rf"(<!-- {name}: from the card -->\n).*?(<!-- end -->)"
        page, count = re.subn(marks, rf"\1\n{table}\n\2", page, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page has {count} places for the table {name}")
    return page


def auroc(figures: Card, relatives: Card) -> str:
    """Return the table of AUROC, by group and by relatives, and calibration error by length."""
    rows = [
        [
            _bases(bases),
            with_interval(one, "auroc"),
            with_interval(one, "calibration_error"),
            *([with_interval(relatives[bases], "auroc")] if relatives else []),
        ]
        for bases, one in figures.items()
    ]
    names = ["AUROC by group", "calibration error", "AUROC by relatives"]
    return _table(["bases", *(names if relatives else ["AUROC", names[1]])], rows)


def families(found: Card) -> str:
    """Return the table of all families."""
    header, *rows = family_rows(dict(found))
    return _table([name.replace("_", " ") for name in header], rows)


def kingdoms(figures: Card) -> str:
    """Return the table of AUROC against each kingdom by length."""
    names = sorted({name for one in figures.values() for name in one["auroc_of_kingdom"]})
    found = [
        [_figure(one["auroc_of_kingdom"].get(name), "auroc") for one in figures.values()]
        for name in names
    ]
    rows = [[name, *cells] for name, cells in zip(names, found, strict=True)]
    return _table(["kingdom", *map(_bases, figures)], rows)


def called(figures: Card, relatives: Card) -> str:
    """Return the table of the shares called viral at the default preset by length."""
    names = sorted({name for one in figures.values() for name in one["called_viral"]})
    names.sort(key=lambda name: name != "virus")
    rows = [
        [name, *(_share(one["called_viral"].get(name)) for one in figures.values())]
        for name in names
    ]
    if relatives:
        near = [_share(one["called_viral"]["virus"]) for one in relatives.values()]
        rows.insert(1, ["virus, as relatives", *near])
    return _table(["kingdom", *map(_bases, figures)], rows)


def false_discoveries(figures: Card) -> str:
    """Return the table of realised false discovery rates and recall by length."""
    rows = [[_bases(bases), *rates(one["realised_fdr"])] for bases, one in figures.items()]
    return _table(["bases", "half viral: rate", "recall", "a tenth viral: rate", "recall"], rows)


def _bases(text: str) -> str:
    return f"{int(text):,}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _figure(one: Card | None, name: str) -> str:
    return "-" if one is None else f"{one[name]:.2f}"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    main()
