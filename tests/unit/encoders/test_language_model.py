"""Logits and pseudo-perplexities, compared with fair-esm and transformers, one token at a time."""

import json

import h5py
import numpy as np
import pytest
import torch
from cases import mostly_slow
from esm_models import SMALL, make_esm2

from virnucpro.encoders.pooling import Pooling
from virnucpro.encoders.registry import load_encoder, open_spec, pooled_spec
from virnucpro.errors import UsageError
from virnucpro.option import inherited
from virnucpro.run.options import EmbedOptions

LENGTHS = [1, 40, 7, 40, 23]


def save_masked_model(folder, name, roughen, small_tokenizer):
    """Save a masked language model of transformers; return it and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    if name == "bert":
        small_tokenizer.save(str(folder / "tokenizer.json"))
        special = {
            f"{one}_token": f"[{one.upper()}]" for one in ("unk", "pad", "cls", "sep", "mask")
        }
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), **special
        )
        config = transformers.BertConfig(**SMALL, vocab_size=64, intermediate_size=64)
        model = transformers.BertForMaskedLM(config)
    else:
        base = {"rope_theta": 100.0} if name == "other base" else {}
        model = make_esm2(folder, **base)
        tokenizer = transformers.EsmTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    roughen(model).save_pretrained(folder)
    return model, tokenizer


MODELS = ["fair-esm", "fair-esm, no dropout", "esm2", "other base", "bert"]


@pytest.fixture(scope="module", params=mostly_slow(MODELS, "fair-esm", "esm2", "bert"))
def case(request, fair_esm, tmp_path_factory, roughen, small_tokenizer, proteins, bases):
    """Return spec, sequences, the ids of a sequence, its logits by the peer, and the mask."""
    if request.param.startswith("fair-esm"):
        path, model = fair_esm(2, 40, 4, token_dropout="no" not in request.param)
        convert = model.alphabet.get_batch_converter()
        ids_of = lambda text: convert([("", text)])[2][0].tolist()  # noqa: E731
        logits_of = lambda ids: model(ids)["logits"]  # noqa: E731
        return open_spec(path), proteins(LENGTHS), ids_of, logits_of, model.mask_idx
    folder = tmp_path_factory.mktemp("model")
    model, tokenizer = save_masked_model(folder, request.param, roughen, small_tokenizer)
    sequences = bases(LENGTHS) if request.param == "bert" else proteins(LENGTHS)
    ids_of = lambda text: tokenizer(text)["input_ids"]  # noqa: E731
    logits_of = lambda ids: model(ids).logits  # noqa: E731
    return open_spec(folder), sequences, ids_of, logits_of, tokenizer.mask_token_id


def computed(spec, sequences, outputs):
    encoder = load_encoder(pooled_spec(spec, Pooling(outputs=outputs)))
    return encoder, encoder.vectors(encoder.tokenise(sequences))


def test_logits_are_those_of_the_peer(case):
    spec, sequences, ids_of, logits_of, _ = case
    encoder, found = computed(spec, sequences, "logits")
    with torch.inference_mode():
        expected = [logits_of(torch.tensor([ids_of(one.decode())]))[0, 1:-1] for one in sequences]
    assert found.shape[1] == encoder.dim
    torch.testing.assert_close(torch.from_numpy(found), torch.cat(expected), rtol=0, atol=5e-5)


def test_pseudo_perplexity_is_that_of_the_peer_with_each_token_hidden(case):
    spec, sequences, ids_of, logits_of, mask = case
    _, found = computed(spec, sequences, "pseudo_perplexity")
    expected = []
    for one in sequences:
        ids = torch.tensor(ids_of(one.decode()))
        losses = []
        for place in range(1, len(ids) - 1):
            hidden = ids.clone()
            hidden[place] = mask
            with torch.inference_mode():
                chances = logits_of(hidden[None])[0, place].log_softmax(0)
            losses.append(-chances[ids[place]])
        expected.append(torch.stack(losses).mean().exp())
    np.testing.assert_allclose(found[:, 0], torch.stack(expected), rtol=2e-5)


def test_encoders_without_a_language_model_are_refused(dnabert, prost_t5):
    for folder, _ in (dnabert(), prost_t5()):
        with pytest.raises(UsageError, match=r"no masked language model, which --outputs logits"):
            pooled_spec(open_spec(folder), Pooling(outputs="logits"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"method": "max"}, r"--outputs pseudo_perplexity: leave out --pooling and --layer"),
        ({"layers": (1,)}, r"leave out --pooling and --layer"),
        ({"long": "chunk-mean", "max_length": 9}, r"give --long truncate or refuse"),
    ],
)
def test_options_without_effect_are_refused(options, problem):
    with pytest.raises(UsageError, match=problem):
        Pooling(outputs="pseudo_perplexity", **options)


@pytest.mark.usefixtures("one_process")
def test_the_command_writes_logits_by_residue_and_one_perplexity_a_sequence(
    fair_esm, tmp_path, called, proteins, reading_here
):
    path, _ = fair_esm(2, 40, 4)
    source = tmp_path / "p.faa"
    source.write_bytes(b"".join(b">%d\n%s\n" % pair for pair in enumerate(proteins([5, 9]))))
    for outputs, shape in (("logits", (14, 33)), ("pseudo_perplexity", (2, 1))):
        out = tmp_path / outputs
        done = called(
            "embed", source, "-e", path, "-o", out, "--outputs", outputs, "--embeddings", "fp32"
        )
        assert done.returncode == 0, done.stderr
        run = json.loads((out / "run" / "run.json").read_text())
        assert inherited(EmbedOptions, run["parameters"])["outputs"] == outputs
        with h5py.File(out / "embeddings.h5") as file:
            assert file.attrs["outputs"] == outputs
            assert "pooling" not in file.attrs
            stored = file["residues" if outputs == "logits" else "embeddings"][:]
        assert stored.shape == shape
        assert np.isfinite(stored).all()
