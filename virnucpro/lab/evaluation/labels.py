"""Labelled sequence files: a table of labels, or FASTA files per class."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro.console import printable, shortened
from virnucpro.errors import InputError, UsageError
from virnucpro.lab.evaluation.input_table import read_rows

CLASS_NAMES: Final = ("non-viral", "viral")
"""Output name of each class; the index is the class as bool."""
EVERY_SPLIT: Final = "all"
"""Value of ``--split`` that selects the rows of all splits."""

_LABELS: Final = {
    **dict.fromkeys(("viral", "virus", "1"), True),
    **dict.fromkeys(("non-viral", "nonviral", "non_viral", "host", "0"), False),
}
_REQUIRED: Final = ("file", "label", "group")
_OPTIONAL: Final = ("kingdom", "record", "class")
_COLUMNS: Final = (*_REQUIRED, *_OPTIONAL, "split")
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Source:
    """A labelled file, or one labelled record of a file.

    Attributes
    ----------
    path
        FASTA or FASTQ file.
    viral
        Class of the sequences.
    kingdom
        Part of the class whose parts count equally, such as ``plant``; the class name if unknown.
    group
        Unit of the bootstrap: sequences of one group are related, such as those of a virus family.
        None: every record is a group of its own.
    record
        Name of the labelled record; None for all records of the file.
    where
        Origin of the label, for error messages.
    source_class
        Class of the source for a classifier with several classes, such as ``rna_virus``; empty for
        the kingdom.
    """

    path: Path
    viral: bool
    kingdom: str
    group: str | None
    record: str | None
    where: str
    source_class: str = ""


def fasta_sources(viral: Sequence[Path], non_viral: Sequence[Path]) -> list[Source]:
    """Return the sources of FASTA files whose class is known.

    A file is a kingdom with the name of the file. Each record is a group.

    Raises
    ------
    UsageError
        If a class has no file.
    InputError
        If a file does not exist, or is given twice.
    """
    files = [(path, True) for path in viral] + [(path, False) for path in non_viral]
    sources = [
        Source(
            path,
            label,
            _stem(path),
            group=None,
            record=None,
            where=f"--{CLASS_NAMES[label]} {path}",
        )
        for path, label in files
    ]
    return _checked(sources, "the command line")


def read_labels(table: Path, split: str | None = None, *, one_class: bool = False) -> list[Source]:
    """Read a tab-separated table of labelled files.

    Parameters
    ----------
    table
        Columns ``file`` (relative to the table's folder), ``label``, ``group`` and, if needed,
        ``split``, ``kingdom``, ``class`` and ``record`` (the label is for this record only). Other
        columns are ignored.
    split
        Use only rows with this value in the column ``split``; ``all`` for all rows.
    one_class
        Whether all rows may have one label.

    Raises
    ------
    UsageError
        If the table has several splits and none is selected, or the selected split does not exist.
    InputError
        If a column or value is missing, a label is unknown, a file does not exist, a file or record
        is labelled twice, a class is empty, or a group has both labels.
    """
    rows = _of_split(_rows(table), table, split)
    sources = [_source(row, table, number) for number, row in rows]
    return _checked(sources, str(table), one_class=one_class)


def splits_in(table: Path) -> set[str]:
    """Return the values of the column ``split``; empty if there is no such column.

    Raises
    ------
    InputError
        If the table cannot be read, or a required column is missing.
    """
    return {row["split"] for _, row in _rows(table) if row.get("split")}


def _rows(table: Path) -> list[tuple[int, dict[str, str]]]:
    advice = (
        "Give a tab-separated table with the columns file, label, group, and optionally split, "
        "kingdom, record."
    )
    rows = read_rows(table, _REQUIRED, advice)[1]
    return [
        (number, {name: row[name].strip() for name in _COLUMNS if name in row})
        for number, row in rows
    ]


def _of_split(
    rows: list[tuple[int, dict[str, str]]], table: Path, split: str | None
) -> list[tuple[int, dict[str, str]]]:
    splits = sorted({row["split"] for _, row in rows if "split" in row})
    if split == EVERY_SPLIT or (split is None and len(splits) < 2):
        return rows
    known = ", ".join(name or "(empty)" for name in splits) or "none"
    if split is None:
        raise UsageError(
            f"{table} has several splits ({known}): select the one to evaluate with --split NAME, "
            f"or use --split {EVERY_SPLIT}"
        )
    selected = [(number, row) for number, row in rows if row.get("split") == split]
    if not selected:
        raise UsageError(f"{table} has no row of split {split!r}; its splits: {known}")
    return selected


def _source(row: dict[str, str], table: Path, number: int) -> Source:
    where = f"{table}, line {number}"
    cells = {name: row.get(name, "") for name in (*_REQUIRED, *_OPTIONAL)}
    for name in _REQUIRED:
        if not cells[name]:
            raise InputError(f"{where}: the cell of column {name!r} is empty")
    viral = _LABELS.get(cells["label"].lower())
    if viral is None:
        raise InputError(
            f"{where}: unknown label {shortened(cells['label'])!r}; use viral or non-viral"
        )
    return Source(
        path=table.parent / cells["file"],
        viral=viral,
        kingdom=printable(cells["kingdom"]) or CLASS_NAMES[viral],
        group=printable(cells["group"]),
        record=cells["record"] or None,
        source_class=cells["class"],
        where=where,
    )


def _checked(sources: list[Source], origin: str, *, one_class: bool = False) -> list[Source]:
    for viral in () if one_class else (True, False):
        if not any(source.viral is viral for source in sources):
            name = CLASS_NAMES[viral]
            message = f"{origin}: there are no {name} sequences; give at least one {name} file"
            raise UsageError(message)
    _check_files(sources)
    labels = defaultdict(set)
    for source in sources:
        if source.group is not None:
            labels[source.group].add(source.viral)
    if both := sorted(group for group, found in labels.items() if len(found) > 1):
        raise InputError(
            f"{origin}: {_some(both)}: the group has both labels. Groups keep related sequences "
            "together: give viral and non-viral sequences different groups."
        )
    return sources


def _check_files(sources: Iterable[Source]) -> None:
    seen: dict[Path, dict[str | None, str]] = defaultdict(dict)
    for source in sources:
        if not source.path.is_file():
            raise InputError(f"{source.where}: there is no file {source.path}; correct the path")
        labelled = seen[source.path.resolve()]
        both = None if source.record else next(iter(labelled), None)
        for former in (source.record, None, both):
            if former in labelled:
                what = f"record {shortened(source.record)} of " if source.record else ""
                raise InputError(
                    f"{source.where}: {what}{source.path} is already labelled in "
                    f"{labelled[former]}; label each file or record once"
                )
        labelled[source.record] = source.where


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(shortened, names[:_SHOWN])) + more


def _stem(path: Path) -> str:
    name = path.name
    for suffix in (".gz", ".bz2", ".xz", ".zst"):
        name = name.removesuffix(suffix)
    return printable(Path(name).stem)
