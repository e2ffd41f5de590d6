from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.encoders.batching import TokenBudget, length_class
from virnucpro.encoders.device import fitting_budget, probe
from virnucpro.encoders.pooling import MEAN


@given(st.integers(1, 100_000))
def test_a_length_class_is_the_next_power_of_two(length):
    assert length_class(length) >= length > length_class(length) // 2
    assert length_class(length).bit_count() == 1


def test_without_limits_the_first_budget_is_used():
    budget = TokenBudget(2048)
    assert (budget(1), budget(5000), budget.probed) == (2048, 2048, False)


def test_a_limit_applies_to_its_length_class_and_longer_ones():
    budget = TokenBudget(2048)
    budget.lower(300, 1800)
    assert [budget(n) for n in (1, 256, 257, 512, 513, 9000)] == [2048] * 2 + [1024] * 4


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(2, 500)), max_size=20))
def test_budgets_are_below_failed_batches_and_never_grow_with_length(failures):
    budget = TokenBudget(4096)
    for longest, count in failures:
        before = [budget(1 << k) for k in range(13)]
        budget.lower(longest, longest * count)
        after = [budget(1 << k) for k in range(13)]
        assert all(new <= old for new, old in zip(after, before, strict=True))
        assert all(longer <= shorter for shorter, longer in pairwise(after))
        assert 1 <= budget(longest) < longest * count


@pytest.mark.parametrize(
    ("found", "short", "long"), [(65536, 65536, 65536), (16384, 16384, 16384), (4096, 16384, 4096)]
)
def test_a_probed_budget_applies_to_all_lengths_unless_reduced(found, short, long):
    budget = TokenBudget(16384)
    budget.begin_with(900, found)
    assert (budget(512), budget(513), budget.probed) == (short, long, True)


@given(st.integers(0, 200_000), st.integers(0, 12), st.integers(10, 17))
def test_a_fitting_budget_is_the_largest_power_of_two_that_fits(room, log_least, log_most):
    tried = []

    def fits(tokens):
        tried.append(tokens)
        return tokens <= room

    first, least, most = 1 << 10, 1 << log_least, 1 << log_most
    found = fitting_budget(fits, first, least, most)
    if room >= first:
        assert found <= room
        assert found == most or 2 * found > room
    elif room >= least:
        assert found <= room < 2 * found
    else:
        assert found <= max(least, first)
    assert len(tried) == len(set(tried)) <= 12


def allocator(room):
    """An encoder whose memory holds `room` tokens; attention costs more with length."""
    batches = []

    def vectors(batch):
        tokens = sum(map(len, batch))
        batches.append((len(batch), len(batch[0])))
        if tokens > room:
            raise torch.OutOfMemoryError("Tried to allocate 1.00 GiB")
        return np.zeros((len(batch), 4))

    def tokenise(sequences):
        return [np.arange(len(sequence), dtype=np.int64) for sequence in sequences]

    encoder = SimpleNamespace(plan=MEAN, view="protein", tokenise=tokenise, vectors=vectors)
    return encoder, batches


@pytest.mark.parametrize(
    ("room", "expected"), [(70_000, 65_536), (40_000, 32_768), (20_000, 16_384), (3_000, 2_048)]
)
def test_a_probe_finds_the_limit_of_an_allocator(room, expected):
    encoder, batches = allocator(room)
    assert probe(encoder, 300, 16_384, 65_536) == expected
    assert {length for _, length in batches} == {512}
    assert max(count for count, _ in batches) * 512 <= 65_536


def test_a_probe_ends_if_not_even_one_sequence_fits():
    encoder, batches = allocator(100)
    assert probe(encoder, 300, 16_384, 65_536) == 512
    assert batches[-1] == (1, 512)
    assert len(batches) == 6
