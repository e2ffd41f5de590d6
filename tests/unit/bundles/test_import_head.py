import os
import shutil
import subprocess
import sys

import pytest

from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.fetch import Listener, fetch_bundle
from virnucpro.bundles.import_head import OwnFiles, import_classifier
from virnucpro.bundles.published import sources_of
from virnucpro.cli.main import main
from virnucpro.errors import BundleError, UsageError


@pytest.fixture
def own(files):
    return OwnFiles(files, files / "esm2_tiny.pt")


def test_with_encoders_from_files(data, files, own):
    bundle = import_classifier(files / "500_model.pth", data, encoders=own)
    assert (bundle.name, bundle.window, bundle.tiling) == ("500_model", 500, "published")
    assert [spec.name for spec in bundle.encoders] == [files.name, "esm2_tiny"]
    assert bundle.path == data.bundle("500_model")
    sources = bundle.provenance["sources"]
    assert list(sources["head"]) == ["500_model.pth"]


def test_published_files_are_known_by_their_publishers_digests(data, files, own, recipe):
    bundle = import_classifier(files / "500_model.pth", data, name="other", encoders=own)
    sources = bundle.provenance["sources"]
    assert sources["protein"] == sources_of(recipe.encoders[1].files)
    assert sources["head"] == sources_of((recipe.head,))


def test_the_card_says_whose_work_it_is_where_digests_tell(data, files, own, recipe):
    bundle = import_classifier(files / "500_model.pth", data, encoders=own)
    card = (bundle.path / "CARD.md").read_text()
    assert "own licences: DNABERT-S (Zhou et al. 2024), ESM-2 (Lin et al. 2023), VirNucPro" in card
    assert "| head | 500_model.pth | git-blob " in card
    assert "no published file" not in card
    assert bundle.description == "a VirNucPro classifier, imported from 500_model.pth"


def test_the_card_names_nobody_where_no_digest_is_a_published_one(data, files, own):
    bundle = import_classifier(files / "500_model.pth", data, encoders=own)
    card = (bundle.path / "CARD.md").read_text()
    assert "None of the files is known to be a published one" in card
    assert card.count("no published file that is known |") == 5
    for name in ("Zhou", "Lin et al", "Li et al", "publishers' own"):
        assert name not in card
    assert bundle.description == "a classifier of VirNucPro's layers, imported from 500_model.pth"


def test_the_card_of_published_encoders_under_an_own_head(data, files, recipe, stand_ins, tmp_path):
    fetch_bundle(recipe, data, Listener(lambda _: None, lambda *_: None), source=files)
    stand_ins.save_as_published(
        stand_ins.roughen(stand_ins.MLPClassifier()), tmp_path / "300_model.pth"
    )
    card = (import_classifier(tmp_path / "300_model.pth", data).path / "CARD.md").read_text()
    assert "own licences: DNABERT-S (Zhou et al. 2024), ESM-2 (Lin et al. 2023). What is no" in card
    assert card.count("no published file that is known |") == 1


def test_weights_as_safetensors_do_as_well(data, files, own, tmp_path, stand_ins):
    import torch
    from safetensors.torch import save_file

    folder = tmp_path / "DNABERT-S"
    folder.mkdir()
    stand_ins.write_dnabert_s(folder)
    save_file(
        torch.load(folder / "pytorch_model.bin", weights_only=True), folder / "model.safetensors"
    )
    (folder / "pytorch_model.bin").unlink()
    from_bin = import_classifier(files / "500_model.pth", data, name="one", encoders=own)
    other = OwnFiles(folder, own.protein)
    from_safe = import_classifier(files / "500_model.pth", data, name="two", encoders=other)
    assert from_bin.fingerprint == from_safe.fingerprint


def test_alone_with_the_encoders_of_an_installed_bundle(data, files, recipe, stand_ins, tmp_path):
    silent = Listener(lambda _: None, lambda *_: None)
    fetched = fetch_bundle(recipe, data, silent, source=files)
    stand_ins.save_as_published(
        stand_ins.roughen(stand_ins.MLPClassifier()), tmp_path / "300_model.pth"
    )
    bundle = import_classifier(tmp_path / "300_model.pth", data)
    assert bundle.window == 300
    assert bundle.encoders[0].config == fetched.encoders[0].config
    named = import_classifier(
        tmp_path / "300_model.pth", data, name="named", encoders=fetched.name, window=77
    )
    assert (named.name, named.window) == ("named", 77)
    assert named.encoders[1].config == fetched.encoders[1].config


