"""Regions of records, from BED files."""

from collections import defaultdict
from pathlib import Path

from virnucpro.errors import InputError
from virnucpro.lab.evaluation.fragments import Excluded


def read_regions(path: Path) -> Excluded:
    """Read a BED file: record name, 0-based start, end; further columns are ignored.

    Raises
    ------
    InputError
        If the file cannot be read, or a line has no valid region.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the regions cannot be read ({error})") from error
    regions: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith(("#", "track", "browser")):
            continue
        cells = line.split("\t")
        try:
            start, end = int(cells[1]), int(cells[2])
        except (IndexError, ValueError):
            start = end = -1
        if not 0 <= start < end:
            raise InputError(
                f"{path}, line {number}: not a region; give a tab-separated BED file with the "
                "columns record, start and end"
            )
        regions[cells[0]].append((start, end))
    return dict(regions)
