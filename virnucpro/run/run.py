"""An open run, the object that every step of a run gets, and what it has come to."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, Self

from virnucpro.arrays import IntArray
from virnucpro.classifier.decision import RecordQuality
from virnucpro.classifier.prevalence import Expectation
from virnucpro.classifier.quality import record_quality
from virnucpro.durable import sync_folder
from virnucpro.errors import IndexFormatError, RunError, UsageError
from virnucpro.folder_lock import Use, folder_lock
from virnucpro.launch_dir import OWN_NAMES, is_launch
from virnucpro.run.input_check import is_unchanged
from virnucpro.run.manifest import (
    Launch,
    Manifest,
    read_manifest,
    with_attempts,
    write_launch,
    write_manifest,
)
from virnucpro.run_dir import RunDirectory, is_run
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds


class RunQuality:
    """The composition of all records of an index: `get` computes it at the first call."""

    def __init__(self, index: SequenceIndex) -> None:
        self._index = index
        self._quality: RecordQuality | None = None

    def get(self) -> RecordQuality:
        """Return the composition, as `record_quality`."""
        if self._quality is None:
            self._quality = record_quality(self._index)
        return self._quality

    @contextmanager
    def computed_meanwhile(self, then: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Compute the composition, then call `then`, in a thread while the block runs.

        An error in the block ends the thread. An error of `then` is ignored: who needs its effect
        meets the error again.
        """
        stopped = Event()
        with ThreadPoolExecutor(1, "virnucpro-quality") as pool:
            quality = pool.submit(record_quality, self._index, stopped.is_set)
            pool.submit(then)
            try:
                yield
                self._quality = quality.result()
            finally:
                stopped.set()
                pool.shutdown(cancel_futures=True)


def run_lock(
    run: RunDirectory, *, lock: bool = True, use: Use = Use.ALONE
) -> AbstractContextManager[None]:
    """Return a context manager that holds the lock of a run; with ``lock=False``, no lock.

    Raises
    ------
    RunLockedError
        If another process holds a lock that excludes this use.
    OSError
        If the folder is not writable.
    """
    advice = f"Wait for that process (see virnucpro status {run.root}), or choose another folder."
    return folder_lock(run.lock, advice, held=lock, use=use)


def refuse_run_files(output: Path, places: Iterable[Path], own: str | None = None) -> None:
    """Refuse to replace a file or an input of a run, or a file of a launch.

    Parameters
    ----------
    output
        The file to write; it may be missing.
    places
        Files and folders of runs. A run or launch around `output` counts, too.
    own
        Name of the file of a run that may be written.

    Raises
    ------
    UsageError
        If `output` is a file of such a run with another name, is in a folder of it, is one of its
        inputs, or is a file of a launch.
    """
    target = output.absolute().parent.resolve() / output.name
    around = [target.parent, *(path.absolute().resolve() for path in places)]
    is_own = False  # a report of the run itself, which may lie in a folder of another run
    for folder in dict.fromkeys(folder for path in around for folder in (path, *path.parents)):
        inside = target.relative_to(folder).parts if folder in target.parents else ()
        if is_launch(folder) and not OWN_NAMES.isdisjoint(inside[:1]):
            raise UsageError(f"{output} is a file of a launch, {folder}; choose another one")
        run = RunDirectory(folder)
        with suppress(OSError):  # unreadable: a file with a name of a run may be one
            if not is_run(folder):
                continue
        is_own |= target == folder / (own or "")
        if run.owns(output) and not is_own:
            example = f", such as {folder / own}" if own else ""
            raise UsageError(
                f"{output} is a file of a run, {folder}; choose another output file{example}"
            )
        if output.exists() and _is_input(output, run):
            raise UsageError(
                f"{output} is an input of the run {folder}, and would be replaced; choose another "
                "output file"
            )


def _is_input(path: Path, run: RunDirectory) -> bool:
    """Return whether a file is an input of a run: by its path, or unchanged at another path."""
    with suppress(RunError, OSError):  # the inputs are unknown, or not to be seen by this user
        manifest = read_manifest(run)
        named = (Path(file.path) for file in manifest.inputs)
        same = any(name.exists() and path.samefile(name) for name in named)
        return same or any(is_unchanged(str(path), stamp) for stamp in manifest.input_stamps)
    return False


