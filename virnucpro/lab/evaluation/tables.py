"""Write fragments, figures and differences as FASTA, TSV and JSON."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from virnucpro.console import printable
from virnucpro.durable import write_bytes
from virnucpro.lab.evaluation.comparison import Difference, Row
from virnucpro.lab.evaluation.fragments import Fragment
from virnucpro.lab.evaluation.labels import CLASS_NAMES

_NA: Final = "NA"
_FRAGMENT_COLUMNS: Final = (
    *("seq_name", "label", "kingdom", "group", "length"),
    *("file", "record", "start", "end", "strand"),
)


def fasta_bytes(sequences: Iterable[tuple[Fragment, bytes]]) -> bytes:
    """Return fragments as FASTA, one line per sequence; a header is the name only."""
    return b"".join(b">%b\n%b\n" % (fragment.name.encode(), bases) for fragment, bases in sequences)


def fragments_table(fragments: Iterable[Fragment]) -> bytes:
    """Return the labels and origins of fragments as tab-separated text."""
    lines = ["\t".join(_FRAGMENT_COLUMNS)]
    for fragment in fragments:
        cells = asdict(fragment) | {"seq_name": fragment.name, "label": CLASS_NAMES[fragment.viral]}
        lines.append("\t".join(printable(str(cells[name])) for name in _FRAGMENT_COLUMNS))
    return ("\n".join(lines) + "\n").encode()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON atomically; a value that is not finite becomes null."""
    text = json.dumps(as_json(content), indent=2, allow_nan=False)
    write_bytes(path, f"{text}\n".encode())


def as_json(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return `value` with null instead of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value


def write_evaluation(path: Path, rows: Sequence[Row]) -> None:
    """Write evaluation.tsv: a row per tool, length, and kingdom or group."""
    lines = []
    for row in rows:
        cells = {name: getattr(row, name) for name in row._fields[:5]}
        cells |= {name: str(count) for name, count in row.counts.items()}
        for name, value in row.values.items():
            bounds = row.intervals.get(name, (math.nan, math.nan))
            names = (name, f"{name}_low", f"{name}_high")
            cells |= zip(names, map(_decimal, (value, *bounds)), strict=True)
        lines.append(cells | {"note": row.note or _NA})
    _write_table(path, lines)


def write_paired(path: Path, differences: Sequence[Difference]) -> None:
    """Write paired.tsv: a row per pair of tools, length, kingdom and figure."""
    lines = []
    for difference in differences:
        cells = {name: getattr(difference, name) for name in difference._fields[:6]}
        numbers = (difference.value, *(difference.interval or (math.nan, math.nan)))
        cells |= zip(("difference", "low", "high"), map(_decimal, numbers), strict=True)
        lines.append(cells | {"note": difference.note or _NA})
    _write_table(path, lines)


def _write_table(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def _decimal(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else _NA
