"""Everything that a report says about one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from virnucpro.classifier.prevalence import Expectation, Prevalence
from virnucpro.report.reading.records import RecordTable, read_records
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.tables.columns import Predictions, RegionTable, Windows
from virnucpro.tables.read import RunTable, joined
from virnucpro.tables.schema import Block
from virnucpro.tables.source import RunScores

REGION_COLUMNS: Final = (
    *("seq_name", "start", "end", "length", "state", "probability", "score", "file", "record"),
)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Content of one run folder.

    Attributes
    ----------
    sample
        Name of the run in the report.
    manifest
        Content of run.json.
    records, windows
        Counted columns of the records, and the windows.
    regions
        Columns of the regions; None without a calibration.
    index
        Sequences of the run.
    working
        Whether another process works in the folder now.
    """

    run: RunDirectory
    sample: str
    manifest: Mapping[str, Any]
    records: RecordTable
    windows: RunTable
    regions: Block | None
    index: SequenceIndex
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

    def expectation(self) -> Expectation | None:
        """Return what is expected of the viral calls; None without a prevalence."""
        assumed = self.manifest.get("prevalence")
        if not assumed:
            return None
        viral, probability = self.records.called("viral"), self.records.numbers["probability"]
        false = float((1 - probability[viral]).sum(dtype=np.float64))
        flags = self.records.words["flags"].counts()
        resting = sum(n for names, n in flags.items() if "by_prevalence" in names)
        known = int(np.isfinite(probability).sum())
        return Expectation.of(Prevalence(**assumed), known, int(viral.sum()), false, resting)


def read_facts(
    run: RunDirectory,
    manifest: Mapping[str, Any],
    sample: str,
    scores: RunScores,
    *,
    working: bool = False,
) -> RunFacts:
    """Return the content of a run of predict: counts of its `scores`, and run.json."""
    regions = None
    if scores.regions is not None:
        regions = joined(RunTable(RegionTable, scores).blocks(REGION_COLUMNS))
    return RunFacts(
        run=run,
        sample=sample,
        manifest=manifest,
        records=read_records(RunTable(Predictions, scores)),
        windows=RunTable(Windows, scores),
        regions=regions,
        index=scores.index,
        working=working,
    )
