import dataclasses
import io
import math
import os
import re
import zipfile
from argparse import Namespace

import numpy as np
import pytest
import torch
from batchings import batchings, encoded, vectors_of
from cases import mostly_slow, slow
from esm.data import Alphabet
from esm.model.esm2 import ESM2
from esm_models import fair_esms_own, fair_esms_vectors
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save_file

from virnucpro.encoders.encoder import CPU_STEP
from virnucpro.encoders.esm2 import model as esm2_model
from virnucpro.encoders.esm2.config import TOKENS, Esm2Config, tokenise_residues
from virnucpro.encoders.registry import load_encoder, open_spec
from virnucpro.errors import BundleError

MIXED = [1, 2, 17, 64, 65, 130, 400, 1022, 64, 17, 17, 3]
SHAPES = [(1, 16, 2), (3, 40, 4), (2, 96, 4)]
MOSTLY_SMALL = mostly_slow(SHAPES, SHAPES[0])


def change(path, model, alter):
    """Alter the tensors of a checkpoint and of fair-esm's model."""
    content = torch.load(path, weights_only=False)
    alter(content["model"])
    torch.save(content, path)
    bare = "encoder.sentence_encoder."
    model.load_state_dict(
        {name.removeprefix(bare): t for name, t in content["model"].items() if bare in name},
        strict=False,
    )


@pytest.mark.parametrize("shape", mostly_slow(SHAPES, SHAPES[1]))
@pytest.mark.parametrize("token_dropout", [True, slow(False)])
def test_vectors_equal_those_of_fair_esm_in_any_batches(fair_esm, proteins, shape, token_dropout):
    path, model = fair_esm(*shape, token_dropout=token_dropout)
    encoder = load_encoder(open_spec(path))
    sequences = proteins(MIXED)
    expected = fair_esms_vectors(model, sequences)
    tokens = encoder.tokenise(sequences)
    for parts in batchings(len(tokens)):
        vectors = encoded(encoder, tokens, parts)
        torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-5)


ROWS_OFF_CACHE_LINES = [(3, 130, 5), (2, 66, 1), (1, 250, 25)]
"""Queries, keys and values of a token together are no multiple of 64 bytes."""


@pytest.mark.parametrize(
    "shape", mostly_slow([*SHAPES, (2, 128, 4), *ROWS_OFF_CACHE_LINES], SHAPES[0], (2, 66, 1))
)
def test_a_vector_has_the_same_bits_in_any_batch(fair_esm, proteins, shape):
    path, _ = fair_esm(*shape)
    encoder = load_encoder(open_spec(path))
    lengths = [*range(1, 24), *MIXED, 20, 20, 20, 33, 33, 166, 166, 166]
    tokens = encoder.tokenise(proteins(lengths))
    alone, *others = (encoded(encoder, tokens, parts) for parts in batchings(len(tokens)))
    for vectors in others:
        assert torch.equal(vectors, alone)


@pytest.mark.parametrize("shape", mostly_slow([(1, 66, 1), (1, 96, 12), (1, 320, 20)], (1, 66, 1)))
def test_a_vector_has_the_same_bits_in_any_batch_with_two_threads(fair_esm, proteins, shape):
    path, _ = fair_esm(*shape)
    encoder = load_encoder(open_spec(path))
    tokens = encoder.tokenise(proteins([257, 166, 64, 33, 31, 13, 5, 3, 2, 1]))
    torch.set_num_threads(2)
    try:
        alone, *others = (encoded(encoder, tokens, p) for p in batchings(len(tokens)))
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(vectors, alone) for vectors in others)


LEAST = {"bf16": 0.999, "fp16": 0.9999}
LEAST_CENTRED = {"bf16": 0.998, "fp16": 0.9995}
"""Without the part that all vectors share, which hides what is lost of the rest."""


def peaky(tensors):
    for name, tensor in tensors.items():
        if "q_proj.weight" in name:
            tensor.mul_(8)


def outliers(tensors):
    """Enlarge two channels to hundreds of times the others, as in large trained models.

    The weights of the norms compensate, so that the other channels distinguish the sequences.
    """
    layers = [int(found[1]) for name in tensors if (found := re.search(r"layers\.(\d+)", name))]
    for name, tensor in tensors.items():
        if "fc2.bias" in name:
            tensor[3] += 200
            tensor[9] -= 100
        if "norm" in name and name.endswith("weight"):
            found = re.search(r"layers\.(\d+)", name)
            before = int(found[1]) if found else 1 + max(layers)
            gain = 1 + before * math.hypot(200, 100) / math.sqrt(len(tensor)) / 2
            tensor.mul_(gain)
            tensor[[3, 9]] /= gain**2 if before else 1


