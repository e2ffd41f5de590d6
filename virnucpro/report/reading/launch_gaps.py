"""Files of a launch without a result, from its launch.json: what a report over its runs lacks."""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, Final

from virnucpro.console import encoded_file_name
from virnucpro.errors import StoreError
from virnucpro.launch_dir import JSON_NAME, TSV_NAME, task_tables

_COMPLETE: Final = {"done", "skipped"}
_NAMED: Final = 5
_LONGEST: Final = 240
_WORDS: Final = {"timed_out": "timed out", "left": "not done"}


@dataclass(frozen=True, slots=True)
class LaunchGaps:
    """Files of a launch whose results a report lacks.

    Attributes
    ----------
    folder
        Output folder of the launch.
    names
        Names of all files of the launch, relative to its input folder.
    files
        Name, status and error of each file without a result.
    """

    folder: Path
    names: Collection[str]
    files: Sequence[tuple[str, str, str]]

    def summary(self) -> str:
        """Return the number of these files, by status."""
        counts = Counter(_WORDS.get(status, status) for _, status, _ in self.files)
        parts = ", ".join(f"{number:,} {status}" for status, number in counts.most_common())
        return (
            f"{self.folder.name or self.folder}: {len(self.files):,} of {len(self.names):,} files "
            f"have no complete result ({parts}), and {TSV_NAME} lists them. This report lacks them."
        )

    def sentences(self) -> list[str]:
        """Return the summary, then the first files with their status and error."""
        named = [
            f"{encoded_file_name(name)}: {_WORDS.get(status, status)}"
            f"{f': {error[:_LONGEST]}' if error else ''}"
            for name, status, error in self.files[:_NAMED]
        ]
        more = len(self.files) - len(named)
        return [self.summary(), *named, *([f"{more:,} more files"] if more else [])]

    def folders(self) -> list[Path]:
        """Return the run folders of these files, which may not exist."""
        return [self.folder / name for name, _, _ in self.files]


def read_launch_gaps(folder: Path, reported: Collection[Path]) -> LaunchGaps:
    """Return the files of the launch in `folder` whose results are not complete.

    A finished file counts as missing if its run folder is not among `reported`. A partial file
    whose run is there is left to the run, which knows its gaps.

    Raises
    ------
    StoreError
        If the table is damaged.
    OSError
        If it cannot be read.
    """
    content = _content(folder / JSON_NAME)
    tables = [content]
    if count := content.get("tasks"):  # a joined table; those of its tasks may be newer
        tables += [_content(path) for path in task_tables(folder, count)]
    entries: dict[str, tuple[str, str, str]] = {}
    for table in tables:
        try:
            source = Path(table.get("input_dir", content["input_dir"]))
            for entry in table["files"]:
                name = str(Path(entry["file"]).relative_to(source))
                entries[name] = (name, str(entry["status"]), str(entry["error"] or ""))
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(folder / JSON_NAME, error) from error
    gaps = []
    for name, status, why in entries.values():
        known = folder / name in reported
        if status in _COMPLETE and not known:
            gaps.append((name, "missing", "its run folder has no tables"))
        elif status not in _COMPLETE and not (status == "partial" and known):
            gaps.append((name, status, why))
    gaps.sort(key=lambda gap: gap[1] == "left")  # failures first
    return LaunchGaps(folder, entries.keys(), gaps)


def _content(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        content["files"]
        index(content.get("tasks", 0))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error
    return content


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path} is damaged ({type(error).__name__}: {error}): rerun the launch to rewrite it, or "
        "name the run folders below it"
    )
