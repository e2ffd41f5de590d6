"""Read the progress of a run from its folder, also while another process computes the run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from virnucpro.console import duration
from virnucpro.folder_lock import is_held
from virnucpro.run.manifest import Manifest
from virnucpro.run.part_states import PartState, part_states, read_heartbeat
from virnucpro.run.run import Run
from virnucpro.run_dir import RunDirectory

_ADVICE = {
    "incomplete": "to compute the rest: rerun the command with --resume",
    "computed": "to write the tables: virnucpro aggregate, or rerun the command with --resume",
}

_SHOWN = 10

_ALIVE = {"starting", "running", "waiting"}
"""States of a rank that are valid only while its parent process is alive."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run.

    Attributes
    ----------
    state
        ``reading``: a process is reading the input; ``running``: a process or a part is computing;
        ``complete``: every unit has a segment and all outputs are written; ``computed``: every
        unit has a segment, but outputs must be written again; ``incomplete``: units are missing.
    units_done, units_total
        Number of units with a segment file, and of all units. Segments are not verified.
    rows_done, rows_total
        Number of rows in units with a segment file, and of all rows.
    ranks
        The last known status of every rank of the last launch.
    parts
        State of each attempt of a task, if several machines compute the run.
    planned
        Whether several machines compute the run.
    round_waits
        Whether no task has worked on the latest round yet.
    rows_per_second
        Sum over the working tasks; 0 if none has computed a row.
    """

    root: str
    command: str
    state: str
    records: int
    units_done: int
    units_total: int
    rows_done: int
    rows_total: int
    launches: int
    ranks: Mapping[str, Mapping[str, Any]]
    parts: Sequence[PartState] = ()
    planned: bool = False
    round_waits: bool = False
    rows_per_second: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes of this progress as plain data for JSON."""
        return asdict(self)

    def as_text(self) -> str:
        """Return the text that ``virnucpro status`` prints."""
        share = self.rows_done / self.rows_total if self.rows_total else 1.0
        lines = [
            f"{self.root}: {self.command}, {self.state}",
            f"sequences {self.records:,}",
            f"units {self.units_done:,}/{self.units_total:,} in {self.launches} launches",
            f"rows {self.rows_done:,}/{self.rows_total:,} ({share:.1%})",
        ]
        for rank, status in sorted(self.ranks.items(), key=lambda pair: int(pair[0])):
            lines.append(_rank_line(rank, status))
        lines += _part_lines(self.parts)
        if self.rows_per_second:
            sequences = self.rows_per_second * self.records / self.rows_total
            left = (self.rows_total - self.rows_done) / self.rows_per_second
            lines.append(f"{sequences:,.1f} sequences/s, about {duration(left)} left")
        if self.round_waits and self.state == "incomplete":
            what = "rest" if self.parts else "run"
            lines.append(f"to compute the {what}: virnucpro submit {self.root}, or virnucpro work")
        elif self.planned and self.state == "incomplete":
            lines.append(f"to compute the rest: virnucpro rescue {self.root}, then work or submit")
        elif self.planned and self.state == "computed":
            lines.append(f"to write the tables: virnucpro merge {self.root}")
        elif self.state in _ADVICE:
            lines.append(_ADVICE[self.state])
        return "\n".join(lines)


