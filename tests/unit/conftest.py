"""Indexes of small files and scores of their rows."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from virnucpro.classifier.consensus import Thresholds
from virnucpro.classifier.decision import call_records
from virnucpro.classifier.run_scores import run_windows, score_run
from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState
from virnucpro.tables.source import RunScores


@pytest.fixture(scope="session")
def one_torch_thread():
    """Let torch use one thread: several wait for each other, and keep the CPUs busy meanwhile."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def index_file(tmp_path_factory) -> Callable[..., SequenceIndex]:
    """Index a file with the published tiling."""

    def build(path: Path, window: int = 300, *, fallback: bool = False) -> SequenceIndex:
        spec = IndexSpec(
            kind="frames",
            alphabet=Alphabet.NUCLEOTIDE,
            window=window,
            tiling="published",
            genetic_code=1,
            fallback=fallback,
        )
        return build_index(tmp_path_factory.mktemp("index") / "index", [str(path)], spec)

    return build


@pytest.fixture(scope="session")
def index_records(index_file, tmp_path_factory) -> Callable[..., SequenceIndex]:
    """Index records, each a pair of name and bases."""

    def build(
        records: Sequence[tuple[str, str]], window: int = 300, *, fallback: bool = False
    ) -> SequenceIndex:
        path = tmp_path_factory.mktemp("input") / "records.fa"
        path.write_bytes("".join(f">{name}\n{bases}\n" for name, bases in records).encode())
        return index_file(path, window, fallback=fallback)

    return build


@pytest.fixture(scope="session")
def cover() -> Callable[..., Coverage]:
    """Return the coverage of an index with the given virus scores; None for a missing item."""

    def make(index: SequenceIndex, virus: Sequence[float | None], quarantined=()) -> Coverage:
        state = np.full(index.n_rows, RowState.MISSING, np.uint8)
        scores = np.full((index.n_rows, 2), np.nan, np.float32)
        for row, score in zip(index.item_row.tolist(), virus, strict=True):
            if score is not None:
                state[row] = RowState.DONE
                scores[row] = 1 - score, score
        reasons = {}
        for item in quarantined:
            row = int(index.item_row[item])
            state[row], scores[row] = RowState.QUARANTINED, np.nan
            reasons[row] = "not_finite: 2 of 3 numbers: inf"
        bounds = np.array([0, index.n_rows])
        return Coverage(bounds, "f" * 64, {}, (), (), state, scores, reasons)

    return make


@pytest.fixture(scope="session")
def scores_of() -> Callable[..., RunScores]:
    """Return scores and calls of a run without calibration; `values` replace what is computed."""

    def score(index: SequenceIndex, coverage: Coverage, **values) -> RunScores:
        windows = run_windows(index, coverage)
        records = score_run(index, windows, coverage, len(values.get("classes", ())))
        calls = values.pop("calls", None) or call_records(records, Thresholds(0.6, 0.4))
        scores = RunScores(
            index,
            coverage,
            windows,
            records,
            calls,
            classes=values.pop("classes", ()),
            labels=("others", "virus"),
        )
        vars(scores).update(values)
        return scores

    return score
