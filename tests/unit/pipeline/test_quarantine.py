import numpy as np

from virnucpro.store.schema import RowState


def test_a_row_that_is_not_finite_is_set_aside_with_the_first_reason():
    import torch

    from virnucpro.pipeline.embedding import _quarantine

    vectors = torch.ones(5, 3)
    vectors[1, 2] = float("nan")
    vectors[2, 0] = 1e6
    with np.errstate(over="ignore"):
        stored = vectors.numpy().astype(np.float16)
    scores = np.full((5, 2), 0.5, np.float32)
    scores[1, 0] = scores[4, 1] = np.inf
    rows = np.arange(10, 15)
    state, reasons = _quarantine(rows, vectors, stored, scores, {})
    assert np.flatnonzero(state == RowState.QUARANTINED).tolist() == [1, 2, 4]
    assert "encoder" in reasons[11]
    assert "overflows" in reasons[12]
    assert "head" in reasons[14]
    assert sorted(reasons) == [11, 12, 14]
    for values in (stored, scores):
        assert (values[[1, 2, 4]] == 0).all()
        assert (values[[0, 3]] != 0).all()
