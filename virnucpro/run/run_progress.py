"""Read the progress of a run from its folder, also while another process computes the run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from virnucpro.folder_lock import is_held
from virnucpro.run.manifest import Manifest
from virnucpro.run.run import Run
from virnucpro.run_dir import RunDirectory

_ADVICE = {
    "incomplete": "to compute the rest: rerun the command with --resume, or its tasks",
    "computed": "to write the tables: virnucpro aggregate, or rerun the command with --resume",
}

_ALIVE = {"starting", "running", "waiting"}
"""States of a rank that are valid only while its parent process is alive."""

_KEYS: Final = {"state", "done", "total"}
"""Fields of a rank that the text of a progress needs."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run.

    Attributes
    ----------
    state
        ``reading``: a process is reading the input; ``running``: a process or a task is computing;
        ``complete``: every unit has a segment and all outputs are written; ``computed``: every
        unit has a segment, but outputs must be written again; ``incomplete``: units are missing.
    units_done, units_total
        Number of units with a segment file, and of all units. Segments are not verified.
    rows_done, rows_total
        Number of rows in units with a segment file, and of all rows.
    ranks
        The last known status of every rank of the last launch; empty if tasks compute the run.
    attempts
        Number of attempts of tasks; 0 if one process computes the run.
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
    attempts: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes of this progress as plain data for JSON."""
        return asdict(self)

    def as_text(self) -> str:
        """Return the text that ``virnucpro status`` prints."""
        share = self.rows_done / self.rows_total if self.rows_total else 1.0
        starts = f"{self.launches} launches"
        if self.attempts:
            starts += f", {self.attempts:,} attempts of tasks"
        lines = [
            f"{self.root}: {self.command}, {self.state}",
            f"sequences {self.records:,}",
            f"units {self.units_done:,}/{self.units_total:,} in {starts}",
            f"rows {self.rows_done:,}/{self.rows_total:,} ({share:.1%})",
        ]
        for rank, status in sorted(self.ranks.items(), key=lambda pair: int(pair[0])):
            lines.append(_rank_line(rank, status))
        if self.state in _ADVICE:
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
    written = all(path.exists() for path in wanted) and not paths.missing.exists()
    written &= manifest.tables_complete
    return RunProgress(
        root=str(paths.root),
        command=manifest.command,
        state=_state(running=locked, computed=len(units) == n_units, written=written),
        records=run.index.n_records,
        units_done=len(units),
        units_total=n_units,
        rows_done=run.n_rows_of(units),
        rows_total=run.index.n_rows,
        launches=sum(not launch.attempt for launch in manifest.launches),
        ranks=_ranks(paths, manifest, alive=locked),
        attempts=len(paths.attempts()),
    )


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
    ranks = _last_statuses(run)
    if ranks is None:
        launches = [launch for launch in manifest.launches if not launch.attempt]
        records = launches[-1].ranks if launches else {}
        return {rank: _status_of(record) for rank, record in records.items()}
    for status in ranks.values():
        if not alive and status["state"] in _ALIVE:
            status["state"] = "ended with the main process"
    return ranks


def _last_statuses(run: RunDirectory) -> dict[str, dict[str, Any]] | None:
    """Return the ranks in status.json; None if the file is missing or damaged."""
    try:
        ranks = json.loads(run.status_json.read_bytes())["ranks"]
        return {rank: status for rank, status in ranks.items() if {*status} >= _KEYS}
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _status_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a rank in run.json with the keys of status.json."""
    rows = record.get("rows", 0)
    faults = [{"reason": reason} for reason in record["faults"]]
    return {**record, "attempt": record["attempts"], "faults": faults, "done": rows, "total": rows}