@pytest.mark.parametrize("shape", MOSTLY_SMALL)
@pytest.mark.parametrize("precision", LEAST)
@pytest.mark.parametrize(
    "alter",
    [
        slow(dict, id="plain"),
        pytest.param(peaky, id="peaky"),
        pytest.param(outliers, id="outliers"),
    ],
)
def test_half_precision_is_close_to_fp32(fair_esm, proteins, shape, precision, alter):
    path, model = fair_esm(*shape)
    change(path, model, alter)
    vectors = vectors_of(open_spec(path), proteins(MIXED), precision=precision)
    assert vectors.dtype == torch.float32
    others = [channel for channel in range(shape[1]) if channel not in (3, 9)]
    own, expected = vectors[:, others], fair_esms_vectors(model, proteins(MIXED))[:, others]
    assert torch.cosine_similarity(expected[:, None], expected, dim=2).min() < 0.99
    assert torch.cosine_similarity(own, expected).min() >= LEAST[precision]
    shared = expected.mean(0)
    centred = torch.cosine_similarity(own - shared, expected - shared)
    assert centred.min() >= LEAST_CENTRED[precision]


def test_fp32_is_accurate_with_peaked_attention_and_outlier_channels(fair_esm, proteins):
    path, model = fair_esm(2, 96, 4)
    change(path, model, peaky)
    change(path, model, outliers)
    vectors = vectors_of(open_spec(path), proteins(MIXED))
    expected = fair_esms_vectors(model, proteins(MIXED))
    torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-5)


def test_a_spec_describes_the_checkpoint(fair_esm):
    path, _ = fair_esm(3, 40, 4, token_dropout=False, name="esm2_t3_x")
    config = Esm2Config(3, 40, 4, token_dropout=False)
    assert open_spec(path) == config.spec("esm2_t3_x", path.parent, {"weights": path.name})


@pytest.mark.parametrize("heads_included", [True, False])
@pytest.mark.parametrize("tables_included", [True, False])
def test_safetensors_give_the_vectors_of_the_checkpoint(
    fair_esm, proteins, heads_included, tables_included
):
    path, model = fair_esm()
    spec = open_spec(path)
    tensors = {
        name: tensor.clone()
        for name, tensor in model.state_dict().items()
        if (heads_included or not name.startswith(("lm_head", "contact_head")))
        and (tables_included or not name.endswith("inv_freq"))
    }
    save_file(tensors, path.with_suffix(".safetensors"))
    bundled = dataclasses.replace(spec, files={"weights": path.with_suffix(".safetensors").name})
    first, second = (vectors_of(one, proteins([3, 50])) for one in (spec, bundled))
    assert torch.equal(first, second)


def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path):
    class Poison:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    path = tmp_path / "esm2_poison.pt"
    torch.save({"cfg": {"model": Namespace()}, "model": {"x": Poison()}}, path)
    with pytest.raises(BundleError, match=r"esm2_poison\.pt.*Get the file again"):
        open_spec(path)
    assert not (tmp_path / "ran").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "ran").exists()


def saved(content):
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Get the file again"),
        (b"no zip at all", "Get the file again"),
        (saved({"cfg": {"model": Namespace()}, "model": {}})[:-60], "Get the file again"),
        (saved([1, 2]), "Give an esm2"),
        (saved({"a": torch.zeros(1)}), "fair-esm"),
        (saved({"args": Namespace(arch="roberta_large"), "model": {}}), "Give an esm2"),
        (saved({"cfg": {"model": {"encoder_layers": 1}}, "model": {}}), "Give an esm2"),
        (
            saved({"cfg": {"model": Namespace(encoder_layers=1)}, "model": {}}),
            "lack 'embed_dim'",
        ),
    ],
    ids=["empty", "text", "truncated", "list", "tensors", "esm1b", "no Namespace", "no size"],
)
def test_a_file_that_is_no_checkpoint_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "esm2_bad.pt"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=rf"esm2_bad\.pt.*{message}"):
        open_spec(path)


BARE = "emb_layer_norm_after.weight"
NORM = f"encoder.sentence_encoder.{BARE}"


def with_tensors(tensors):
    return lambda content: content["model"].update(tensors)


