"""Everything that a report says about one run, read from its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from virnucpro.report.reading.history import History, read_history
from virnucpro.report.reading.records import RecordTable, read_records
from virnucpro.report.reading.regions import Region, read_regions
from virnucpro.run_dir import RunDirectory

__all__ = ["RunFacts", "read_facts"]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Content of one run folder.

    Attributes
    ----------
    sample
        Name of the run in the report.
    manifest
        Content of run.json.
    regions
        Rows of regions.tsv; None if the run has no such file.
    working
        Whether another process works in the folder now.
    """

    run: RunDirectory
    sample: str
    manifest: Mapping[str, Any]
    records: RecordTable
    regions: Sequence[Region] | None
    history: History
    working: bool = False

    @property
    def bases(self) -> int:
        """Return the number of bases of all records."""
        return int(self.records.numbers["length"].sum())

    @property
    def threshold(self) -> float | None:
        """Return the probability or score from which a record is viral; None by a rule of FDR."""
        calls, calibration = self.manifest.get("calls", {}), self.manifest.get("calibration")
        if calls.get("fdr") is not None:
            return None
        if calls.get("threshold") is not None:
            return float(calls["threshold"])
        if calibration:
            preset = calls.get("preset", "default")
            return float(calibration["presets"][preset]["viral"])
        return float(self.manifest["thresholds"]["viral"])

    @property
    def scale(self) -> str:
        """Return what the threshold is compared with: ``probability`` or ``score``."""
        return "probability" if self.manifest.get("calibration") else "score"

    @property
    def drawn_threshold(self) -> float | None:
        """Return the threshold; None if the records have no values of its scale."""
        drawn = "probability" if self.records.calibrated else "score"
        return self.threshold if self.scale == drawn else None

    def gaps(self) -> dict[str, int]:
        """Return the number of records without a result yet, and of those that failed for good."""
        status = self.records.words["status"].counts()
        return {"missing": status.get("missing", 0), "quarantined": status.get("quarantined", 0)}

    def expected_false(self) -> float | None:
        """Return the expected share of non-viral records among the viral calls; None if unknown."""
        viral = self.records.called("viral")
        if not self.records.calibrated or not viral.any():
            return None
        share = float(np.nanmean(1 - self.records.numbers["probability"][viral]))
        return None if np.isnan(share) else share


def read_facts(
    run: RunDirectory, manifest: Mapping[str, Any], sample: str, *, working: bool = False
) -> RunFacts:
    """Read the tables and logs of a run of predict.

    Raises
    ------
    StoreError
        If a table is missing or damaged.
    """
    return RunFacts(
        run=run,
        sample=sample,
        manifest=manifest,
        records=read_records(run.predictions),
        regions=read_regions(run.root / "regions.tsv"),
        history=read_history(run),
        working=working,
    )
