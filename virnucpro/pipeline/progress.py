"""How far a run is, read from its folder by any process at any time."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from virnucpro.pipeline.lock import is_locked
from virnucpro.pipeline.manifest import read_manifest
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds

__all__ = ["RunProgress", "read_progress"]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is.

    Attributes
    ----------
    state
        ``running``: a process holds the run's lock; ``complete``: every unit has a segment;
        ``incomplete``: neither, and a resume goes on.
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
            reason = f"  {status['reason']}" if status.get("reason") else ""
            lines.append(
                f"rank {rank}: {status['state']} {status['done']:,}/{status['total']:,}{reason}"
            )
        if self.state == "incomplete":
            lines.append("go on with: the same command and --resume")
        return "\n".join(lines)


def read_progress(run: RunDirectory) -> RunProgress:
    """Tell how far a run is, without touching it.

    Raises
    ------
    NotARunError, IndexFormatError
        When the folder is no run, or is damaged.
    """
    manifest = read_manifest(run)
    index = SequenceIndex.open(run.index)
    bounds = unit_bounds(index.row_lengths, manifest.units["rows"], manifest.units["positions"])
    n_units = len(bounds) - 1
    units = {unit for unit, _ in run.segments() if unit < n_units}
    at_rest = "complete" if len(units) == n_units else "incomplete"
    return RunProgress(
        root=str(run.root),
        command=manifest.command,
        state="running" if is_locked(run) else at_rest,
        records=index.n_records,
        units_done=len(units),
        units_total=n_units,
        rows_done=sum(int(bounds[unit + 1] - bounds[unit]) for unit in units),
        rows_total=index.n_rows,
        launches=len(manifest.launches),
        ranks=_ranks(run),
    )


def _ranks(run: RunDirectory) -> Mapping[str, Mapping[str, Any]]:
    try:
        ranks: Mapping[str, Mapping[str, Any]] = json.loads(run.status_json.read_bytes())["ranks"]
    except FileNotFoundError:
        return {}
    return ranks
