"""The results of all parts: one JSON file that survives a restart, and its tables in Markdown."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Value: TypeAlias = str | float | int | bool | None
Figures: TypeAlias = dict[str, dict[str, Value]]
"""Row -> column -> value: a table."""

LOG = "gpu_check.log"
"""The output of all commands, in the folder of the results."""

_JSON = "gpu_check.json"

Status: TypeAlias = Literal["passed", "failed", "timeout", "not run"]


@dataclass(slots=True)
class PartResult:
    """The result of one part.

    Attributes
    ----------
    seconds
        Wall time.
    problems
        Failures and disagreements, a text each.
    """

    status: Status
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    figures: Figures = field(default_factory=dict)


@dataclass(slots=True)
class Results:
    """All results of one output folder.

    Attributes
    ----------
    machine
        Device, versions, sizes.
    """

    machine: dict[str, Value] = field(default_factory=dict)
    parts: dict[str, PartResult] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> "Results":
        """Read the results of an output folder; empty where there are none."""
        if not (folder / _JSON).is_file():
            return cls()
        content = json.loads((folder / _JSON).read_text())
        parts = {name: PartResult(**part) for name, part in content["parts"].items()}
        return cls(content["machine"], parts)

    def save(self, folder: Path) -> None:
        """Write gpu_check.json and gpu_check.md, each atomically."""
        _write(folder / _JSON, json.dumps(asdict(self), indent=2) + "\n")
        _write(folder / "gpu_check.md", "\n".join(self.lines()) + "\n")

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report in Markdown."""
        yield "## GPU check"
        yield ", ".join(f"{name} {text(value)}" for name, value in self.machine.items())
        rows = {
            name: {"result": part.status, "seconds": part.seconds, "problems": len(part.problems)}
            for name, part in self.parts.items()
        }
        yield from table("part", rows)
        for name, part in self.parts.items():
            if part.figures or part.problems:
                yield from ("", f"### {name}", *(f"- **problem:** {one}" for one in part.problems))
                yield from table("", part.figures)


def table(corner: str, rows: Mapping[str, Mapping[str, Value]]) -> Iterator[str]:
    """Yield the lines of a table whose columns are all columns of all rows."""
    if not rows:
        return
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    yield ""
    yield f"| {' | '.join([corner, *columns])} |"
    yield "|---" * (len(columns) + 1) + "|"
    for name, row in rows.items():
        yield f"| {' | '.join([name, *(text(row.get(column)) for column in columns)])} |"


def text(value: Value) -> str:
    """Format a value: large numbers without decimals, cosines with six, others with four digits."""
    if value is None:
        return ""
    if isinstance(value, float):
        if 0.99 <= value <= 1:
            return f"{value:.6f}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value).replace("|", "\\|")


def _write(path: Path, content: str) -> None:
    temporary = path.with_suffix(f"{path.suffix}.tmp")
    temporary.write_text(content)
    os.replace(temporary, path)  # noqa: PTH105 - the same, and known as atomic
