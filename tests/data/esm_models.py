"""Small ESM models with random weights in Hugging Face folders."""

import pytest

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
