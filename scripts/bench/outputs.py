"""Measure time and memory of tables and report, from a synthetic index and random scores.

Every window is one item. All records have the same bases, so the index is small on disk. The run is
called by the rule and calibration of the bundle mini. Another process writes the report, so that
its memory is measured alone.

    python scripts/bench/outputs.py [--records 1000000] [--windows 1]
"""

import argparse
import hashlib
import tempfile
from pathlib import Path

import numpy as np
from aggregate import anonymous_memory, timed

from virnucpro.bundles.bundle import open_bundle
from virnucpro.run.calls import call_run
from virnucpro.run.manifest import Manifest, write_manifest
from virnucpro.run.outputs import write_tables
from virnucpro.run.run import Run
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.columns import COLUMNS, Header, write_column, write_header
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec, InputFile
from virnucpro.store.coverage import Coverage

WINDOW = 500


def main() -> None:
    """Make an index, write tables, print time and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--windows", type=int, default=1, help="windows per record")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run = RunDirectory(Path(name) / "run")
        run.index.mkdir(parents=True)
        measure_tables(run, fake_index(run.index, given.records, given.windows))


def measure_tables(run: RunDirectory, index: SequenceIndex) -> None:
    """Write the tables and run.json; print time, memory and sizes."""
    bundle = open_bundle("mini")
    virus = np.random.default_rng(0).beta(0.4, 0.6, index.n_rows).astype(np.float32)
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
    manifest = Manifest(
        command="predict",
        parameters={"bundle": "mini", "embeddings": "none", "window": WINDOW},
        inputs=index.inputs,
        index_fingerprint="0",
        counts={},
        units={"rows": index.n_rows, "positions": WINDOW * index.n_rows},
        labels=bundle.labels,
        thresholds=dict(bundle.thresholds),
        encoders=(),
        created="2026-01-01T00:00:00+00:00",
        calibration=bundle.calibration,
        tables_complete=True,
    )
    write_manifest(run, manifest)
    opened = Run.of(run, manifest, index)
    idle = anonymous_memory()
    wall, cpu, peak = timed(lambda: write_tables(run, manifest, call_run(opened, coverage)))
    print(
        f"tables of {index.n_items:,} items, {index.n_records:,} records: {wall:.1f} s, {cpu:.1f} "
        f"s of CPU, {peak:,.0f} MiB, of which {idle:,.0f} MiB before, "
        f"{(peak - idle) * 2**20 / index.n_items:.0f} bytes an item",
        flush=True,
    )
    for table in run.tables:
        if table.exists():
            with table.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            print(
                f"{table.name}: {table.stat().st_size:,} bytes, SHA-256 {digest[:12]}", flush=True
            )


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
        "record_first_piece": np.zeros(n_records + 1, np.int64),
        "window_starts": starts,
        "window_ends": starts + WINDOW,
        "window_first_item": np.arange(n_items + 1),
        "item_frame": np.zeros(n_items, np.uint8),
        "item_row": np.random.default_rng(1).permutation(n_items),
        "piece_row": np.zeros(0, np.int64),
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