def test_a_published_classifier_is_known_by_its_content(data, files, recipe, own, tmp_path):
    (tmp_path / "renamed.pth").write_bytes((files / "500_model.pth").read_bytes())
    bundle = import_classifier(tmp_path / "renamed.pth", data, encoders=own)
    assert (bundle.name, bundle.window) == (recipe.name, recipe.window)


def test_without_encoders_it_says_where_to_get_them(data, files):
    with pytest.raises(UsageError, match=r"bundle fetch virnucpro-500.*--nucleotide and --protein"):
        import_classifier(files / "500_model.pth", data)
    with pytest.raises(UsageError, match="no bundle 'other' is installed"):
        import_classifier(files / "500_model.pth", data, encoders="other")


def test_a_window_that_no_name_tells_is_asked_for(data, files, own, tmp_path):
    (tmp_path / "best.pth").write_bytes((files / "500_model.pth").read_bytes())
    with pytest.raises(UsageError, match="give --window"):
        import_classifier(tmp_path / "best.pth", data, encoders=own)


def test_a_classifier_of_other_vectors_is_refused_and_nothing_is_installed(
    data, own, tmp_path, stand_ins
):
    stand_ins.write_classifier(tmp_path / "500_model.pth", wide=57)
    with pytest.raises(BundleError, match=r"reads vectors of 57 numbers.* give 56 together"):
        import_classifier(tmp_path / "500_model.pth", data, encoders=own)
    assert list(data.bundles.iterdir()) == []


@pytest.mark.parametrize("name", ["mini", "../x", "taken"])
def test_a_name_that_cannot_be_is_refused(data, files, own, name):
    import_classifier(files / "500_model.pth", data, name="taken", encoders=own)
    with pytest.raises(BundleError, match="name"):
        import_classifier(files / "500_model.pth", data, name=name, encoders=own)


def test_swapped_files_are_refused(data, files, own):
    with pytest.raises(BundleError, match=r"names argparse\.Namespace, which is no part"):
        import_classifier(files / "esm2_tiny.pt", data, window=500, encoders=own)
    swapped = OwnFiles(files, files / "500_model.pth")
    with pytest.raises(BundleError, match=r"500_model\.pth: holds no encoder that is known"):
        import_classifier(files / "500_model.pth", data, encoders=swapped)
    nowhere = OwnFiles(files.parent, files / "esm2_tiny.pt")
    with pytest.raises(BundleError, match=r"it lacks config\.json.*model\.safetensors or pytorch"):
        import_classifier(files / "500_model.pth", data, encoders=nowhere)


def test_the_commands_pack_unpack_and_import(data, files, tmp_path, capsys, monkeypatch):
    classifier, packed = str(files / "500_model.pth"), str(tmp_path / "one.tar")
    own = ["--nucleotide", str(files), "--protein", str(files / "esm2_tiny.pt")]
    assert main(["bundle", "import", classifier, "--name", "one", *own]) == 0
    assert main(["bundle", "pack", "one", "-o", packed]) == 0
    assert main(["bundle", "unpack", packed]) == 1
    assert "Remove that folder first" in capsys.readouterr().err
    monkeypatch.setenv("VIRNUCPRO_DATA", str(tmp_path / "elsewhere"))
    assert main(["bundle", "unpack", packed]) == 0
    assert capsys.readouterr().out.startswith(f"one\t{tmp_path / 'elsewhere'}")
    assert main(["bundle", "verify", "one"]) == 0
    assert main(["bundle", "verify", "one", "--golden"]) == 1
    assert "no reference figures are recorded" in capsys.readouterr().err
    assert main(["bundle", "import", classifier, *own[:2]]) == 64
    assert main(["bundle", "import", classifier, *own, "--encoders", "one"]) == 64


