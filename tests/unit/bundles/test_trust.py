"""Sources that bundles state, compared with this installation's own records."""

import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from virnucpro.bundles import published
from virnucpro.bundles.archive import pack_bundle, unpack_bundle
from virnucpro.bundles.bundle import describe_bundle, open_bundle, save_bundle
from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.fetch import Listener, fetch_bundle
from virnucpro.bundles.import_head import OwnFiles, import_classifier
from virnucpro.bundles.manifest import read_bundle
from virnucpro.bundles.published import Recipe
from virnucpro.cli.main import main
from virnucpro.errors import BundleError


@pytest.fixture
def alone(recipe, monkeypatch):
    made = Recipe("esm2_tiny", "stand-in", recipe.encoders[1:], None, 500)
    monkeypatch.setitem(published._RECIPES, made.name, made)
    return made


@pytest.fixture
def fetch(data, files):
    stages = []

    def run(recipe, **options):
        silent = Listener(stages.append, lambda *_: None)
        return fetch_bundle(
            recipe, options.get("data", data), silent, source=options.get("source", files)
        )

    run.stages = stages
    return run


@pytest.fixture
def forged(fetch, tmp_path):
    """Make a packed bundle of other weights that states the sources of a published one."""

    def make(recipe, name, change=lambda manifest: manifest):
        honest = fetch(recipe, data=DataFolder(tmp_path / "elsewhere"))
        folder = shutil.copytree(honest.path, tmp_path / f"forged-{name}")
        weights = folder / "protein.safetensors"
        other = {key: torch.zeros_like(tensor) for key, tensor in load_file(weights).items()}
        save_file(other, weights)
        bundle = save_bundle(change(replace(read_bundle(folder), name=name)))
        pack_bundle(bundle, tmp_path / f"{name}.tar")
        return tmp_path / f"{name}.tar"

    return make


@pytest.mark.parametrize("content", ["", "{", "[]", '{"made_here": "head"}', "\udcff", None])
def test_a_malformed_record_is_ignored(fetch, recipe, data, content):
    fetch(recipe)
    (record,) = data.records.iterdir()
    if content is None:
        record.unlink()
    else:
        record.write_bytes(content.encode(errors="surrogateescape"))
    fetch(recipe)
    assert "virnucpro-500 was packed on another machine" in fetch.stages[-1]


def test_a_card_marks_encoders_packed_elsewhere_as_unverified(forged, fetch, recipe, files, data):
    unpack_bundle(forged(recipe, "elsewhere"), data)
    bundle = import_classifier(files / "500_model.pth", data, name="own", encoders="elsewhere")
    card = (bundle.path / "CARD.md").read_text()
    assert "licences of these publications apply: VirNucPro (Li et al.)." in card
    assert card.count("not verified: the bundle of the encoders is from another machine") == 4
    again = import_classifier(files / "500_model.pth", data, name="again", encoders="own")
    assert (again.path / "CARD.md").read_text().count("not verified") == 4


def test_a_description_says_if_a_bundle_was_not_made_here(fetch, alone, data, tmp_path):
    bundle = fetch(alone)
    assert "not made by" not in describe_bundle(bundle)
    assert "not made by" not in describe_bundle(open_bundle("mini"))
    copy = shutil.copytree(bundle.path, tmp_path / "copy")
    assert "not made by" not in describe_bundle(open_bundle(str(copy)))
    save_bundle(replace(read_bundle(copy), version="2"))
    assert "are those of its author" in describe_bundle(open_bundle(str(copy)))


