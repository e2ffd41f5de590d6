"""The layout of a run: the only place that knows a path inside one."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from virnucpro.durable import finished_name, temporary_beside
from virnucpro.errors import RunError

__all__ = ["RunDirectory"]

_LOGS = ("rank-????.log", "rank-????.jsonl", "coordinator.*")
_SEGMENT = re.compile(r"unit-(\d{6,})\.h5")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Names everything that a run writes below one folder.

    ::

        run.json                        fingerprint, parameters, versions, timings
        status.json                     the ranks' states, rewritten while the run goes on
        run.lock                        held by the process at work
        index/                          the SequenceIndex
        index.next/                     that of the run which --force is about to put here
        launches/0001.json              the plan of one launch: the units missing when it began
        shards/rank-0003/unit-000123.h5 one committed segment
        logs/rank-0003.log              what the rank printed, and the steps that it took
        logs/coordinator.log            starts, failures, restarts: a line each
        logs/*.jsonl                    the same steps for programs, where that was asked for
        budgets.json                    how large batches may be, by device, as learnt
        predictions.tsv, windows.tsv (predict) or sequences.tsv (embed)
        missing.tsv, quarantine.tsv     only where there is something to list
        prediction_results.txt, prediction_results_highestscore.csv, embeddings.h5
    """

    root: Path

    @property
    def run_json(self) -> Path:
        return self.root / "run.json"

    @property
    def status_json(self) -> Path:
        return self.root / "status.json"

    @property
    def lock(self) -> Path:
        return self.root / "run.lock"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def launches(self) -> Path:
        return self.root / "launches"

    @property
    def shards(self) -> Path:
        return self.root / "shards"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def predictions(self) -> Path:
        return self.root / "predictions.tsv"

    @property
    def windows(self) -> Path:
        return self.root / "windows.tsv"

    @property
    def sequences(self) -> Path:
        return self.root / "sequences.tsv"

    @property
    def missing(self) -> Path:
        return self.root / "missing.tsv"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine.tsv"

    @property
    def published_results(self) -> Path:
        return self.root / "prediction_results.txt"

    @property
    def published_consensus(self) -> Path:
        return self.root / "prediction_results_highestscore.csv"

    @property
    def embeddings(self) -> Path:
        return self.root / "embeddings.h5"

    @property
    def budgets(self) -> Path:
        return self.root / "budgets.json"

    def launch(self, number: int) -> Path:
        """Name the plan of the `number`-th launch, counted from 1."""
        return self.launches / f"{number:04d}.json"

    def shard(self, rank: int) -> Path:
        """Name the folder of all segments that `rank` wrote."""
        return self.shards / f"rank-{rank:04d}"

    def segment(self, rank: int, unit: int) -> Path:
        """Name the segment of `unit` in the shard of `rank`."""
        return self.shard(rank) / f"unit-{unit:06d}.h5"

    def log(self, rank: int) -> Path:
        """Name the log of `rank`."""
        return self.logs / f"rank-{rank:04d}.log"

    def steps(self, rank: int | None, suffix: str) -> Path:
        """Name the log of the steps that `rank` took, or the coordinator where it is None."""
        name = "coordinator" if rank is None else self.log(rank).stem
        return self.logs / f"{name}.{suffix}"

    def segments(self) -> list[tuple[int, Path]]:
        """List ``(unit, path)`` of every segment file in every shard, by unit, then by path."""
        matches = (
            (_SEGMENT.fullmatch(path.name), path) for path in self.shards.glob("rank-*/unit-*.h5")
        )
        return sorted((int(match[1]), path) for match, path in matches if match and path.is_file())

    def copies(self, unit: int) -> list[Path]:
        """List every segment file of `unit`, by path; looks into no shard's listing."""
        shards = sorted(self.shards.glob("rank-*"))
        paths = (shard / self.segment(0, unit).name for shard in shards)
        return [path for path in paths if path.is_file()]

    @property
    def next_index(self) -> Path:
        """Name the index of a run that is about to take this one's place."""
        return self.root / "index.next"

    def entries(self) -> list[str]:
        """List what lies in the folder, but for the lock and what was left half-written."""
        if not self.root.is_dir():
            return []
        own = {path.name for path in self._files()} | {self.index.name, self.next_index.name}
        passing = {self.lock.name, self.next_index.name}
        return sorted(
            path.name
            for path in self.root.iterdir()
            if path.name not in passing and finished_name(path) not in own
        )

    def owns(self, path: Path) -> bool:
        """Say whether `path`, there or not, is a name that a run gives to something of its own.

        Symbolic links on the way to it are followed; a folder of the run's may be one.
        """
        place = path.parent.resolve() / path.name
        folders = (self.index, self.next_index, self.launches, self.shards, self.logs)
        return place in {self.root.resolve() / own.name for own in (*self._files(), self.lock)} or (
            any(place.is_relative_to(folder.resolve()) for folder in folders)
        )

    def require_regular_files(self) -> None:
        """Check that no pipe, socket, device or folder is in the place of one of the run's files.

        Raises
        ------
        RunError
            Otherwise. Opening a named pipe would wait for another process.
        """
        own = (*self._files(), self.lock, *self.launches.glob("????.json"))
        logs = (path for pattern in _LOGS for path in self.logs.glob(pattern))
        columns = (path for path in self.index.glob("*") if not path.is_dir())
        for path in (*own, *logs, *columns):
            if path.exists() and not path.is_file():
                raise RunError(f"{path} is not a regular file. Remove it, then rerun the command.")

    def clear(self) -> None:
        """Remove everything that a run wrote but run.json; other files stay, but for its index's.

        A folder that was cleared by half is still a run's, with segments gone: the index goes last,
        and at once. The lock stays: its holder is the one who clears. So does the index of the run
        that is to come.
        """
        for path in self._files():
            if path != self.run_json:
                path.unlink(missing_ok=True)
        for folder, pattern in (
            (self.launches, "????.json"),
            *((self.logs, pattern) for pattern in _LOGS),
            *((shard, "unit-*.h5") for shard in self.shards.glob("rank-????")),
            (self.shards, ""),
        ):
            _remove_members(folder, pattern)
        if self.index.exists() or self.index.is_symlink():
            self.index.rename(temporary_beside(self.index))
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Remove what killed processes left half-written. Only while holding the run's lock."""
        own = {path.name for path in self._files()} | {self.index.name, self.next_index.name}
        for path in self.root.glob("*.tmp"):
            if finished_name(path) in own:
                _remove(path)
        for path in (*self.shards.glob("rank-*/*.tmp"), *self.launches.glob("*.tmp")):
            if finished_name(path):
                _remove(path)

    @property
    def tables(self) -> tuple[Path, ...]:
        """All tables that a run can have."""
        return (
            self.predictions,
            self.windows,
            self.sequences,
            self.published_results,
            self.published_consensus,
            self.missing,
            self.quarantine,
        )

    def _files(self) -> tuple[Path, ...]:
        return (self.run_json, self.status_json, self.budgets, *self.tables, self.embeddings)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_members(folder: Path, pattern: str) -> None:
    """Remove the files of that name, and the folder where nothing else is in it."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in folder.glob(pattern) if pattern else ():
        path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
