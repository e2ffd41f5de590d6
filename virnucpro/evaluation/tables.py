"""Write fragments, figures and differences as FASTA, TSV and JSON."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from virnucpro.console import printable
from virnucpro.durable import write_file
from virnucpro.evaluation.comparison import Comparison, Difference, Row
from virnucpro.evaluation.fragments import Fragment
from virnucpro.evaluation.labels import CLASS_NAMES
from virnucpro.evaluation.metrics import WITH_INTERVAL

__all__ = [
    "as_json",
    "fasta_bytes",
    "figures_of",
    "fragments_table",
    "sha256_of",
    "write_bytes",
    "write_evaluation",
    "write_json",
    "write_paired",
]

_NA: Final = "NA"
_READ_AT_ONCE: Final = 1 << 20
_FRAGMENT_COLUMNS: Final = (
    *("seq_name", "label", "kingdom", "group", "length"),
    *("file", "record", "start", "end", "strand"),
)


def fasta_bytes(sequences: Iterable[tuple[Fragment, bytes]]) -> bytes:
    """Return fragments as FASTA, one line per sequence; a header is the name only."""
    return b"".join(b">%b\n%b\n" % (one.name.encode(), bases) for one, bases in sequences)


def fragments_table(fragments: Iterable[Fragment]) -> bytes:
    """Return the labels and origins of fragments as tab-separated text."""
    lines = ["\t".join(_FRAGMENT_COLUMNS)]
    for one in fragments:
        cells = asdict(one) | {"seq_name": one.name, "label": CLASS_NAMES[one.viral]}
        lines.append("\t".join(printable(str(cells[name])) for name in _FRAGMENT_COLUMNS))
    return ("\n".join(lines) + "\n").encode()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_READ_AT_ONCE):
            digest.update(block)
    return digest.hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with write_file(path) as stream:
        stream.write(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON atomically; a value that is not finite becomes null."""
    text = json.dumps(as_json(content), indent=2, allow_nan=False)
    write_bytes(path, f"{text}\n".encode())


def as_json(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return `value` with null instead of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    return value


def write_evaluation(path: Path, rows: Sequence[Row]) -> None:
    """Write evaluation.tsv: a row per tool, length, and kingdom or group."""
    lines = []
    for row in rows:
        cells: dict[str, str] = {
            "tool": row.tool,
            "length": row.length,
            "label": row.label,
            "kingdom": row.kingdom,
            "group": row.group,
            **{name: str(count) for name, count in row.counts.items()},
            "unanswered": row.unanswered,
        }
        for name, value in row.values.items():
            cells[name] = _decimal(value)
            if name in WITH_INTERVAL:
                low, high = row.intervals.get(name, (math.nan, math.nan))
                cells |= {f"{name}_low": _decimal(low), f"{name}_high": _decimal(high)}
        cells["note"] = row.note or _NA
        lines.append(cells)
    _write_table(path, lines)


def write_paired(path: Path, differences: Sequence[Difference]) -> None:
    """Write paired.tsv: a row per pair of tools, length, kingdom and figure."""
    lines = []
    for one in differences:
        low, high = one.interval or (math.nan, math.nan)
        cells = {
            "tool": one.tool,
            "reference": one.reference,
            "length": one.length,
            "label": one.label,
            "kingdom": one.kingdom,
            "figure": one.figure,
            "difference": _decimal(one.value),
            "low": _decimal(low),
            "high": _decimal(high),
            "note": one.note or _NA,
        }
        lines.append(cells)
    _write_table(path, lines)


def _write_table(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def _decimal(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else _NA


def figures_of(comparison: Comparison) -> dict[str, Any]:
    """Return rows and differences as JSON values."""
    return {
        "rows": [asdict(row) for row in comparison.rows],
        "differences": [asdict(one) for one in comparison.differences],
    }
