"""Measure time and memory of the tables of a run, from a synthetic index and random scores.

Every window is one item. All records have the same bases, so the index is small on disk. With a
calibration, the bases of each record are examined.

    python scripts/bench/tables.py [--items 1000000] [--windows 5] [--calibrated]
"""

import argparse
import hashlib
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from aggregate import anonymous_memory, timed

from virnucpro.bundles.bundle import open_bundle
from virnucpro.pipeline.run.outputs import write_tables
from virnucpro.report.tables import TABLE_VERSION
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.columns import COLUMNS, Header, write_column, write_header
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec, InputFile
from virnucpro.store.coverage import Coverage

WINDOW = 500


def main() -> None:
    """Make an index, write the tables, print time and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--windows", type=int, default=5, help="windows per record")
    parser.add_argument("--calibrated", action="store_true", help="with mini's calibration")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run = RunDirectory(Path(name))
        run.index.mkdir()
        index = fake_index(run.index, given.items // given.windows, given.windows)
        virus = np.random.default_rng(0).random(index.n_rows, np.float32)
        coverage = Coverage(
            bounds=np.array([0, index.n_rows]),
            fingerprint="f",
            done={},
            missing=(),
            rejected=(),
            row_state=np.zeros(index.n_rows, np.uint8),
            scores=np.stack([1 - virus, virus], axis=1),
            reasons={},
        )
        del virus
        manifest = SimpleNamespace(
            command="predict",
            thresholds={"viral": 0.6, "non_viral": 0.4},
            calibration=open_bundle("mini").calibration if given.calibrated else None,
            calls={},
            extracts={},
            published_files=False,
            labels=("others", "virus"),
            classes=(),
            table_version=TABLE_VERSION,
        )
        session = SimpleNamespace(index=index, manifest=manifest, run=run)
        idle = anonymous_memory()
        wall, cpu, peak = timed(lambda: write_tables(run, session, coverage))
        print(
            f"{index.n_items:,} items, {index.n_records:,} records: {wall:.1f} s, {cpu:.1f} s of "
            f"CPU, {peak:,.0f} MiB, of which {idle:,.0f} MiB before, "
            f"{(peak - idle) * 2**20 / index.n_items:.0f} bytes an item"
        )
        for table in run.tables:
            if table.exists():
                with table.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                print(f"{table.name}: {table.stat().st_size:,} bytes, SHA-256 {digest[:12]}")


def fake_index(folder: Path, n_records: int, n_windows: int) -> SequenceIndex:
    """Write the columns of an index of equal records; each window is one item."""
    n_items = n_records * n_windows
    bases = np.random.default_rng(0).choice(list(b"ACGT"), WINDOW * n_windows).astype(np.uint8)
    names = "".join(f"{record:09}" for record in range(n_records)).encode()
    starts = np.tile(np.arange(n_windows) * WINDOW, n_records)
    columns = {
        "bases": bases,
        "names": names,
        "name_first": np.arange(0, len(names) + 1, 9),
        "record_lengths": np.full(n_records, len(bases)),
        "record_first_base": np.zeros(n_records + 1, np.int64),
        "record_status": np.zeros(n_records, np.uint8),
        "record_first_window": np.arange(0, n_items + 1, n_windows),
        "window_starts": starts,
        "window_ends": starts + WINDOW,
        "window_first_item": np.arange(n_items + 1),
        "item_frame": np.zeros(n_items, np.uint8),
        "item_row": np.random.default_rng(1).permutation(n_items),
        "row_lengths": np.full(n_items, WINDOW // 3, np.int32),
        "row_first_base": np.zeros(n_items, np.int64),
        "row_span": np.full(n_items, WINDOW, np.int32),
        "row_frame": np.zeros(n_items, np.uint8),
    }
    files = {name: write_column(folder, name, columns[name]) for name in COLUMNS}
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, WINDOW, "even", 11)
    write_header(folder, Header(spec, (InputFile("fake.fa", "0", n_records, 0),), files))
    return SequenceIndex.open(folder)


if __name__ == "__main__":
    main()