@dataclass(slots=True)
class Run:
    """An open run: its manifest and index are read once, and every step of the run gets them.

    Attributes
    ----------
    paths
        Paths of the files in the run folder.
    bounds
        (units + 1,) int64: the first row of each unit, then the total number of rows.
    quality
        Composition of the records.
    """

    paths: RunDirectory
    manifest: Manifest
    index: SequenceIndex
    bounds: IntArray
    quality: RunQuality

    @classmethod
    def of(cls, paths: RunDirectory, manifest: Manifest, index: SequenceIndex) -> Self:
        """Return the run with this manifest and index."""
        bounds = unit_bounds(index.row_lengths, manifest.units["rows"], manifest.units["positions"])
        return cls(paths, manifest, index, bounds, RunQuality(index))

    @classmethod
    def open(
        cls, paths: RunDirectory, manifest: Manifest | None = None, *, verify: bool = True
    ) -> Self:
        """Open an existing run without a change to its files.

        Parameters
        ----------
        manifest
            Content of run.json; None to read it.
        verify
            Whether to compare the index with its checksums: a flipped bit changes results.

        Raises
        ------
        NotARunError, IndexFormatError, RunError
            If the folder is not a run or is damaged, or the index belongs to another run.
        """
        manifest = manifest or read_manifest(paths)
        index = SequenceIndex.open(paths.index)
        if verify:
            index.verify()
        if index.fingerprint != manifest.index_fingerprint:
            raise IndexFormatError(
                f"{paths.index} is the index of another run (fingerprint {index.fingerprint[:12]}, "
                f"but run.json has {manifest.index_fingerprint[:12]}). Restore the index from "
                "a copy, or start the run anew in another folder."
            )
        return cls.of(paths, manifest, index)

    @property
    def n_units(self) -> int:
        """Return the number of units."""
        return len(self.bounds) - 1

    @property
    def stores_vectors(self) -> bool:
        """Return whether the run has an embeddings.h5."""
        return bool(self.manifest.parameters["embeddings"] != "none")

    def n_rows_of(self, units: Iterable[int]) -> int:
        """Return the number of rows of some units."""
        return sum(int(self.bounds[unit + 1] - self.bounds[unit]) for unit in units)

    def update(self, manifest: Manifest) -> None:
        """Replace the manifest, in run.json and in memory."""
        self.manifest = write_manifest(self.paths, manifest)

    def of_attempt(self, task: int) -> "Run":
        """Return the run as a new attempt of a task sees it; run.json is not its file."""
        return replace(self, paths=self.paths.new_attempt(task))

    def record(self, launch: Launch) -> None:
        """Record a launch in run.json, or that of an attempt in its own file."""
        if self.paths.attempt:
            self.manifest = self.manifest.with_launch(launch)
            write_launch(self.paths, launch)
        else:
            self.update(self.manifest.with_launch(launch))


@contextmanager
def reopened(paths: RunDirectory, *, lock: bool = True) -> Iterator[Run]:
    """Yield an existing run, without reading its inputs; hold the run's lock for tables.

    Tasks may add segments meanwhile. Temporary files of killed processes are removed, as by a
    resume: they may be large tables. With ``lock=False`` no lock is held; only tasks may write in
    the folder meanwhile.

    Raises
    ------
    NotARunError, IndexFormatError, RunLockedError
        If the folder is not a run, is damaged, or another process works in it.
    """
    manifest = read_manifest(paths)
    with run_lock(paths, lock=lock, use=Use.TABLES):
        paths.remove_unfinished()
        if lock:
            paths.remove_unfinished_of_tasks()
        yield opened(paths, manifest)


def put_index_in_place(run: RunDirectory) -> None:
    """Give the index of a new run its place in the folder; the run is complete then."""
    run.next_index.rename(run.index)
    sync_folder(run.machine)
    sync_folder(run.root)


def opened(paths: RunDirectory, manifest: Manifest) -> Run:
    """Open a locked run; complete its creation if a kill interrupted it before the last rename."""
    if paths.next_index.exists() and not paths.index.exists():
        index = SequenceIndex.open(paths.next_index)
        if index.fingerprint == manifest.index_fingerprint:
            put_index_in_place(paths)
    return Run.open(paths, with_attempts(paths, manifest))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts of a run's results.

    Attributes
    ----------
    records
        Number of records by status.
    calls
        Number of records by call; empty for a run without a classifier.
    units
        Number of units.
    rows_missing, rows_quarantined
        Number of missing rows, and of quarantined rows. A resume computes missing rows, but not
        quarantined rows.
    rows_overflowing
        Number of quarantined rows whose vectors are too large for fp16; a new run with
        ``--embeddings fp32`` can store these vectors.
    rule
        Rule of the calls in words; "" for a run without a classifier.
    proviruses
        Number of provirus candidates: records with viral and non-viral stretches.
    inserted
        Number of viral stretches of these records.
    expectation
        Assumed prevalence and expected number of false calls; None without a calibration or a
        scored record.
    by_length
        Number of records, and of viral records, by length class (`LENGTH_CLASSES`).
    files
        Paths of the outputs for people, the most important first.
    precision
        Precision of the run.
    recomputed
        Number of rows that were recomputed one by one at fp32, because vectors or scores from a
        batch were NaN or infinite. Rows of failed ranks are not counted.
    warnings
        Warnings about the inputs and about records without a score.
    """

    root: Path
    records: dict[str, int]
    calls: dict[str, int]
    units: int
    rows_missing: int
    rows_quarantined: int
    rows_overflowing: int
    rule: str
    by_length: dict[str, tuple[int, int]]
    files: tuple[Path, ...]
    precision: str
    recomputed: int
    expectation: Expectation | None = None
    proviruses: int = 0
    inserted: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether every row of the run has a result."""
        return not (self.rows_missing or self.rows_quarantined)

    @property
    def summary(self) -> dict[str, Any]:
        """Return the counts as JSON, for run.json and for the table of a launch."""
        expected = self.expectation
        by_length = {
            f"{what}_{name.replace(' ', '_')}": number
            for name, pair in self.by_length.items()
            for what, number in zip(("sequences", "viral"), pair, strict=True)
        }
        return {
            "sequences": sum(self.records.values()),
            "viral": self.calls.get("viral", 0),
            "rule": self.rule,
            "prevalence": expected and expected.prevalence.value,
            **by_length,
            "proviruses": self.proviruses,
            "complete": self.complete,
            "details": {
                "records": self.records,
                "calls": self.calls,
                "expected_false": expected and round(expected.false, 1),
                "rows_missing": self.rows_missing,
                "rows_quarantined": self.rows_quarantined,
                "recomputed": self.recomputed,
                "warnings": list(self.warnings),
            },
        }