def test_a_published_name_is_not_given_to_anything_else(
    fetch, recipe, alone, stand_ins, files, own, data, tmp_path
):
    fetch(recipe)
    other = tmp_path / "300_model.pth"
    stand_ins.save_as_published(stand_ins.roughen(stand_ins.MLPClassifier()), other)
    with pytest.raises(BundleError, match=r"virnucpro-300 .*the nucleotide part .*\(--name\)"):
        import_classifier(files / "500_model.pth", data, name="virnucpro-300", encoders=recipe.name)
    with pytest.raises(
        BundleError, match=r"esm2_tiny is .* has the parts head, nucleotide, protein.*--name"
    ):
        import_classifier(files / "500_model.pth", data, name="esm2_tiny", encoders=own)
    shutil.rmtree(data.bundle(recipe.name))
    with pytest.raises(BundleError, match=r"virnucpro-500 .*the head part of this bundle was made"):
        import_classifier(other, data, name="virnucpro-500", encoders=own)
    with pytest.raises(BundleError, match="windows of 300 bases instead of 500"):
        import_classifier(files / "500_model.pth", data, window=300, encoders=own)
    assert data.installed() == {}
    imported = import_classifier(files / "500_model.pth", data, encoders=own)
    assert fetch(recipe) == imported
    assert fetch.stages == [*fetch.stages[:-1], f"verifying the installed bundle {imported.path}"]


def test_fetch_refuses_another_bundle_of_the_name(fetch, recipe, stand_ins, own, data, tmp_path):
    other = tmp_path / "500_model.pth"
    stand_ins.save_as_published(stand_ins.roughen(stand_ins.MLPClassifier()), other)
    bundle = import_classifier(other, data, name="own", encoders=own)
    bundle.path.rename(data.bundle(recipe.name))
    with pytest.raises(
        BundleError, match=r"the head part .*bundles/virnucpro-500: remove or rename"
    ):
        fetch(recipe)
    shutil.rmtree(data.bundle(recipe.name))
    assert fetch(recipe).head is not None


def test_an_archive_of_unknown_sources_under_a_published_name_is_refused(forged, alone, data):
    archive = forged(alone, "esm2_tiny", lambda manifest: replace(manifest, provenance={}))
    with pytest.raises(BundleError, match=r"unknown files.*The bundle is in .*esm2_tiny\.tar"):
        unpack_bundle(archive, data)
    assert data.installed() == {}


def test_an_unpacked_bundle_is_reported_as_not_verified(fetch, recipe, data, tmp_path, called):
    honest = fetch(recipe, data=DataFolder(tmp_path / "elsewhere"))
    pack_bundle(honest, tmp_path / "packed.tar")
    output = called("bundle", "unpack", tmp_path / "packed.tar", code=0).stderr
    assert "virnucpro-500 was packed on another machine" in output
    assert f"remove {data.bundle(recipe.name)} and run: virnucpro" in output
    fetch.stages.clear()
    assert fetch(recipe).fingerprint == honest.fingerprint
    assert "virnucpro-500 was packed on another machine" in fetch.stages[-1]


def test_a_bundle_packed_here_is_recognised_when_unpacked(fetch, recipe, data, tmp_path, capsys):
    pack_bundle(fetch(recipe), tmp_path / "packed.tar")
    shutil.rmtree(data.bundle(recipe.name))
    assert main(["bundle", "unpack", str(tmp_path / "packed.tar")]) == 0
    assert "packed elsewhere" not in capsys.readouterr().err


def test_sources_are_stored_by_view_and_not_by_name(recipe, alone, fetch, files, tmp_path):
    """A folder may have the name of another part."""
    data = DataFolder(tmp_path / "data")
    folder = tmp_path / "head"
    shutil.copytree(files, folder)
    own = OwnFiles(folder, files / "esm2_tiny.pt")
    bundle = import_classifier(files / "500_model.pth", data, name="own", encoders=own)
    sources = bundle.provenance["sources"]
    assert list(sources) == ["head", "nucleotide", "protein"]
    assert list(sources["head"]) == ["500_model.pth"]
    card = (bundle.path / "CARD.md").read_text()
    assert "| head | 500_model.pth | git-blob " in card
    assert "| nucleotide: head | config.json | sha256 " in card


def test_two_encoders_of_one_name_are_refused(recipe, files, data, tmp_path):
    folder = tmp_path / "esm2_tiny"
    shutil.copytree(files, folder)
    own = OwnFiles(folder, folder / "esm2_tiny.pt")
    with pytest.raises(
        BundleError, match=r"both encoders would have the name 'esm2_tiny'\. Rename"
    ):
        import_classifier(files / "500_model.pth", data, name="mine", encoders=own)
    assert data.installed() == {}