def with_too_many_layers(content):
    content["cfg"]["model"].encoder_layers = 10**9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_tensors({3: torch.zeros(1)}), "entry 3 is not a plain named tensor"),
        (with_tensors({NORM: "x"}), f"'{NORM}' is not a plain named tensor"),
        (with_tensors({NORM: torch.ones(32).to_sparse()}), f"'{NORM}' is not a plain"),
        (with_tensors({NORM: torch.ones(32, device="meta")}), f"'{NORM}' is not a plain"),
        (with_tensors({BARE: torch.zeros(32)}), f"two tensors with the name '{BARE}'"),
        (with_tensors({NORM: torch.ones(32).to(torch.float8_e5m2)}), "quantised"),
        (with_too_many_layers, "1,000,000,000 layers"),
    ],
    ids=["key", "value", "sparse", "meta", "twice", "tiny numbers", "layers"],
)
def test_a_malformed_checkpoint_is_refused_where_it_is_recognised(fair_esm, change, message):
    path, _ = fair_esm()
    content = torch.load(path, weights_only=False)
    change(content)
    torch.save(content, path)
    with pytest.raises(BundleError, match=rf"esm2_tiny\.pt.*{message}.*") as caught:
        open_spec(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_a_weight_that_is_nan_is_named(fair_esm, number):
    path, model = fair_esm()
    change(path, model, lambda tensors: tensors[NORM].__setitem__(3, number))
    with pytest.raises(BundleError, match=r"esm2_tiny\.pt.*'emb_layer_norm_after.weight'.*NaN"):
        load_encoder(open_spec(path))


def test_a_flipped_bit_is_detected_by_the_checksums_of_the_file(fair_esm):
    path, _ = fair_esm()
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        part = max(archive.infolist(), key=lambda info: info.file_size)
    for place in (part.header_offset + 200, part.header_offset + part.file_size):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(
            BundleError, match=rf"esm2_tiny\.pt.*checksum of its part {part.filename}"
        ):
            open_spec(path)
    path.write_bytes(whole)
    open_spec(path)


@pytest.mark.parametrize("change", [{"attention_heads": 2}, {"token_dropout": False}])
def test_settings_without_effect_on_shapes_are_compared_and_missing_weights_named(fair_esm, change):
    path, _ = fair_esm()
    spec = open_spec(path)
    other = dataclasses.replace(spec, config={**spec.config, **change})
    with pytest.raises(BundleError, match=r"esm2_tiny\.pt.*same model"):
        load_encoder(other)
    path.unlink()
    with pytest.raises(BundleError, match=r"esm2_tiny\.pt.*Get the file again"):
        load_encoder(spec)


def halve(tensors, dtype=torch.float16):
    tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()})


def with_computed_frequencies(path):
    """Copy a checkpoint without frequencies, so that the encoder computes them."""
    content = torch.load(path, weights_only=False)
    content["model"] = {
        name: tensor for name, tensor in content["model"].items() if "inv_freq" not in name
    }
    torch.save(content, path.with_name("esm2_other.pt"))
    return path.with_name("esm2_other.pt")


@pytest.mark.parametrize("shape", mostly_slow([*SHAPES, (3, 128, 2)], SHAPES[0]))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("alter", [dict, peaky], ids=["plain", "peaky"])
def test_weights_stored_in_half_precision_are_used_at_fp32(fair_esm, proteins, shape, dtype, alter):
    path, model = fair_esm(*shape)
    change(path, model, alter)
    change(path, model, lambda tensors: halve(tensors, dtype))
    sequences = proteins([1, 9, 200, 1022])
    expected = fair_esms_vectors(fair_esms_own(path), sequences)
    own, other = (
        vectors_of(open_spec(one), sequences) for one in (path, with_computed_frequencies(path))
    )
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-5)
    assert (other - expected).abs().max() > 1e-5, "it is the file's frequencies that do it"


def test_each_layer_uses_its_own_frequencies_of_the_file(fair_esm, proteins):
    path, model = fair_esm(4, 48, 4)
    change(path, model, peaky)

    def alter(tensors):
        for name, tensor in tensors.items():
            if "layers.1." in name and "inv_freq" in name:
                tensor.mul_(0.9)
            if "layers.2." in name and "inv_freq" in name:
                tensor.mul_(0).add_(torch.rand(len(tensor)).sort().values)

    change(path, model, alter)
    encoder = load_encoder(open_spec(path))
    sequences = proteins([1, 40, 300, 300])
    tokens = encoder.tokenise(sequences)
    expected = fair_esms_vectors(fair_esms_own(path), sequences)
    torch.testing.assert_close(encoder.encode(encoder.collate(tokens)), expected, rtol=0, atol=1e-5)
    assert torch.equal(
        encoder.encode(encoder.collate(tokens[:1])), encoder.encode(encoder.collate(tokens))[:1]
    )


FREQUENCIES = "layers.1.self_attn.rot_emb.inv_freq"


