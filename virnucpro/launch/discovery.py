"""Which files a pattern names, and what it names that is no file: nothing is passed over."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from virnucpro.errors import UsageError

__all__ = ["Found", "find_files"]

_ANY_DEPTH = "**"


@dataclass(frozen=True, slots=True)
class Found:
    """What lies below a folder.

    Attributes
    ----------
    files
        Regular files, also behind links.
    unusable
        Why each of the others cannot be used: broken links, devices and pipes of that name, and
        folders that cannot be listed.
    """

    files: set[Path] = field(default_factory=set)
    unusable: dict[Path, str] = field(default_factory=dict)


def find_files(folder: Path, pattern: str) -> Found:
    """Find what a pattern names; folders of that name do not count.

    Parameters
    ----------
    pattern
        As a shell's, relative to the folder, hidden files included; ``**/`` stands for any folders
        in between, links to folders not included.

    Raises
    ------
    UsageError
        When the pattern is empty, leads out of the folder, or has ``**`` beside other letters.
    """
    parts = Path(pattern).parts
    if not parts or Path(pattern).is_absolute() or ".." in parts:
        raise UsageError(
            f"pattern {pattern!r}: give one below the folder, such as '*.fa' or '**/*.fa.gz'."
        )
    if any(_ANY_DEPTH in part and part != _ANY_DEPTH for part in parts):
        raise UsageError(
            f"pattern {pattern!r}: '**' stands for folders and for nothing else; write '**/*.fa'."
        )
    found = Found()
    _search(folder, (*parts, "*") if parts[-1] == _ANY_DEPTH else parts, found)
    return found


def _search(folder: Path, parts: Sequence[str], found: Found) -> None:
    first, rest = parts[0], parts[1:]
    if first == _ANY_DEPTH:
        _search(folder, rest, found)
        for entry in _entries(folder, found):
            if entry.is_dir(follow_symlinks=False):
                _search(folder / entry.name, parts, found)
        return
    for entry in _entries(folder, found):
        if not fnmatchcase(entry.name, first):
            continue
        if not rest:
            _note(folder / entry.name, found)
        elif entry.is_dir():
            _search(folder / entry.name, rest, found)


def _entries(folder: Path, found: Found) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from list(entries)
    except OSError as error:
        found.unusable[folder] = f"the folder cannot be listed ({error.strerror})."


def _note(path: Path, found: Found) -> None:
    try:
        if path.is_file():
            found.files.add(path)
        elif path.is_symlink() and not path.exists():
            found.unusable[path] = "the link leads nowhere."
        elif not path.is_dir():
            found.unusable[path] = "neither a file nor a folder."
    except OSError as error:
        found.unusable[path] = f"it cannot be looked at ({error.strerror})."
