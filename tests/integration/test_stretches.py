"""Bundles whose items are the longest stretches of windows: predict, ranks, resume."""

import json
import shutil

import pytest
from cases import slow

from virnucpro.bundles.bundle import embedded_names, find_bundle, open_bundle
from virnucpro.cli.main import main
from virnucpro.joined import remove
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex

pytestmark = pytest.mark.usefixtures("one_process")

EXACT = {"seq_name", "window", "status", "evidence", "best_frame", "n_items", "start", "end"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The encoders and head of mini-deep with longest stretches as items."""
    folder = tmp_path_factory.mktemp("bundles") / "stretches"
    shutil.copytree(find_bundle("mini-deep"), folder)
    manifest = json.loads((folder / "bundle.json").read_text())
    manifest |= {"name": "stretches", "items": "longest_stretch"}
    (folder / "bundle.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="module")
def few(small_fasta, tmp_path_factory):
    """The last twenty of the records: several units."""
    path = tmp_path_factory.mktemp("input") / "few.fa"
    path.write_text(">" + ">".join(small_fasta.read_text().split(">")[-20:]))
    return path


@pytest.fixture(scope="module")
def run(bundle, few, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stretches") / "run"
    assert main(command(bundle, few, folder, "cpu:1")) == 0
    return folder


def command(bundle, fasta, folder, devices, *options):
    words = ["predict", fasta, "-o", folder, "-b", bundle, "--devices", devices, "-q", *options]
    return list(map(str, words))


def test_the_bundle_has_its_own_identity(bundle):
    assert open_bundle(str(bundle)).fingerprint != open_bundle("mini-deep").fingerprint
    assert "mini-deep" in embedded_names()


def test_each_window_is_answered_by_its_stretch_or_the_fallback(run, tables):
    index = SequenceIndex.open(run / "run" / "index")
    assert (index.spec.kind, index.spec.fallback) == ("stretches", True)
    rows = tables(run / "tracks" / "windows.tsv")
    assert {row["n_items"] for row in rows if row["status"] == "scored"} == {"1"}
    for row in rows:
        if row["seq_name"].startswith(("open", "repeat")) and int(row["end"]) >= 90:
            assert (row["status"], row["evidence"]) == ("scored", "frames")
    stops = [row for row in rows if row["seq_name"] == "stops"]
    assert {(row["status"], row["evidence"]) for row in stops} == {("scored", "composition")}


@pytest.mark.parametrize("devices", ["cpu:1", slow("cpu:2")])
def test_ranks_and_lost_segments_change_nothing(devices, run, bundle, few, tmp_path, tables):
    folder = tmp_path / "run"
    if devices == "cpu:1":
        shutil.copytree(run, folder)
    else:
        assert main(command(bundle, few, folder, devices)) == 0
    segments = RunDirectory(folder).segments()
    assert len(segments) > 1
    for _, path in segments[::2]:
        remove(path)
    assert main(command(bundle, few, folder, "cpu:1", "--resume")) == 0
    assert main(["verify", str(folder)]) == 0
    for name in ("predictions.tsv", "tracks/windows.tsv"):
        for one, expected in zip(tables(folder / name), tables(run / name), strict=True):
            assert {key: one[key] for key in EXACT & one.keys()} == {
                key: expected[key] for key in EXACT & expected.keys()
            }
            assert (one["score"] == "NA") == (expected["score"] == "NA")
            if one["score"] != "NA":
                assert float(one["score"]) == pytest.approx(float(expected["score"]), abs=2e-4)