def test_an_installation_that_is_killed_leaves_nothing_and_the_next_one_cleans_up(
    data, files, own, tmp_path
):
    script = (
        "import os, sys, pathlib, virnucpro.bundles.assemble as a\n"
        "from virnucpro.bundles.data_folder import data_folder\n"
        "from virnucpro.bundles.import_head import OwnFiles, import_classifier\n"
        "a._write_card = lambda *_: os._exit(9)\n"
        "files = pathlib.Path(sys.argv[1])\n"
        "own = OwnFiles(files, files / 'esm2_tiny.pt')\n"
        "import_classifier(files / '500_model.pth', data_folder(), encoders=own)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, files], env=os.environ, check=False)
    assert done.returncode == 9
    left = [path.name for path in data.bundles.iterdir()]
    assert len(left) == 1
    assert left[0].endswith(".tmp")
    assert data.installed() == {}
    import_classifier(files / "500_model.pth", data, encoders=own)
    assert [path.name for path in data.bundles.iterdir()] == ["500_model"]


@pytest.mark.parametrize("name", [b"500_model_\xff.pth", b"500_model\n|\x1b[2J.pth"])
def test_a_classifiers_name_may_be_any(data, files, own, tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    path.write_bytes((files / "500_model.pth").read_bytes())
    bundle = import_classifier(path, data, name="own", encoders=own)
    (shown,) = bundle.provenance["sources"]["head"]
    assert shown.isprintable()
    assert shown.startswith("500_model")
    (row,) = [line for line in (bundle.path / "CARD.md").read_text().splitlines() if "head" in line]
    assert row.replace("\\|", "").count("|") == 5
    with pytest.raises(BundleError, match="cannot be a bundle's name"):
        import_classifier(path, data, encoders=own)


def test_paths_that_are_no_text_are_refused_at_once_and_rightly(data, files, own, tmp_path, recipe):
    odd = tmp_path / os.fsdecode(b"odd\xff")
    odd.symlink_to(files)
    silent = Listener(lambda _: None, lambda *_: None)
    for act in (
        lambda: import_classifier(
            files / "500_model.pth", data, encoders=OwnFiles(odd, own.protein)
        ),
        lambda: import_classifier(
            files / "500_model.pth", data, encoders=OwnFiles(files, odd / "esm2_tiny.pt")
        ),
        lambda: fetch_bundle(recipe, data, silent, source=odd),
        lambda: fetch_bundle(recipe, DataFolder(odd / "data"), silent, source=files),
    ):
        with pytest.raises(BundleError, match=r"odd.*bytes in this path that are not UTF-8"):
            act()
    assert data.installed() == {}


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("99999999999999999999999999_model.pth", None),
        ("2_model.pth", None),
        ("0_model.pth", None),
        ("500_model.pth", 2),
        ("500_model.pth", 0),
        ("500_model.pth", 2**31),
        ("500_model.pth", 5 * 10**21),
    ],
)
def test_a_window_that_no_run_could_cut_is_refused(data, files, own, tmp_path, name, window):
    path = tmp_path / name
    path.write_bytes((files / "500_model.pth").read_bytes())
    with pytest.raises(UsageError, match=r"no window can have .*from 3 to 2,147,483,647"):
        import_classifier(path, data, window=window, encoders=own)


@pytest.mark.parametrize("window", [3, 2**31 - 1])
def test_the_least_and_the_most_window_are_taken(data, files, own, window):
    bundle = import_classifier(files / "500_model.pth", data, window=window, encoders=own)
    assert bundle.window == window


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_classifier_with_numbers_that_are_none_is_refused(data, own, tmp_path, stand_ins, value):
    module = stand_ins.roughen(stand_ins.MLPClassifier())
    module.output_layer.bias.data[1] = value
    stand_ins.save_as_published(module, tmp_path / "500_model.pth")
    with pytest.raises(BundleError, match=r"500_model\.pth: tensor 'output\.bias' holds numbers"):
        import_classifier(tmp_path / "500_model.pth", data, encoders=own)
    assert data.installed() == {}


def test_the_file_that_is_missing_is_named(data, files, own, tmp_path):
    folder = tmp_path / "DNABERT-S"
    shutil.copytree(files, folder)
    (folder / "config.json").unlink()
    with pytest.raises(BundleError, match=r"it lacks config\.json\. Give"):
        import_classifier(files / "500_model.pth", data, encoders=OwnFiles(folder, own.protein))
    with pytest.raises(BundleError, match=r"none\.pt: cannot be read \(No such file.*its path"):
        import_classifier(
            files / "500_model.pth", data, encoders=OwnFiles(files, tmp_path / "none.pt")
        )


@pytest.mark.parametrize(
    "arguments",
    [
        ["import", "500_model.pth", "--encoders", ""],
        ["import", "500_model.pth", "--name", ""],
        ["import", ""],
        ["fetch", "virnucpro-500", "--from", ""],
        ["show", ""],
        ["unpack", ""],
        ["pack", "mini", "-o", ""],
    ],
)
def test_what_is_empty_is_refused(data, capsys, arguments):
    with pytest.raises(SystemExit, match="64"):
        main(["bundle", *arguments])
    assert "is empty" in capsys.readouterr().err


def test_published_files_are_looked_for_in_a_folder(data, files, recipe, capsys):
    assert main(["bundle", "fetch", recipe.name, "--from", str(files / "config.json")]) == 1
    assert "config.json: is no folder. Give one" in capsys.readouterr().err
