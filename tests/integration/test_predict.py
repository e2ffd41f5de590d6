"""The command predict with real processes and files."""

import functools
import gzip
import json

import h5py
import numpy as np
import pytest
from cases import slow

from virnucpro.cli.main import main

pytestmark = pytest.mark.usefixtures("one_process")

DEEP = ("--bundle", "mini-deep")


@pytest.fixture(scope="module")
def undisturbed_with(tmp_path_factory, small_fasta):
    """Return a function that returns the folder of an undisturbed run with the given options.

    That of mini has two workers.
    """

    @functools.cache
    def run(*options):
        folder, devices = tmp_path_factory.mktemp("undisturbed") / "run", 1 if options else 2
        command = ["predict", str(small_fasta), "-o", str(folder), f"--devices=cpu:{devices}", "-q"]
        published = ["--published-files"] if options else []
        assert main([*command, "--embeddings=fp16", *published, *options]) == 0
        return folder

    return run


@pytest.fixture
def undisturbed(undisturbed_with):
    return undisturbed_with()


@pytest.mark.parametrize("options", [(), DEEP])
def test_every_record_has_one_row_in_input_order(options, undisturbed_with, small_fasta, tables):
    undisturbed = undisturbed_with(*options)
    names = [
        line[1:].split()[0] for line in small_fasta.read_text().splitlines() if line.startswith(">")
    ]
    rows = tables(undisturbed / "predictions.tsv")
    assert [row["seq_name"] for row in rows] == names
    by_name = {row["seq_name"]: row for row in rows}
    assert by_name["one_base"]["status"] == "too_short"
    assert by_name["empty"]["status"] == "too_short"
    assert by_name["all_n"]["status"] == "ambiguous_bases"
    stops = ("scored", "composition")
    assert (by_name["stops"]["status"], by_name["stops"]["evidence"]) == stops
    # a quarter of the bases of some_n is unknown: its windows are scored, as it has no better ones
    scored = [row for row in rows if row["seq_name"].startswith(("open", "repeat", "some_n"))]
    assert {row["status"] for row in scored} == {"scored"}
    frames = {"frames", "both", "composition"}
    assert {row["evidence"] for row in scored} <= (frames if options else {"composition"})
    assert all(row["call"] in {"viral", "non-viral", "ambiguous"} for row in scored)
    assert all(row["call"] == "not_scored" for row in rows if row["status"] != "scored")
    assert not (undisturbed / "missing.tsv").exists()


def test_embeddings_are_in_input_order_with_names(undisturbed_with):
    undisturbed = undisturbed_with(*DEEP)
    lines = (undisturbed / "prediction_results.txt").read_text().splitlines()[1:]
    with h5py.File(undisturbed / "embeddings.h5") as file:
        names = file["sequence_ids"].asstr()[:]
        is_frame = np.array([not name.endswith("W") for name in names])
        names, vectors = names[is_frame].tolist(), file["embeddings"][:][is_frame]
    assert names == [line.split("\t")[0] for line in lines]
    assert vectors.shape[0] == len(names)
    assert np.isfinite(vectors).all()
    repeated = [number for number, name in enumerate(names) if name.startswith("repeat_chunk_1F1")]
    assert len(repeated) == 2
    assert (vectors[repeated[0]] == vectors[repeated[1]]).all()


def test_the_fallback_scores_the_windows_without_a_frame(undisturbed_with, tables):
    deep, mini = (undisturbed_with(*options) for options in (DEEP, ()))
    windows = [run / "tracks" / "windows.tsv" for run in (deep, mini)]
    added = 0
    for one, whole in zip(*map(tables, windows), strict=True):
        if one["evidence"] == "frames":
            continue
        assert (one["score"], one["call"], one["evidence"]) == (
            (whole["score"], whole["call"], "composition")
            if whole["status"] == "scored"
            else ("NA", "not_scored", "NA")
        )
        added += whole["status"] == "scored"
    assert added
    with h5py.File(deep / "embeddings.h5") as file:
        names, vectors = file["sequence_ids"].asstr()[:], file["embeddings"][:]
    fallback = np.array([name.endswith("W") for name in names])
    assert fallback.sum() == added
    assert np.isnan(vectors).all(axis=1).tolist() == fallback.tolist()
    assert main(["verify", str(deep)]) == 0


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        ("cpu:1", ()),
        slow("cpu:3", ()),
        slow("cpu:3", DEEP),
        slow("cpu:2", DEEP),
    ],
)
def test_the_table_does_not_depend_on_the_number_of_ranks(
    undisturbed_with, small_fasta, tmp_path, called, difference_of, devices, options
):
    command = ("predict", small_fasta, "-o", tmp_path / "run", "--devices", devices, *options)
    command += ("--embeddings", *(["--published-files"] if options else []))
    called(*command, code=0)
    assert difference_of(undisturbed_with(*options), tmp_path / "run") == []


