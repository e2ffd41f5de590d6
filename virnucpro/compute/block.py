"""Compute one block: its records, windows and rows, their scores and vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from virnucpro.arrays import AnyArray
from virnucpro.classifier.quality import record_quality
from virnucpro.classifier.run_scores import run_windows, score_run
from virnucpro.compute.rank_encoder import Models
from virnucpro.compute.rank_main import RankTask, UnitProgress
from virnucpro.compute.row_embedder import RowEmbedder
from virnucpro.report.extract import hashed_ids
from virnucpro.runtime.policy import Findings
from virnucpro.sequences.block import BlockIndex, index_block
from virnucpro.sequences.input_rules import InputNotes, InputRules
from virnucpro.sequences.scan import Scan
from virnucpro.sequences.spec import IndexSpec
from virnucpro.store.block_segment import BlockSegment
from virnucpro.store.coverage import coverage_of_rows


@dataclass(frozen=True, slots=True)
class BlockTask:
    """What the blocks of a run are computed from.

    Attributes
    ----------
    scan
        The inputs.
    spec, rules
        Rules that divide records into items, and for trouble in the inputs.
    rank
        Parameters of the encoders.
    n_classes
        Number of classes of the classifier; 0 for two.
    calibrated
        Whether the classifier has a calibration, which needs the composition of records.
    """

    scan: Scan
    spec: IndexSpec
    rules: InputRules
    rank: RankTask
    n_classes: int = 0
    calibrated: bool = False


def compute_block(
    task: BlockTask, number: int, models: Models, watch: UnitProgress, findings: Findings
) -> BlockSegment:
    """Compute the segment of a block; parameters and errors are those of `RowEmbedder.embed`.

    Raises
    ------
    InputError
        When the inputs cannot be read, or are not valid.
    """
    index, notes = index_block(task.scan, number, task.spec, task.rules)
    arrays: dict[str, Any] = index.columns()
    reasons: dict[int, str] = {}
    if index.n_rows:
        embedder = RowEmbedder(task.rank, index, models=models)
        rows = embedder.embed(number, range(index.n_rows), watch, findings)
        reasons = dict(rows.reasons)
        of_rows = {
            "state": rows.state,
            "scores": rows.scores,
            "vectors": rows.embeddings,
            "counts": rows.counts,
        }
        arrays |= {f"row_{name}": own for name, own in of_rows.items() if own is not None}
    about, arrays = block_results(
        index,
        arrays,
        notes,
        reasons,
        width=models.width,
        n_classes=task.n_classes,
        calibrated=task.calibrated,
    )
    return BlockSegment(number, task.rank.fingerprint, about, arrays)


def block_results(
    index: BlockIndex,
    rows: Mapping[str, AnyArray],
    notes: InputNotes,
    reasons: Mapping[int, str],
    *,
    width: int,
    n_classes: int,
    calibrated: bool,
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Return facts and arrays of a segment, from those of its rows.

    Parameters
    ----------
    rows
        Columns of the index, and results of rows; without these, all rows are missing.
    reasons
        Reason of each quarantined row.
    width
        Number of scores of a row.
    n_classes, calibrated
        As in `BlockTask`.
    """
    arrays = dict(rows)
    coverage = coverage_of_rows(arrays, width, reasons)
    scores = score_run(index, run_windows(index, coverage), coverage, n_classes)
    arrays |= {f"record.{one.name}": getattr(scores, one.name) for one in fields(scores)}
    if calibrated:
        quality = record_quality(index)
        arrays |= {f"quality.{one.name}": getattr(quality, one.name) for one in fields(quality)}
    names = index.record_names(np.arange(index.n_records))
    arrays["name_hash"], starts = hashed_ids(names)
    about = {
        "block": index.block,
        "notes": notes.as_json(),
        "reasons": list(reasons.items()),
        "qualities": index.has_qualities,
        "letters": int(index.record_letters.sum()),
        "starts": list(starts.items()),
        "width": width,
    }
    return about, arrays
