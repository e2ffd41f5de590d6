"""Measure how long an aggregation needs to find the items of all units of a run.

The former way, a scan of all items for each part of 128 MB of vectors, is timed for three parts.

    python scripts/bench/row_items.py [--items 10000000] [--order random] [--dim 3328]
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from aggregate import ORDERS, IntArray, index_of, watched_memory

from virnucpro.store.row_items import RowItems

UNIT_ROWS = 8192
PART_BYTES = 128 << 20


def main() -> None:
    """Sort the items, find those of all units, print CPU seconds and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--order", choices=ORDERS, default="random")
    parser.add_argument("--dim", type=int, default=3328, help="dimension of the float16 vectors")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        order = ORDERS[given.order](given.items)
        item_row = index_of(order, Path(folder) / "order.npy").item_row
        del order
        with watched_memory() as peak:
            took = cpu_seconds(lambda: find_all(item_row, Path(folder)))
        print(f"{given.items:,} items, {given.order}: {took:.1f} s, at most {peak[0]:.0f} MiB")
        rows = PART_BYTES // (2 * given.dim)
        n_parts = -(-given.items // rows)
        scan = cpu_seconds(lambda: scan_parts(item_row, rows, 3)) / 3
        print(f"scan for one of {n_parts:,} parts: {scan:.3f} s, for all: {scan * n_parts:,.0f} s")


def cpu_seconds(action: Callable[[], object]) -> float:
    """Return the CPU seconds of an action."""
    started = time.process_time()
    action()
    return time.process_time() - started


def find_all(item_row: IntArray, folder: Path) -> None:
    """Sort the items once; find the items of each unit."""
    found = 0
    with RowItems(item_row, folder) as row_items:
        for first in range(0, len(item_row), UNIT_ROWS):
            rows = np.arange(first, min(first + UNIT_ROWS, len(item_row)))
            found += sum(len(items) for items, _ in row_items.of(rows))
    assert found == len(item_row)


def scan_parts(item_row: IntArray, rows: int, n_parts: int) -> None:
    """Find the items of the first parts by a scan of all items for each part."""
    for part in range(n_parts):
        places = np.full(len(item_row), -1, np.int32)
        places[part * rows : (part + 1) * rows] = np.arange(rows)
        for first in range(0, len(item_row), 1 << 16):
            np.flatnonzero(places[item_row[first : first + (1 << 16)]] >= 0)


if __name__ == "__main__":
    main()
