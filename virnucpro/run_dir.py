"""Paths and names of all files in a run folder. No other module defines such names."""

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from virnucpro.durable import (
    finished_name,
    first_inside,
    refuse_links,
    remove_unfinished,
    require_regular,
    sync_folder,
    temporary_beside,
)
from virnucpro.folder_lock import is_held
from virnucpro.joined import members

_LOGS = ("rank-*.log", "coordinator.log")
EXTRACTS = ("viral", "ambiguous", "non-viral", "not_scored")
"""Calls whose sequences can be written as FASTA or FASTQ."""

_SEGMENT = re.compile(r"unit-(\d{6,})\.h5")
_SHARD = re.compile(r"rank-\d{4,}")
_ATTEMPT = re.compile(r"\d{4,}\.[0-9a-f]{8}")
_LAUNCH = re.compile(r"\d{4,}\.json")


_MACHINE: Final = "run"
_RUN_JSON: Final = "run.json"


class RunDirectory:
    """Paths of all files of a run in the folder `root`.

    If several tasks compute the run, the object of one attempt of a task has the launches, shards
    and logs of this attempt, which no other process writes, and all other paths of the run.

    Parameters
    ----------
    attempt
        Name of an attempt of a task, such as ``0007.1c9e03ab``; "" for a process that computes the
        run alone.

    ::

        predictions.tsv (predict) or sequences.tsv (embed)
        viruses.fasta                   viral records, and viral stretches of proviruses; .fastq
                                        if all inputs are FASTQ; .gz if compressed
        ambiguous.fasta ...             records with other calls, as chosen; endings as above
        regions.tsv                     stretches of long records
        report.html                     report of the tables
        missing.tsv, quarantine.tsv     absent if empty
        prediction_results.txt, prediction_results_highestscore.csv, embeddings.h5
        embeddings.npy, .items.tsv, .parquet, .h5ad   copies of embeddings.h5, with --format
        embeddings.pt/                  a file per sequence, with --format pt

        tracks/windows.tsv              scores of the windows (predict)
        tracks/regions.bed, regions.gff3, scores.bedgraph   stretches and scores of long records
        tracks/genes.gff3               genes of viral records, with --genes

        run/run.json                    fingerprint, parameters, versions, timings
        run/status.json                 states of the workers, updated during the run
        run/run.lock                    locked by the process that writes the run
        run/index/                      the SequenceIndex
        run/index.next/                 index of a new run until it is complete
        run/launches/0001.json          plan of one launch: units to compute at its start
        run/shards/rank-0003/unit-000123.h5   one committed segment
        run/segments.bin                all segments of a complete run, in place of their files
        run/logs/rank-0003.log          output and event log of worker 3
        run/logs/coordinator.log        event log of the coordinator: starts, failures, restarts
        run/virnucpro*_mqc.json         report of the tables for MultiQC

        run/tasks/0007.1c9e03ab/        attempt of task 7: launches, shards and logs as above
        run/tasks/0007.1c9e03ab/launch.json   record of its launch, as those in run.json
    """

    def __init__(self, root: Path, attempt: str = "") -> None:
        self.root = root
        self.attempt = attempt
        self.machine = root / _MACHINE
        self.tasks = self.machine / "tasks"
        of_process = self.tasks / attempt if attempt else self.machine
        self.launches = of_process / "launches"
        self.launch_json = of_process / "launch.json"
        self.shards = of_process / "shards"
        self.logs = of_process / "logs"
        self.tracks = root / "tracks"
        self.lock = self.machine / "run.lock"
        self.index = self.machine / "index"
        self.next_index = self.machine / "index.next"
        self.segments_file = self.machine / "segments.bin"
        self.run_json = self.machine / _RUN_JSON
        self.status_json = self.machine / "status.json"
        self.coordinator_log = self.logs / "coordinator.log"
        self.predictions = root / "predictions.tsv"
        self.windows = self.tracks / "windows.tsv"
        self.sequences = root / "sequences.tsv"
        self.missing = root / "missing.tsv"
        self.quarantine = root / "quarantine.tsv"
        self.published_results = root / "prediction_results.txt"
        self.published_consensus = root / "prediction_results_highestscore.csv"
        self.embeddings = root / "embeddings.h5"
        self.npy = root / "embeddings.npy"
        self.npy_items = root / "embeddings.items.tsv"
        self.parquet = root / "embeddings.parquet"
        self.h5ad = root / "embeddings.h5ad"
        self.pt = root / "embeddings.pt"
        self.regions = root / "regions.tsv"
        self.regions_bed = self.tracks / "regions.bed"
        self.regions_gff3 = self.tracks / "regions.gff3"
        self.scores_bedgraph = self.tracks / "scores.bedgraph"
        self.genes = self.tracks / "genes.gff3"
        extracts = tuple(path for call in EXTRACTS for path in self.extracts(call))
        self.choices = (
            *(self.published_results, self.published_consensus),
            *(self.regions, self.regions_bed, self.regions_gff3, self.scores_bedgraph, self.genes),
            *extracts,
        )
        self.tables = (
            *(self.predictions, self.windows, self.sequences, self.missing, self.quarantine),
            *self.choices,
        )
        self.report = root / "report.html"
        self.multiqc = tuple(
            self.machine / f"virnucpro{end}_mqc.json" for end in ("", "_calls", "_scores")
        )
        self.reports = (self.report, *self.multiqc)
        self.results = (
            self.predictions,
            self.sequences,
            *extracts,
            self.regions,
            self.genes,
            self.embeddings,
            self.report,
            self.missing,
            self.quarantine,
        )
        self._files = (
            *(self.run_json, self.status_json, self.segments_file),
            *(*self.tables, self.embeddings),
            *(self.npy, self.npy_items, self.parquet, self.h5ad),
            *self.reports,
        )

    def extract(self, call: str, *, fastq: bool = False, compressed: bool = False) -> Path:
        """Return the path of the sequences with a call; those called viral are the viruses."""
        name = "viruses" if call == "viral" else call
        return self.root / f"{name}.{'fastq' if fastq else 'fasta'}{'.gz' * compressed}"

    def extracts(self, call: str) -> tuple[Path, ...]:
        """Return all paths that `extract` may return for a call; a run has one of these files."""
        return tuple(
            self.extract(call, fastq=fastq, compressed=compressed)
            for fastq in (False, True)
            for compressed in (False, True)
        )

    def launch(self, number: int) -> Path:
        """Return the path of the plan of launch `number`, counted from 1."""
        return self.launches / f"{number:04d}.json"

    def shard(self, rank: int) -> Path:
        """Return the shard of `rank`: the folder of the segments that it writes."""
        return self.shards / f"rank-{rank:04d}"

    def segment(self, rank: int, unit: int) -> Path:
        """Return the path of the segment of `unit` in the shard of `rank`."""
        return self.shard(rank) / f"unit-{unit:06d}.h5"

    def log(self, rank: int) -> Path:
        """Return the path of the log of `rank`, such as ``logs/rank-0003.log``."""
        return self.logs / f"rank-{rank:04d}.log"

    def segments(self) -> list[tuple[int, Path]]:
        """Return unit and path of each segment, sorted by unit, then path.

        These are the segments in the shards of the run and of all tasks, and the members of the
        joined file; if its end is damaged, the file itself, as unit -1. Of an attempt, they are its
        own.
        """
        return sorted(self._all_segments())

    def has_segments(self) -> bool:
        """Return whether the run has a segment, or the attempt of a task."""
        return next(self._all_segments(), None) is not None

    def _all_segments(self) -> Iterator[tuple[int, Path]]:
        processes = [self] if self.attempt else [self, *self.attempts()]
        for shard in (shard for process in processes for shard in process.shard_folders()):
            with os.scandir(shard) as entries:
                for entry in entries:
                    match = _SEGMENT.fullmatch(entry.name)
                    if match and entry.is_file():
                        yield int(match[1]), shard / entry.name
        if self.attempt:
            return
        try:
            for path in members(self.segments_file):
                yield int(path.stem.removeprefix("unit-")), path
        except FileNotFoundError:
            pass
        except OSError:  # who reads it as a segment meets the error
            yield -1, self.segments_file

    def shard_folders(self) -> list[Path]:
        """Return the shards that this process writes, sorted; those of other tasks do not count."""
        return [self.shards / name for name in _names(self.shards, _SHARD)]

    def copies(self, unit: int) -> list[Path]:
        """Return the sorted paths of the segments of `unit` in the `shard_folders`."""
        name = self.segment(0, unit).name
        return [path for shard in self.shard_folders() if (path := shard / name).is_file()]

    def attempts(self) -> list["RunDirectory"]:
        """Return the attempts of all tasks, sorted by task; empty if one process computes alone."""
        return [RunDirectory(self.root, name) for name in _names(self.tasks, _ATTEMPT)]

    def new_attempt(self, task: int) -> "RunDirectory":
        """Create the folder of a new attempt of a task, which no other process ever writes."""
        attempt = RunDirectory(self.root, f"{task:04d}.{secrets.token_hex(4)}")
        self.tasks.mkdir(exist_ok=True)
        attempt.shards.parent.mkdir()
        sync_folder(self.tasks)
        sync_folder(self.machine)
        return attempt

    def entries(self) -> list[str]:
        """Return the names in the run folder, except temporary files.

        The folder `machine` counts if it has more than a lock, `index.next` and temporary files.
        """
        own = {path.name for path in (*self._files, self.index, self.next_index, self.machine)}
        passing = {self.lock.name, self.next_index.name}

        def lasting(folder: Path) -> Iterator[Path]:
            entries = folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ()
            return (path for path in entries if finished_name(path) not in own)

        no_run = self.machine.is_dir() and passing.issuperset(
            path.name for path in lasting(self.machine)
        )
        return sorted(
            path.name for path in lasting(self.root) if not (no_run and path == self.machine)
        )

    def owns(self, path: Path) -> bool:
        """Return True if `path` has the name of a file of the run, or is in a folder of the run.

        The file may be missing. Symbolic links to folders are followed.
        """
        return self.first_owned([path]) is not None

    def first_owned(self, paths: Iterable[Path]) -> Path | None:
        """Return the first of the paths that the run owns, as `owns`; None if there is none."""
        return first_inside(paths, self.places())

    def places(self) -> tuple[Path, ...]:
        """Return all files and folders of the run, which may be missing or links."""
        return (self.machine, self.tracks, self.index, self.pt, *self._files)

    def require_regular_files(self) -> None:
        """Check that every existing file of the run is a regular file, and every folder its own.

        Raises
        ------
        RunError
            If a file is a pipe, socket, device or folder. Opening a named pipe would block.
            If a folder, a log or the lock is a symbolic link: the program would change or delete
            files outside of the run.
        """
        own = (*self._files, self.lock, *self.launches.glob("????.json"))
        logs = [path for pattern in _LOGS for path in self.logs.glob(pattern)]
        _refuse_links(self, self.lock)
        columns = (path for path in self.index.glob("*") if not path.is_dir())
        require_regular((*own, *logs, *columns))

    def require_own_attempts(self) -> None:
        """Raise RunError for a link in the place of a folder or log of a task, before a removal."""
        for attempt in self.attempts():
            _refuse_links(attempt)

    def clear(self) -> None:
        """Remove all files of the run except the lock and the next run's index.

        Files of other programs are kept, except in the index folder. run.json is removed first: if
        `clear` is interrupted, the folder has no run, and a new one can be created.
        """
        self.run_json.unlink(missing_ok=True)
        sync_folder(self.machine)
        for path in self._files:
            path.unlink(missing_ok=True)
        self.remove_history()
        self.remove_unit_files()
        _remove_members(self.tracks, "")
        for attempt in self.attempts():
            shutil.rmtree(self.tasks / attempt.attempt)
        _remove_members(self.tasks, "")
        shutil.rmtree(self.pt, ignore_errors=True)
        if self.index.exists() or self.index.is_symlink():
            self.index.rename(temporary_beside(self.index))
        self.remove_unfinished()

    def remove_history(self) -> None:
        """Remove states, plans and logs of the workers."""
        self.status_json.unlink(missing_ok=True)
        _remove_members(self.launches, "????.json")
        for pattern in _LOGS:
            _remove_members(self.logs, pattern)

    def remove_unit_files(self) -> None:
        """Remove the segments in the shards of this folder."""
        for shard in self.shard_folders():
            _remove_members(shard, "unit-*.h5")
        _remove_members(self.shards, "")

    def remove_unfinished(self) -> None:
        """Remove temporary files of killed processes: of the run, or of an attempt of a task.

        The caller must hold the run's lock, or be the attempt.
        """
        if not self.attempt:
            names = {path.name for path in (*self._files, self.index, self.next_index, self.pt)}
            for folder in (self.root, self.machine, self.tracks):
                remove_unfinished(folder, names.__contains__)
        shards = ((shard, _SEGMENT) for shard in self.shard_folders())
        for folder, name in (*shards, (self.launches, _LAUNCH)):
            if not folder.is_symlink():  # made after the check of `require_regular_files`
                remove_unfinished(folder, name.fullmatch)

    def remove_unfinished_of_tasks(self) -> None:
        """Remove temporary files and new runs of killed tasks, unless a task works.

        The caller holds the lock. Tasks that begin meanwhile are not in the list of attempts.
        """
        attempts = self.attempts()
        if attempts and not is_held(self.lock, by_tasks=True):
            self.require_own_attempts()
            for attempt in attempts:
                attempt.remove_unfinished()
            remove_unfinished(self.root, self.machine.name.__eq__)


def _refuse_links(run: RunDirectory, *others: Path) -> None:
    """Raise RunError if a folder or log of the run, or one of `others`, is a symbolic link."""
    folders = (run.machine, run.tracks, run.pt, run.next_index, run.tasks)
    of_process = (run.shards.parent, run.launches, run.shards, run.logs, *run.shard_folders())
    logs = (path for pattern in _LOGS for path in run.logs.glob(pattern))
    refuse_links((*others, *folders, *of_process, *logs))


def _names(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return the sorted names in `folder` that match `pattern`; empty if there is no folder."""
    try:
        return sorted(name for name in os.listdir(folder) if pattern.fullmatch(name))  # noqa: PTH208 - names only
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_members(folder: Path, pattern: str) -> None:
    """Remove the files in `folder` that match `pattern`, then the folder if it is empty."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in folder.glob(pattern) if pattern else ():
        path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def is_run(folder: Path) -> bool:
    """Return whether a folder has the run.json of a run of any version of this program.

    Raises
    ------
    OSError
        If the file exists and cannot be read.
    """
    path = folder / _MACHINE / _RUN_JSON
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else None
    except (FileNotFoundError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"schema_version", "fingerprint"} <= content.keys()
