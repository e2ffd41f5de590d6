"""Segments to store."""

from collections.abc import Callable

import numpy as np
import pytest

from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment, commit_segment

SegmentMaker = Callable[..., Segment]


@pytest.fixture(scope="session")
def make_segment() -> SegmentMaker:
    """Return a maker of segments of rows ``first`` to ``last - 1``, with numbers by row."""

    def make(
        unit=0,
        first=0,
        last=5,
        *,
        dim=8,
        dtype="f4",
        fingerprint="f" * 64,
        quarantined=(),
        head=True,
    ) -> Segment:
        rows = np.arange(first, last)
        state = np.where(np.isin(rows, quarantined), RowState.QUARANTINED, RowState.DONE)
        embeddings = None if dim is None else (rows[:, None] + np.arange(dim) / 16).astype(dtype)
        virus = (rows + 1) / (last + 1)
        scores = np.stack([1 - virus, virus], 1).astype("f4") if head else None
        for values in (embeddings, scores):
            if values is not None:
                values[state == RowState.QUARANTINED] = 0
        return Segment(
            unit=unit,
            fingerprint=fingerprint,
            rows=rows,
            state=state.astype("u1"),
            embeddings=embeddings,
            scores=scores,
            reasons=dict.fromkeys(quarantined, "not finite"),
        )

    return make


@pytest.fixture
def put(tmp_path, make_segment):
    """Return a function that commits a segment of five rows and returns its path."""

    def commit(unit, folder="a", name=None, **changes):
        path = tmp_path / folder / (name or f"unit-{unit:06d}.h5")
        path.parent.mkdir(parents=True, exist_ok=True)
        commit_segment(path, make_segment(unit, unit * 5, unit * 5 + 5, **changes))
        return path

    return commit
