"""Small ESM models with random weights in Hugging Face folders; fair-esm's vectors."""

import pytest
import torch
from esm.pretrained import load_model_and_alphabet_core

from virnucpro.encoders.esm2.config import TOKENS

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def save_esm_tokenizer(folder, tokens, **options):
    """Save the tokenizer of transformers for a list of tokens; return it."""
    transformers = pytest.importorskip("transformers")
    (folder / "vocab.txt").write_text("\n".join(tokens))
    tokenizer = transformers.EsmTokenizer(str(folder / "vocab.txt"), **options)
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_esm2(folder, **settings):
    """Save the tokenizer of ESM-2, and return a model of transformers with its language head."""
    transformers = pytest.importorskip("transformers")
    save_esm_tokenizer(folder, TOKENS)
    config = transformers.EsmConfig(
        **SMALL,
        vocab_size=33,
        intermediate_size=128,
        pad_token_id=1,
        mask_token_id=32,
        position_embedding_type="rotary",
        token_dropout=True,
        layer_norm_eps=1e-5,
        emb_layer_norm_before=False,
        **settings,
    )
    return transformers.EsmForMaskedLM(config)


def fair_esms_own(path):
    """Load a checkpoint as fair-esm does, with the numbers of the file."""
    with pytest.warns(UserWarning, match="Regression weights not found"):
        model, _ = load_model_and_alphabet_core(path.stem, torch.load(path, weights_only=False))
    return model.eval()


def fair_esms_states(model, sequence, layers):
    """Return fair-esm's states of <cls>, residues and <eos> for each layer."""
    _, _, tokens = model.alphabet.get_batch_converter()([("", sequence.decode())])
    with torch.no_grad():
        states = model(tokens, repr_layers=layers)["representations"]
    return [states[layer][0] for layer in layers]


def fair_esms_vectors(model, sequences):
    """Return fair-esm's means over residues, (n, dim), one sequence at a time."""
    last = [model.num_layers]
    return torch.stack([fair_esms_states(model, one, last)[0][1:-1].mean(0) for one in sequences])
