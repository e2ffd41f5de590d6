import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.lab.groups import Groups

HOST = st.tuples(st.just(False), st.sampled_from("KLM"), st.sampled_from("abcd"))
VIRUS = st.tuples(st.just(True), st.just("viral"), st.sampled_from("wxyz"))
LABELS = st.tuples(
    st.lists(VIRUS, min_size=1, max_size=12), st.lists(HOST, min_size=1, max_size=12)
).map(lambda both: both[0] + both[1])


@given(LABELS, st.floats(0.01, 0.99))
def test_weights_sum_to_the_prevalence_and_are_equal_within_each_level(labels, prevalence):
    groups = Groups.of(labels)
    weights = groups.own_weights(prevalence)
    viral = np.array([label[0] for label in labels])
    assert weights.sum() == pytest.approx(1)
    assert weights[viral].sum() == pytest.approx(prevalence)
    kingdoms = {label[:2] for label in labels}
    for kingdom in kingdoms:
        inside = np.array([label[:2] == kingdom for label in labels])
        of_class = sum(other[0] == kingdom[0] for other in kingdoms)
        share = (prevalence if kingdom[0] else 1 - prevalence) / of_class
        assert weights[inside].sum() == pytest.approx(share)
        members = {label for label in labels if label[:2] == kingdom}
        for group in members:
            part = weights[[label == group for label in labels]]
            assert part.sum() == pytest.approx(share / len(members))
            assert part == pytest.approx(np.full(len(part), part[0]))


@given(LABELS, st.integers(0, 2**32))
def test_resamples_keep_the_weight_of_each_class_and_the_number_of_groups(labels, seed):
    groups = Groups.of(labels)
    counts = groups.drawn(20, np.random.default_rng(seed))
    weights = groups.weights(counts, 0.3)
    viral = np.array([label[0] for label in labels])
    assert (counts[:, groups.viral].sum(axis=1) == groups.viral.sum()).all()
    assert (counts[:, ~groups.viral].sum(axis=1) == (~groups.viral).sum()).all()
    assert weights[:, viral].sum(axis=1) == pytest.approx(np.full(20, 0.3))
    assert weights.sum(axis=1) == pytest.approx(np.ones(20))
    assert ((weights > 0) == (counts[:, groups.of_sequence] > 0)).all()


def test_a_group_that_is_drawn_twice_counts_like_two_groups():
    labels = [(True, "viral", "V"), (False, "k", "A"), (False, "k", "B"), (False, "k", "C")]
    groups = Groups.of(labels)
    number = {key[2]: i for i, key in enumerate(groups.keys)}
    counts = np.zeros((1, 4), np.int64)
    for name, count in {"V": 1, "A": 2, "B": 1}.items():
        counts[0, number[name]] = count
    assert groups.weights(counts, 0.5)[0] == pytest.approx([0.5, 1 / 3, 1 / 6, 0])
