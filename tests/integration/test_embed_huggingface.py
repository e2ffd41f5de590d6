"""``virnucpro embed`` with a Hugging Face folder: Nucleotide Transformer's kind of model."""

import itertools
import random

import h5py
import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.timeout(110), pytest.mark.usefixtures("one_process")]


def test_a_local_folder_is_an_encoder(tmp_path, called):
    transformers = pytest.importorskip("transformers")
    folder, dice = tmp_path / "model", random.Random(2)
    folder.mkdir()
    kmers = ["".join(one) for one in itertools.product("ACGT", repeat=3)]
    tokens = ["<unk>", "<pad>", "<mask>", "<cls>", *kmers, *"ATCGN"]
    (folder / "vocab.txt").write_text("\n".join(tokens))
    tokenizer = transformers.EsmTokenizer(str(folder / "vocab.txt"), eos_token=None)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(2)
    config = transformers.EsmConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        pad_token_id=1,
        mask_token_id=2,
        position_embedding_type="absolute",
        max_position_embeddings=102,
    )
    model = transformers.EsmModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    records = ["".join(dice.choices("ACGT", k=length)) for length in (30, 297, 100, 301, 31)]
    fasta = tmp_path / "contigs.fa"
    fasta.write_text("".join(f">c{i}\n{record}\n" for i, record in enumerate(records)))

    run = ("embed", fasta, "-e", folder, "--embeddings", "fp32", "--devices", "cpu:1")
    done = called(*run, "-o", tmp_path / "run", "--long", "truncate")
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "run" / "embeddings.h5") as file:
        vectors = file["embeddings"][:]
    for record, vector in zip(records, vectors, strict=True):
        ids = torch.tensor([tokenizer(record)["input_ids"]])[:, :100]
        with torch.inference_mode():
            states = model(ids).last_hidden_state[0, 1:]
        assert np.abs(states.mean(0).numpy() - vector).max() <= 2e-5