@pytest.mark.parametrize(
    "wrong",
    [
        torch.tensor([1.0, -0.5, 0.1, 0.01]),
        torch.tensor([1.0, 0.5, torch.inf, 0.01]),
        torch.tensor([1.0, 0.5, 0.1, torch.nan]),
        torch.tensor([1.0, 0.5, 0.1, 1e300], dtype=torch.float64),
        torch.ones(3),
        torch.ones(4, 1),
        torch.ones(4, dtype=torch.int64),
    ],
    ids=["negative", "infinite", "nan", "too large", "few", "matrix", "integers"],
)
def test_invalid_frequencies_are_refused_by_name(fair_esm, wrong):
    path, model = fair_esm()
    whole = open_spec(path)
    content = torch.load(path, weights_only=False)
    content["model"]["encoder.sentence_encoder." + FREQUENCIES] = wrong
    torch.save(content, path)
    own = {name: t.clone() for name, t in model.state_dict().items()}
    save_file(own | {FREQUENCIES: wrong}, path.with_suffix(".safetensors"))
    bundled = dataclasses.replace(whole, files={"weights": "esm2_tiny.safetensors"})
    for attempt in (lambda: open_spec(path), lambda: load_encoder(bundled)):
        with pytest.raises(BundleError, match=r"esm2_tiny.*layers\.1\..*inv_freq"):
            attempt()


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_equal_those_of_fair_esm(shape):
    theirs = {name: tuple(tensor.shape) for name, tensor in ESM2(*shape).state_dict().items()}
    heads = [name for name in theirs if name.startswith(("lm_head", "contact_head"))]
    config = Esm2Config(*shape)
    weights, frequencies = config.tensor_shapes(), config.frequency_shapes()
    assert weights | frequencies == {n: s for n, s in theirs.items() if n not in heads}
    assert len(weights) + len(frequencies) == len(theirs) - len(heads)


def test_tensors_are_checked_on_the_meta_device(fair_esm):
    path, _ = fair_esm()
    assert load_encoder(open_spec(path), "meta").dim == 32


# --- token ids


SPECIAL = ["<cls>", "<pad>", "<eos>", "<mask>"]
FAIR_ESM = Alphabet.from_architecture("ESM-1b")

LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"


@given(st.lists(st.text(LETTERS, max_size=60), max_size=5))
def test_ids_equal_those_of_fair_esm(texts):
    convert = FAIR_ESM.get_batch_converter()
    for text, ids in zip(texts, tokenise_residues([t.encode() for t in texts]), strict=True):
        assert ids.tolist() == convert([("", text)])[2][0].tolist()
        assert ids.dtype == np.int64


def straight_line(sequence):
    """Return fair-esm's id of each residue, else that of <unk>."""
    known = FAIR_ESM.to_dict()
    letters = [chr(byte).upper() if byte < 128 else chr(byte) for byte in sequence]
    return [0, *(known.get(letter, 3) for letter in letters), 2]


@given(st.lists(st.binary(max_size=40), max_size=20))
@example([b"LAGX-j*"])
def test_ids_of_any_bytes_equal_a_simple_implementation(sequences):
    ids = tokenise_residues(sequences)
    assert [one.tolist() for one in ids] == [straight_line(one) for one in sequences]


def test_sequences_do_not_share_tokens(proteins):
    first, second = tokenise_residues(proteins([7, 9]))
    before = second.tolist()
    first[:] = 31
    assert second.tolist() == before


def test_the_alphabet_equals_that_of_fair_esm():
    assert list(TOKENS) == FAIR_ESM.all_toks


@given(st.binary(max_size=50))
def test_one_byte_is_one_token_and_never_a_special_one(sequence):
    for text in (sequence, sequence + b"<mask>" + sequence):
        inner = tokenise_residues([text])[0][1:-1]
        assert len(inner) == len(text)
        assert not np.isin(inner, [TOKENS.index(name) for name in SPECIAL]).any()


@given(st.integers(1, 300_000))
def test_stripes_are_multiples_of_the_step_except_the_last(rows):
    size = esm2_model._stripe_rows(rows, "cpu")
    stripes = [len(part) for part in torch.empty(rows, 0).split(size)]
    assert sum(stripes) == rows
    assert max(stripes) <= esm2_model._STRIPE["cpu"]
    assert len(stripes) == -(-rows // esm2_model._STRIPE["cpu"])
    assert all(stripe % CPU_STEP == 0 for stripe in stripes[:-1])
    assert stripes[-1] % CPU_STEP == rows % CPU_STEP


def test_stripes_have_even_sizes():
    parts = torch.empty(8_224, 0).split(esm2_model._stripe_rows(8_224, "cpu"))
    assert [len(part) for part in parts] == [4_128, 4_096]


def test_stripes_do_not_change_any_bit(fair_esm, proteins, monkeypatch):
    path, _ = fair_esm()
    encoder = load_encoder(open_spec(path))
    batch = encoder.collate(encoder.tokenise(proteins([70, 33, 33, 5, 1])))
    whole = encoder.encode(batch)
    monkeypatch.setitem(esm2_model._STRIPE, "cpu", 64)
    assert torch.equal(encoder.encode(batch), whole)
