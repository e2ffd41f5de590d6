"""Measure time, memory and disk of the rows of an index, assigned in memory or on disk.

The items are synthetic: one window of one item per record, random digests, 57 % of the items
repeat an earlier one, lengths of 30 to 166 residues.

    python scripts/bench/index_rows.py WAY [--items 10000000] [--block N] [--folder DIR]
"""

import argparse
import hashlib
import tempfile
import threading
from pathlib import Path

import numpy as np
from aggregate import timed

from virnucpro.sequences import rows
from virnucpro.sequences.columns import TEMPORARY_COLUMNS, ColumnWriter, column_path

CHUNK = 1 << 20


def main() -> None:
    """Write the columns of items, assign their rows, print the cost and a digest of the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", choices=("memory", "disk"))
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--block", type=int, default=rows.BLOCK_ITEMS, help="items of a block")
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary one")
    given = parser.parse_args()
    rows.IN_MEMORY_ITEMS = given.items if given.way == "memory" else 0
    rows.BLOCK_ITEMS = given.block
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        write_items(folder, given.items)
        before = size(folder)
        largest = [0]
        ended = threading.Event()
        thread = threading.Thread(target=watch_size, args=(folder, largest, ended))
        thread.start()
        try:
            wall, cpu, memory = timed(lambda: rows.write_rows(folder))
        finally:
            ended.set()
            thread.join()
        print(
            f"{given.way}, {given.items:,} items, blocks of {given.block:,}: {wall:.1f} s, "
            f"{cpu:.1f} s of CPU, {memory:,.0f} MiB = {memory * 2**20 / given.items:.0f} bytes an "
            f"item; disk {(largest[0] - before) / given.items:.0f} bytes an item above its input"
        )
        content = hashlib.sha256()
        for column in rows.ROW_COLUMNS:
            with column_path(folder, column).open("rb") as stream:
                content.update(hashlib.file_digest(stream, "sha256").digest())
        print(f"SHA-256 of the row columns: {content.hexdigest()}")


def write_items(folder: Path, n_items: int) -> None:
    """Write the columns of items, block by block."""
    dice = np.random.default_rng(0)
    writers = {name: ColumnWriter(folder, name) for name in (*TEMPORARY_COLUMNS, "item_frame")}
    for first in range(0, n_items, CHUNK):
        places = np.arange(first, min(first + CHUNK, n_items))
        # Item i has the content of a number up to n / 2, spread over 64 bits by odd factors.
        content = dice.integers(0, n_items // 2, len(places)).astype(np.uint64)
        odd = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
        length = 30 + content % np.uint64(137)
        writers["item_digest"].append((content[:, None] * odd).reshape(-1))
        writers["item_length"].append(length)
        writers["item_frame"].append(places % 6)
        writers["item_first_base"].append(600 * places + places % 11)
        writers["item_span"].append(3 * length)
    for writer in writers.values():
        writer.close()


def size(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # a temporary file, read and deleted
    return total


def watch_size(folder: Path, largest: list[int], ended: threading.Event) -> None:
    """Keep the largest size of a folder in `largest` until the event."""
    while not ended.wait(0.2):
        largest[0] = max(largest[0], size(folder))


if __name__ == "__main__":
    main()
