"""``virnucpro embed``: whole sequences through one encoder."""

import random

import h5py
import numpy as np
import pytest
from cases import slow
from samples import random_records

from virnucpro.cli.main import main

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture(scope="module")
def proteins(tmp_path_factory):
    dice = random.Random(7)
    path = tmp_path_factory.mktemp("input") / "proteins.faa"
    records = [
        (f"p{number}", "".join(dice.choices("ACDEFGHIKLMNPQRSTVWY", k=dice.randint(1, 300))))
        for number in range(40)
    ]
    records += [("again", records[5][1]), ("nothing", ""), ("odd", "MKXBZUJ")]
    path.write_text("".join(f">{name}\n{letters}\n" for name, letters in records))
    return path


def read(folder):
    with h5py.File(folder / "embeddings.h5") as file:
        names = [name.decode() for name in file["sequence_ids"][:]]
        return names, file["embeddings"][:], dict(file.attrs)


@pytest.mark.parametrize("encoder", ["mini/nucleotide", slow("mini-deep/protein")])
def test_each_sequence_has_one_vector_in_input_order(encoder, proteins, tmp_path, tables):
    fasta = proteins
    if encoder.endswith("nucleotide"):
        fasta = tmp_path / "bases.fa"
        records = random_records(40, seed=7, least=1, most=300, name="p").splitlines()
        fasta.write_text("\n".join([*records, ">again", records[11], ">nothing", ""]))
    options = ["--encoder", encoder, "--embeddings", "fp32", "-q"]
    for ranks in (1, 2):
        words = ["embed", fasta, "-o", tmp_path / f"{ranks}", f"--devices=cpu:{ranks}", *options]
        assert main([*map(str, words)]) == 0
    names, vectors, attributes = read(tmp_path / "1")
    expected = [line[1:] for line in fasta.read_text().splitlines() if line[:1] == ">"]
    assert names == [name for name in expected if name != "nothing"]
    assert attributes["complete"]
    assert np.isfinite(vectors).all()
    assert (vectors[names.index("again")] == vectors[5]).all()
    assert np.abs(read(tmp_path / "2")[1] - vectors).max() <= 1e-5
    answers = tables(tmp_path / "1" / "sequences.tsv")
    assert [row["seq_name"] for row in answers] == expected
    assert {row["seq_name"] for row in answers if row["status"] != "scored"} == {"nothing"}
    numbered = [row for row in answers if row["embedding"] != "NA"]
    assert [names[int(row["embedding"])] for row in numbered] == names


def test_a_folder_named_like_a_bundle_does_not_hide_it(proteins, tmp_path, monkeypatch):
    from virnucpro.run.embed_job import embed_job

    (tmp_path / "mini" / "protein").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    by_view, by_name = (
        embed_job([str(proteins)], encoder=name, precision="fp32")
        for name in ("mini-deep/protein", "mini-deep/mini-esm2")
    )
    assert by_view.parameters() == by_name.parameters()
