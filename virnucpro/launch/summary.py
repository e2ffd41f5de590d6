"""The table of a launch: a row for each file, for people, for programs, and as a file of both."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from virnucpro.durable import write_file
from virnucpro.launch.results import FileResult, shown

__all__ = [
    "JSON_NAME",
    "LOCK_NAME",
    "LOGS_NAME",
    "TSV_NAME",
    "readable",
    "table",
    "write_summary",
]

TSV_NAME = "launch.tsv"
JSON_NAME = "launch.json"
LOGS_NAME = "launch.logs"
LOCK_NAME = "launch.lock"

_WIDEST = 60
"""Characters of a cell that a person sees."""

_SCALARS = (str, int, float, bool)

_OWN_COLUMNS = ("file", "status", "seconds", "gpu", "attempts", "error")


def table(results: Sequence[FileResult], input_dir: Path) -> list[list[str]]:
    """Make the rows, the header first: what is a scalar in the workers' results has a column.

    Files are named as they lie below `input_dir`. ``NA`` stands for what there is not.
    """
    fields = list(
        dict.fromkeys(
            name
            for one in results
            for name, value in one.result.items()
            if isinstance(value, _SCALARS)
        )
    )
    header = ["file", *_columns(fields), "status", "seconds", "gpu", "attempts", "error"]
    return [header, *(_row(one, fields, input_dir) for one in results)]


def _columns(fields: Sequence[str]) -> list[str]:
    """Name a column for each field: one that is called as another one is a ``result.``'s."""
    names: list[str] = []
    taken = set(_OWN_COLUMNS)
    for field in fields:
        name = _cell(field)
        while name in taken:
            name = f"result.{name}"
        taken.add(name)
        names.append(name)
    return names


def _row(one: FileResult, fields: Sequence[str], input_dir: Path) -> list[str]:
    values = [one.result.get(name) for name in fields]
    return [
        _cell(str(Path(one.file).relative_to(input_dir))),
        *(_cell(value if isinstance(value, _SCALARS) else None) for value in values),
        one.status.value,
        "NA" if one.seconds is None else f"{one.seconds:.2f}",
        _cell(one.gpu_id),
        str(one.attempts),
        _cell(one.error or None),
    ]


def _cell(value: object) -> str:
    """Write a value in one line without tabs."""
    if value is None:
        return "NA"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()) or "NA"


def readable(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Leave out columns with nothing in them, and shorten what is long: for a terminal."""
    columns = [
        [_shortened(cell) for cell in column]
        for column in zip(*rows, strict=True)
        if any(cell != "NA" for cell in column[1:])
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _shortened(text: str) -> str:
    text = shown(text)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def write_summary(
    output_dir: Path,
    rows: Sequence[Sequence[str]],
    results: Sequence[FileResult],
    facts: Mapping[str, Any],
    *,
    lasting: bool = True,
) -> None:
    """Write ``launch.tsv`` and ``launch.json``, each whole or not at all.

    Parameters
    ----------
    facts
        What there is to say of the whole launch.
    lasting
        Whether they are to survive a power cut.

    Raises
    ------
    OSError
        When one cannot be written.
    """
    content = {**facts, "files": [_plain(one) for one in results]}
    with write_file(output_dir / TSV_NAME, lasting=lasting) as stream:
        stream.writelines(b"\t".join(map(_encoded, row)) + b"\n" for row in rows)
    with write_file(output_dir / JSON_NAME, lasting=lasting) as stream:
        stream.write(json.dumps(content, indent=2, default=str).encode() + b"\n")


def _encoded(text: str) -> bytes:
    """Give the bytes of names back as they are in the folder, UTF-8 or not."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates that stand for no byte
        return text.encode("utf-8", "backslashreplace")


def _plain(one: FileResult) -> dict[str, Any]:
    return {
        "file": one.file,
        "status": one.status.value,
        "gpu": one.gpu_id,
        "seconds": None if one.seconds is None else round(one.seconds, 3),
        "attempts": one.attempts,
        "result": dict(one.result),
        "error": one.error,
        "details": one.details,
    }
