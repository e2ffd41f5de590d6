"""Small sets of labelled fragments and their answers."""

import numpy as np
import pytest

from virnucpro.lab.evaluation.fragments import Fragment
from virnucpro.lab.evaluation.predictions import Answers


@pytest.fixture(scope="session")
def fragments_of():
    """Return a function that makes fragments from (viral, kingdom, group), one each."""

    def make(labels, length="500"):
        return [
            Fragment(f"s{number}", length, *label, "x.fa", f"r{number}", 1, 500, "+")
            for number, label in enumerate(labels)
        ]

    return make


@pytest.fixture(scope="session")
def answers():
    """Return a function that makes answers from scores; a call is viral from 0.5."""

    def make(scores, calls=None):
        scores = np.asarray(scores, float)
        scored = ~np.isnan(scores)
        mean = scores[scored].mean() if scored.any() else 0.0
        called = scores >= 0.5 if calls is None else calls
        return Answers(
            score=np.where(scored, scores, mean),
            scored=scored,
            probability=scores,
            called_viral=np.asarray(called, np.bool_),
        )

    return make
