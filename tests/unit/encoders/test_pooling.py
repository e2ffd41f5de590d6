"""Pooling, layers and long sequences, compared with fair-esm."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from esm_models import fair_esms_states

from virnucpro.encoders.encoder import Chunked
from virnucpro.encoders.pooling import Pooling, PoolingPlan, TokenLayout
from virnucpro.encoders.registry import load_encoder, open_spec, pooled_spec
from virnucpro.errors import UsageError

LENGTHS = [1, 40, 7, 40, 23, 90]


@pytest.fixture(scope="module")
def saved(fair_esm):
    path, model = fair_esm(3, 40, 4)
    return open_spec(path), model


@pytest.fixture(scope="module")
def loaded(saved):
    spec, model = saved

    def load(*pooling, **named):
        return load_encoder(pooled_spec(spec, Pooling(*pooling, **named)))

    return load, model


def encoded(encoder, sequences):
    return encoder.encode(encoder.collate(encoder.tokenise(sequences)))


@pytest.mark.parametrize("layers", [(), (0,), (1, 3), (-1, 2, 0)])
@pytest.mark.parametrize("method", ["mean", "cls", "max", "none"])
def test_vectors_equal_those_of_fair_esm(loaded, proteins, method, layers):
    load, model = loaded
    sequences = proteins(LENGTHS)
    found = encoded(load(method, layers), sequences)
    expected = []
    for sequence in sequences:
        parts = []
        for states in fair_esms_states(model, sequence, [layer % 4 for layer in layers or (3,)]):
            first, inside = states[0], states[1:-1]
            pooled = {"mean": inside.mean(0), "cls": first, "max": inside.amax(0), "none": inside}
            parts.append(torch.atleast_2d(pooled[method]))
        expected.append(torch.cat(parts, 1))
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-5)


def test_the_first_tokens_of_a_long_sequence_are_used(loaded, proteins):
    load, _ = loaded
    sequences = proteins(LENGTHS)
    found = encoded(load(max_length=20, long="truncate"), sequences)
    assert torch.equal(found, encoded(load(), [one[:20] for one in sequences]))


@pytest.mark.parametrize("method", ["mean", "cls", "max", "none"])
def test_chunks_of_a_long_sequence_are_joined(loaded, proteins, method):
    load, _ = loaded
    encoder, whole = load(method, max_length=20, long="chunk-mean"), load(method)
    sequences = proteins([7, 90, 41])
    found = encoded(encoder, sequences)
    cut = {90: (18, 18, 18, 18, 18), 41: (14, 14, 13), 7: (7,)}
    expected = []
    for sequence in sequences:
        sizes = cut[len(sequence)]
        ends = np.cumsum(sizes)
        pieces = [sequence[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        vectors = encoded(whole, pieces)
        weights = torch.tensor(sizes) / len(sequence)
        joined = {"max": lambda v: v.amax(0), "none": lambda v: v}
        expected.append(torch.atleast_2d(joined.get(method, lambda v, w=weights: w @ v)(vectors)))
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-5)


def test_chunks_of_a_very_long_sequence_are_encoded_in_small_batches(loaded, proteins):
    load, _ = loaded
    encoder = load(max_length=500, long="chunk-mean")
    batch = encoder.collate(encoder.tokenise(proteins([20_000])))
    assert isinstance(batch, Chunked)
    assert batch.counts == (40,)
    assert max(part.total for part in batch.parts) <= 2_048


def test_a_sequence_above_the_limit_of_a_model_is_refused_with_its_length():
    plan = PoolingPlan(Pooling(), TokenLayout(2, 1, 1, longest=510))
    assert plan.refusal(512) == ""
    assert plan.refusal(513).startswith("too_long: the sequence has 511 tokens, more than 510")


@pytest.mark.parametrize("last", [0, 1])
def test_token_ids_of_long_sequences_stay_integers_between_their_special_tokens(last):
    ids = np.array([0, *range(10, 19), *[2] * last])
    ends = ids[:1].tolist(), [2] * last
    layout = TokenLayout(2, 1, last)
    short = PoolingPlan(Pooling(max_length=4, long="truncate"), layout).truncated(ids)
    chunks = PoolingPlan(Pooling(max_length=4, long="chunk-mean"), layout).chunks(ids)
    assert {one.dtype for one in (short, *chunks)} == {np.dtype(np.int64)}
    assert short.tolist() == [*ends[0], 10, 11, 12, 13, *ends[1]]
    cut = ([10, 11, 12], [13, 14, 15], [16, 17, 18])
    assert [one.tolist() for one in chunks] == [[*ends[0], *part, *ends[1]] for part in cut]


def test_dnabert_s_omits_special_tokens_except_in_its_mean(dnabert, bases):
    folder, _ = dnabert()
    spec = open_spec(folder)
    sequences = bases([300, 20])
    mean, tokens, first = (
        encoded(load_encoder(pooled_spec(spec, Pooling(method))), sequences)
        for method in ("mean", "none", "cls")
    )
    ids = load_encoder(spec).tokenise(sequences)
    counts = [len(one) - 2 for one in ids]
    assert len(tokens) == sum(counts)
    assert mean.shape == first.shape == (2, spec.dim)
    torch.testing.assert_close(mean, encoded(load_encoder(spec), sequences))


def test_values_without_effect_do_not_change_the_pooling(saved):
    spec, _ = saved
    assert pooled_spec(spec, Pooling(layers=(3,))) == spec
    assert pooled_spec(spec, Pooling(layers=(-4, -1))).pooling.layers == (0, 3)
    assert pooled_spec(spec, Pooling(layers=(-4, -1))).dim == 80
    assert Pooling("none", (0, 3), 9, "truncate").parameters() == {
        "outputs": "vectors",
        "pooling": "none",
        "layer": [0, 3],
        "max_length": 9,
        "long": "truncate",
    }


@pytest.mark.parametrize(
    ("pooling", "layout", "message"),
    [
        (Pooling(layers=(4,)), TokenLayout(3), "--layer 4: M has 3 layers"),
        (Pooling(layers=(-5,)), TokenLayout(3), "--layer -5"),
        (Pooling(layers=(3, -1)), TokenLayout(3), "given twice"),
        (Pooling("cls"), TokenLayout(3, has_cls=False), "no first token"),
        (Pooling(long="truncate"), TokenLayout(3), "--long truncate needs --max-length"),
        (Pooling(max_length=600), TokenLayout(3, longest=510), "at most 510"),
        (Pooling("max"), TokenLayout(0), "has no choice of pooling"),
    ],
)
def test_a_pooling_that_a_model_lacks_is_refused(pooling, layout, message):
    with pytest.raises(UsageError, match=message):
        pooling.of_model("M", layout)


def test_a_spec_with_another_pooling_keeps_its_files(saved):
    spec, _ = saved
    pooled = pooled_spec(spec, Pooling("max", (1, 2)))
    assert replace(pooled, pooling=Pooling(), dim=spec.dim) == spec


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("method", ["median", None, "Max"]),
        ("long", ["chunk_mean", None, "Refuse"]),
        ("max_length", [0, -1, True, 2.5, "5"]),
        ("layers", [("1",), (None,), (-2.0,), (True,)]),
    ],
)
def test_words_and_numbers_that_are_not_allowed_are_refused(option, values):
    name = {"method": "--pooling", "layers": "--layer"}.get(option, f"--{option}")
    for value in values:
        with pytest.raises(UsageError, match=f"{name.replace('_', '-')} .*: give"):
            Pooling(**{option: value})
    with pytest.raises(UsageError, match="give truncate, chunk-mean, refuse"):
        Pooling(long="chunk_mean")


def test_whole_numbers_of_any_type_are_read():
    pooling = Pooling(layers=(np.int64(1),), max_length=np.int32(5))
    assert (pooling, type(pooling.layers[0]), type(pooling.max_length)) == (
        Pooling(layers=(1,), max_length=5),
        int,
        int,
    )