def read_progress(paths: RunDirectory) -> RunProgress:
    """Return the progress of a run, without a change to its files.

    Raises
    ------
    NotARunError, IndexFormatError, RunError
        If the folder is not a run or is damaged, or a file of the run is not a regular file.
    """
    locked = is_held(paths.lock)
    if locked and not paths.run_json.exists():
        return RunProgress(str(paths.root), "a new run", "reading", 0, 0, 0, 0, 0, 0, {})
    run = Run.open(paths, verify=False)
    manifest, n_units = run.manifest, run.n_units
    units = {
        unit
        for unit, path in paths.segments()
        if 0 <= unit < n_units and (path.parent == paths.segments_file or path.stat().st_size)
    }
    wanted = [paths.predictions if manifest.command == "predict" else paths.sequences]
    if run.stores_vectors:
        wanted.append(paths.embeddings)
    parts, rounds = part_states(paths), paths.round_numbers()
    working = [part for part in parts if part.state == "working"]
    written = all(path.exists() for path in wanted) and not paths.missing.exists()
    written &= manifest.tables_complete
    return RunProgress(
        root=str(paths.root),
        command=manifest.command,
        state=_state(
            running=locked or bool(working), computed=len(units) == n_units, written=written
        ),
        records=run.index.n_records,
        units_done=len(units),
        units_total=n_units,
        rows_done=run.n_rows_of(units),
        rows_total=run.index.n_rows,
        launches=len(manifest.launches),
        ranks=_ranks(paths, manifest, alive=locked),
        parts=parts,
        planned=bool(rounds),
        round_waits=bool(rounds) and not paths.round_claims(rounds[-1]).exists(),
        rows_per_second=round(sum(map(_rows_per_second, working)), 3),
    )


def _rows_per_second(part: PartState) -> float:
    """Return the rows per second of a part since the start of its workers."""
    ranks = [rank for rank in part.ranks.values() if rank["state"] in _ALIVE and rank["seconds"]]
    return float(sum(rank["done"] / rank["seconds"] for rank in ranks))


def _part_lines(parts: Sequence[PartState]) -> Iterator[str]:
    """Yield the numbers of tasks and workers by state and machine, and the lost tasks."""
    if not parts:
        return
    counts = Counter(part.state for part in parts)
    yield f"attempts of tasks: {_counts(counts)}"
    hosts: dict[str, Counter[str]] = {}
    for part in parts:
        if part.state == "working":
            states = hosts.setdefault(part.host or "(starting)", Counter())
            states.update(str(rank["state"]) for rank in part.ranks.values())
    for host, states in sorted(hosts.items()):
        yield f"{host}: workers {_counts(states)}"
    yield from (f"unknown: {part.problem}" for part in parts if part.problem)
    lost = [part for part in parts if part.state == "lost"]
    for part in lost[:_SHOWN]:
        why = "its process has ended" if part.killed else f"no heartbeat for {duration(part.age)}"
        yield f"lost: {part.name} on {part.host}, {why}"
    if len(lost) > _SHOWN:
        yield f"and {len(lost) - _SHOWN:,} more"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items()))


def _rank_line(rank: str, status: Mapping[str, Any]) -> str:
    line = f"worker {rank}: {status['state']} {status['done']:,}/{status['total']:,}"
    failures = [fault["reason"] for fault in status.get("faults", ())]
    if status.get("reason"):
        line += f"  {status['reason']}"
    if failures:
        line += f"  (attempt {status['attempt']}; the previous one failed: {failures[-1]})"
    return line


def _state(*, running: bool, computed: bool, written: bool) -> str:
    if running:
        return "running"
    if not computed:
        return "incomplete"
    return "complete" if written else "computed"


def _ranks(
    run: RunDirectory, manifest: Manifest, *, alive: bool
) -> Mapping[str, Mapping[str, Any]]:
    """Return the last known status of each rank from status.json; the keys are rank numbers.

    If the parent process is dead (`alive` is False), the state of a rank that was still running
    becomes ``lost with its parent``. Without a valid status.json, as in a finished run, run.json
    has the ranks of its last launch.
    """
    beat = read_heartbeat(run)
    if beat is None:
        records = manifest.launches[-1].ranks if manifest.launches else {}
        return {rank: _status_of(record) for rank, record in records.items()}
    ranks = beat.ranks
    for status in ranks.values():
        if not alive and status["state"] in _ALIVE:
            status["state"] = "ended with the main process"
    return ranks


def _status_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a rank in run.json with the keys of status.json."""
    rows = record.get("rows", 0)
    faults = [{"reason": reason} for reason in record["faults"]]
    return {**record, "attempt": record["attempts"], "faults": faults, "done": rows, "total": rows}
