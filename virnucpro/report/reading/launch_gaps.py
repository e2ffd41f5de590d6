"""Files of a launch without a result, from its launch.json: what a report over its runs lacks."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro.console import encoded_file_name
from virnucpro.errors import StoreError
from virnucpro.launch_dir import JSON_NAME, TSV_NAME, FileStatus, read_table, read_tables

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
        If a table is damaged.
    OSError
        If a table cannot be read.
    """
    path = folder / JSON_NAME
    advice = "rerun the launch to rewrite it, or name the run folders below it"
    content = read_table(path, advice)
    entries: dict[str, tuple[str, FileStatus, str]] = {}
    # The tables of tasks may be newer than the joined one.
    for table in (content, *read_tables(folder, content.get("tasks") or 0).values()):
        for entry in table["files"]:
            try:
                name = str(Path(entry["file"]).relative_to(table["input_dir"]))
            except (LookupError, TypeError, ValueError) as error:
                raise StoreError(f"{path} is damaged ({error}): {advice}.") from error
            entries[name] = (name, entry["status"], entry["error"])
    gaps = []
    for name, status, why in entries.values():
        known = folder / name in reported
        if status.complete and not known:
            gaps.append((name, "missing", "its run folder has no tables"))
        elif not status.complete and not (status is FileStatus.PARTIAL and known):
            gaps.append((name, status, why))
    gaps.sort(key=lambda gap: gap[1] == FileStatus.LEFT)  # failures first
    return LaunchGaps(folder, entries.keys(), gaps)
