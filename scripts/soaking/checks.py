"""Checks of a run folder that read its files without the code that wrote them."""

import csv
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from virnucpro.joined import open_file
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex

_SCORE = 2e-4
"""Tolerance of scores: they are printed with four decimals."""

_VECTOR = 2e-3
"""Tolerance of vectors, relative to their length: float16 rounding. Rows differ by 0.18 or more."""

_BYTE_EQUAL = {".tsv", ".fasta", ".bed", ".gff3", ".bedgraph"}
"""Endings of the outputs that do not depend on the course of a run of mini."""

_SCORES = {"score", "probability", "fdr", "score1", "score2", "max_score_0", "max_score_1"}


class Rows(NamedTuple):
    """Counts of the index's rows in the first segment of each unit."""

    n: int
    lost: int
    doubled: int
    not_finite: int
    spare_segments: int


class Ledger:
    """Record of all committed segments; detects lost and rewritten ones."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._known: dict[Path, tuple[int, int, str]] = {}

    def problems(self) -> Iterator[str]:
        """Yield differences from the segments of the last call, and record the present ones."""
        now = {path: _identity(path) for _, path in self._run.segments()}
        joined = {path.name: found[2] for path, found in now.items() if not path.exists()}
        for path, identity in self._known.items():
            if path not in now and joined.get(path.name) == identity[2]:
                continue
            if path not in now:
                yield f"{path}: committed segment is missing"
            elif now[path] != identity:
                yield f"{path}: committed segment was rewritten"
        self._known = now

    def __len__(self) -> int:
        return len(self._known)


def _identity(path: Path) -> tuple[int, int, str]:
    """Return inode, time and SHA-256 of a segment, which may be a member of the joined file."""
    status = (path if path.exists() else path.parent).stat()
    with open_file(path) as stream:
        return status.st_ino, status.st_mtime_ns, hashlib.sha256(stream.read()).hexdigest()


def count_rows(run: RunDirectory) -> Rows:
    """Count each row of the index in the first segment (by path) of every unit."""
    n_rows = SequenceIndex.open(run.index).n_rows
    paths = run.segments()
    first = dict(reversed(paths))
    times = np.zeros(n_rows, np.int64)
    not_finite = 0
    for path in first.values():
        with open_file(path) as stream, h5py.File(stream) as file:
            np.add.at(times, file["rows"][:], 1)
            for name in ("embeddings", "scores"):
                not_finite += int((~np.isfinite(file[name][:])).any(axis=1).sum())
            not_finite += int((file["state"][:] != 0).sum())
    lost, doubled = int((times == 0).sum()), int((times > 1).sum())
    return Rows(n_rows, lost, doubled, not_finite, len(paths) - len(first))


def folder_problems(run: RunDirectory) -> Iterator[str]:
    """Yield the problems of a complete run's folder, those found by `verify_run` included."""
    for path in sorted(run.root.rglob("*.tmp")):
        yield f"{path}: temporary file left"
    for path in (run.missing, run.quarantine):
        if path.exists():
            yield f"{path}: unexpected in a complete run"
    for problem in verify_run(run).problems:
        yield f"{problem.path}: {problem.reason}"


def table_problems(undisturbed: RunDirectory, run: RunDirectory) -> Iterator[str]:
    """Compare all outputs with those of an undisturbed run."""
    for wanted in (
        undisturbed.predictions,
        undisturbed.windows,
        undisturbed.published_results,
        undisturbed.published_consensus,
    ):
        if not wanted.exists():  # bundles of windows have no published tables
            continue
        found = run.root / wanted.relative_to(undisturbed.root)
        for difference in _differences(wanted, found):
            yield f"{found}: {difference}"
    yield from _vector_problems(undisturbed.embeddings, run.embeddings)


def byte_problems(undisturbed: RunDirectory, run: RunDirectory) -> Iterator[str]:
    """Compare the bytes of all tables and sequences with those of an undisturbed run."""
    for wanted in sorted((*undisturbed.root.iterdir(), *undisturbed.tracks.iterdir())):
        found = run.root / wanted.relative_to(undisturbed.root)
        if wanted.suffix in _BYTE_EQUAL and not (
            found.is_file() and found.read_bytes() == wanted.read_bytes()
        ):
            yield f"{found}: other bytes than in the undisturbed run"


def _differences(wanted: Path, found: Path) -> Iterator[str]:
    ours, theirs = _table(found), _table(wanted)
    if len(ours) != len(theirs):
        yield f"{len(ours)} rows instead of {len(theirs)}"
    columns: Counter[str] = Counter()
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=False), 1):
        for column, value in other.items():
            if not _agree(column, mine[column], value):
                columns[column] += 1
                if columns[column] == 1:
                    yield f"row {number}, {column}: {mine[column]!r} instead of {value!r}"


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def _agree(column: str, mine: str, other: str) -> bool:
    if mine == other or column.startswith("best_"):  # windows with equal scores may swap
        return True
    numbers = column in _SCORES and "NA" not in {mine, other}
    return numbers and abs(float(mine) - float(other)) <= _SCORE


def _vector_problems(wanted: Path, found: Path) -> Iterator[str]:
    with h5py.File(wanted) as one, h5py.File(found) as other:
        if not np.array_equal(one["sequence_ids"][:], other["sequence_ids"][:]):
            yield f"{found}: names or their order differ"
            return
        left = one["embeddings"][:].astype(np.float64)
        right = other["embeddings"][:].astype(np.float64)
        apart = np.linalg.norm(left - right, axis=1) / np.linalg.norm(left, axis=1)
        # Windows without a frame are scored by mini, and have no vector.
        apart[np.isnan(left).all(axis=1) & np.isnan(right).all(axis=1)] = 0
        if not (apart <= _VECTOR).all():
            yield f"{found}: {np.sum(~(apart <= _VECTOR))} vectors differ, by up to {apart.max()}"