def test_run_json_records_parameters_and_versions(undisturbed, small_fasta):
    content = json.loads((undisturbed / "run" / "run.json").read_text())
    assert content["parameters"]["bundle"] == "mini"
    assert content["inputs"][0]["path"] == str(small_fasta)
    assert content["counts"]["records"] == 55
    assert content["versions"]["torch"]
    assert set(content["launches"][0]["ranks"]) == {"0", "1"}
    # On a busy machine one rank may have computed all units before the other one is up.
    rank = max(content["launches"][0]["ranks"].values(), key=lambda rank: rank.get("tokens", 0))
    assert rank["seconds"]["encode"] > 0
    assert rank["tokens"] > rank["batches"] > 0
    assert 0 <= rank["unused"] < 1


def test_a_run_is_not_overwritten_without_force(undisturbed, small_fasta, called):
    refused = called("predict", small_fasta, "-o", undisturbed, code=1)
    assert "--resume" in refused.stderr
    assert "--force" in refused.stderr


def test_standard_input_and_compressed_input_give_the_same_table(
    undisturbed, small_fasta, tmp_path, virnucpro, called, difference_of, monkeypatch, tables
):
    packed = tmp_path / "small.fa.gz"
    packed.write_bytes(gzip.compress(small_fasta.read_bytes()))
    with packed.open("rb") as stream:
        done = virnucpro("predict", "-", "-o", tmp_path / "run", "--devices", "cpu:1", stdin=stream)
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed, tmp_path / "run") == []
    assert {row["file"] for row in tables(tmp_path / "run" / "predictions.tsv")} == {"stdin"}
    with small_fasta.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        called("predict", "-", "-o", tmp_path / "run", "--resume", code=0)


def test_an_empty_file_gives_header_only_tables(tmp_path, called, tables):
    (tmp_path / "empty.fa").touch()
    called("predict", tmp_path / "empty.fa", "-o", tmp_path / "run", code=0)
    for name in ("predictions.tsv", "tracks/windows.tsv"):
        assert len((tmp_path / "run" / name).read_text().splitlines()) == 1
    assert not list((tmp_path / "run").glob("prediction_results*"))
    assert not (tmp_path / "run" / "embeddings.h5").exists()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["a.fa", "a.fa"], ["a.fa", "a.fa#2"]),
        (["a.fa", "a.fa", "a.fa#2"], ["a.fa", "a.fa#3", "a.fa#2"]),
        (["a.fa#2", "a.fa", "a.fa#2", "a.fa"], ["a.fa#2", "a.fa", "a.fa#2#2", "a.fa#3"]),
    ],
)
def test_records_of_a_file_given_twice_can_be_told_apart(given, named, tmp_path, tables):
    paths = [tmp_path / name for name in given]
    for path in paths:
        path.write_text(">a\n" + "ACGTTGCA" * 40 + "\n")
    assert main(["predict", *map(str, paths), "-o", str(tmp_path / "run"), "-q"]) == 0
    for name in ("predictions.tsv", "tracks/windows.tsv"):
        rows = tables(tmp_path / "run" / name)
        found = dict.fromkeys((row["file"], row["record"]) for row in rows)
        assert [*found] == [(str(tmp_path / one), "1") for one in named]


def test_a_resume_keeps_or_adds_what_a_run_writes(tmp_path, small_fasta):
    """A resume keeps the stored vectors; the published tables can be added and omitted later."""
    folder = tmp_path / "run"
    command = ["predict", str(small_fasta), "-o", str(folder), "--devices", "cpu:1", "-q", *DEEP]
    published = folder / "prediction_results_highestscore.csv"
    assert main([*command, "--embeddings"]) == 0
    assert not published.exists()
    (folder / "embeddings.h5").unlink()
    assert main([*command, "--resume", "--published-files"]) == 0
    assert published.exists()
    assert (folder / "embeddings.h5").exists()
    published.unlink()
    assert main([*command, "--resume"]) == 0
    assert published.exists()
    assert main([*command, "--resume", "--embeddings", "none"]) == 1  # segments with vectors
