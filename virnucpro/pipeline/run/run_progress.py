"""How far a run is, read from its folder by any process at any time."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from virnucpro.pipeline.run.manifest import read_manifest
from virnucpro.pipeline.run.run_lock import is_locked
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds

__all__ = ["RunProgress", "read_progress"]


_GO_ON = {
    "incomplete": "go on with: the same command and --resume",
    "computed": "write the tables with: virnucpro aggregate, or the same command and --resume",
}

_ALIVE = {"starting", "running", "waiting"}
"""States of a rank that has a parent."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is.

    Attributes
    ----------
    state
        ``reading``: a process is at work and has not read all input yet; ``running``: a process is
        at work; ``complete``: every unit has a segment and the tables are written; ``computed``:
        they are still to be written; ``incomplete``: units are missing, and a resume goes on.
    units_done, units_total
        Units with a segment file. The segments are counted, not verified.
    rows_done, rows_total
        The same in rows.
    ranks
        The last known status of every rank of the last launch.
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

    def as_dict(self) -> dict[str, Any]:
        """Give plain data for JSON."""
        return asdict(self)

    def as_text(self) -> str:
        """Give lines for a person."""
        share = self.rows_done / self.rows_total if self.rows_total else 1.0
        lines = [
            f"{self.root}: {self.command}, {self.state}",
            f"sequences {self.records:,}",
            f"units {self.units_done:,}/{self.units_total:,} in {self.launches} launches",
            f"rows {self.rows_done:,}/{self.rows_total:,} ({share:.1%})",
        ]
        for rank, status in sorted(self.ranks.items(), key=lambda pair: int(pair[0])):
            lines.append(_rank_line(rank, status))
        if self.state in _GO_ON:
            lines.append(_GO_ON[self.state])
        return "\n".join(lines)


def read_progress(run: RunDirectory) -> RunProgress:
    """Tell how far a run is, without touching it.

    Raises
    ------
    NotARunError, IndexFormatError
        When the folder is no run, or is damaged.
    """
    run.require_regular_files()
    locked = is_locked(run)
    if locked and not run.run_json.exists():
        return RunProgress(str(run.root), "a new run", "reading", 0, 0, 0, 0, 0, 0, {})
    manifest = read_manifest(run)
    index = SequenceIndex.open(run.index)
    bounds = unit_bounds(index.row_lengths, manifest.units["rows"], manifest.units["positions"])
    n_units = len(bounds) - 1
    units = {unit for unit, path in run.segments() if unit < n_units and path.stat().st_size}
    tables = run.predictions if manifest.command == "predict" else run.sequences
    wanted = [tables]
    if manifest.parameters["embeddings"] != "none":
        wanted.append(run.embeddings)
    written = all(path.exists() for path in wanted) and not run.missing.exists()
    return RunProgress(
        root=str(run.root),
        command=manifest.command,
        state=_state(locked=locked, computed=len(units) == n_units, written=written),
        records=index.n_records,
        units_done=len(units),
        units_total=n_units,
        rows_done=sum(int(bounds[unit + 1] - bounds[unit]) for unit in units),
        rows_total=index.n_rows,
        launches=len(manifest.launches),
        ranks=_ranks(run, alive=locked),
    )


def _rank_line(rank: str, status: Mapping[str, Any]) -> str:
    line = f"rank {rank}: {status['state']} {status['done']:,}/{status['total']:,}"
    failures = [fault["reason"] for fault in status.get("faults", ())]
    if status.get("reason"):
        line += f"  {status['reason']}"
    if failures:
        line += f"  (attempt {status['attempt']}; the last one failed: {failures[-1]})"
    return line


def _state(*, locked: bool, computed: bool, written: bool) -> str:
    if locked:
        return "running"
    if not computed:
        return "incomplete"
    return "complete" if written else "computed"


def _ranks(run: RunDirectory, *, alive: bool) -> Mapping[str, Mapping[str, Any]]:
    """Read what was last said of the ranks; a rank whose parent was killed died with it."""
    try:
        ranks: dict[str, dict[str, Any]] = json.loads(run.status_json.read_bytes())["ranks"]
        for status in ranks.values():
            if not alive and status["state"] in _ALIVE:
                status["state"] = "lost with its parent"
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        # It informs and decides nothing: without it, nothing is known of the ranks.
        return {}
    return ranks
