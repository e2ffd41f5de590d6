import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from virnucpro.bundles import published
from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.fetch import Listener, fetch_bundle
from virnucpro.bundles.import_head import OwnFiles, import_classifier
from virnucpro.bundles.published import sources_of
from virnucpro.cli.main import main
from virnucpro.errors import BundleError, UsageError

SILENT = Listener(lambda _: None, lambda *_: None)
OUT_OF_RANGE = r"a window cannot have .*from 3 to 2,147,483,647"


def test_import_with_encoders_from_files(data, files, own):
    bundle = import_classifier(files / "500_model.pth", data, encoders=own)
    assert (bundle.name, bundle.window, bundle.tiling) == ("500_model", 500, "published")
    assert [spec.name for spec in bundle.encoders] == [files.name, "esm2_tiny"]
    assert bundle.path == data.bundle("500_model")
    sources = bundle.provenance["sources"]
    assert list(sources["head"]) == ["500_model.pth"]


def test_published_files_are_recognised_by_their_content(data, files, own, recipe, tmp_path):
    (tmp_path / "renamed.pth").write_bytes((files / "500_model.pth").read_bytes())
    bundle = import_classifier(tmp_path / "renamed.pth", data, encoders=own)
    assert (bundle.name, bundle.window) == (recipe.name, recipe.window)
    sources = bundle.provenance["sources"]
    assert sources["protein"] == sources_of(recipe.encoders[1].files)
    assert [*sources["head"].values()] == [*sources_of((recipe.head,)).values()]
    card = (bundle.path / "CARD.md").read_text()
    assert "apply: DNABERT-S (Zhou et al. 2024), ESM-2 (Lin et al. 2023), VirNucPro" in card
    assert "| head | renamed.pth | git-blob " in card
    assert "unknown" not in card
    assert bundle.description == "a VirNucPro classifier, imported from renamed.pth"


def test_the_card_names_no_publication_of_unknown_files(data, files, own):
    bundle = import_classifier(files / "500_model.pth", data, encoders=own)
    card = (bundle.path / "CARD.md").read_text()
    assert card.count("| unknown |") == 5
    for name in ("Zhou", "Lin et al", "Li et al", "licences"):
        assert name not in card
    assert bundle.description == "a classifier of VirNucPro's layers, imported from 500_model.pth"


def test_dnabert_s_weights_may_be_safetensors(data, files, own, tmp_path, stand_ins):
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


def test_import_with_the_encoders_of_an_installed_bundle(data, files, recipe, stand_ins, tmp_path):
    fetched = fetch_bundle(recipe, data, SILENT, source=files)
    stand_ins.save_as_published(
        stand_ins.roughen(stand_ins.MLPClassifier()), tmp_path / "300_model.pth"
    )
    bundle = import_classifier(tmp_path / "300_model.pth", data)
    assert bundle.window == 300
    assert bundle.encoders[0].config == fetched.encoders[0].config
    card = (bundle.path / "CARD.md").read_text()
    assert "apply: DNABERT-S (Zhou et al. 2024), ESM-2 (Lin et al. 2023)." in card
    assert card.count("| unknown |") == 1  # the head
    named = import_classifier(
        tmp_path / "300_model.pth", data, name="named", encoders=fetched.name, window=77
    )
    assert (named.name, named.window) == ("named", 77)
    assert named.encoders[1].config == fetched.encoders[1].config


def test_missing_encoders_are_an_error_with_advice(data, files):
    with pytest.raises(UsageError, match=r"bundle fetch virnucpro-500.*--nucleotide and --protein"):
        import_classifier(files / "500_model.pth", data)
    with pytest.raises(UsageError, match="bundle 'other' is not installed"):
        import_classifier(files / "500_model.pth", data, encoders="other")


def test_a_classifier_of_other_vectors_is_not_installed(data, own, tmp_path, stand_ins):
    stand_ins.write_classifier(tmp_path / "500_model.pth", wide=57)
    with pytest.raises(BundleError, match=r"needs vectors of 57 numbers.* give vectors of 56"):
        import_classifier(tmp_path / "500_model.pth", data, encoders=own)
    assert list(data.bundles.iterdir()) == []


def test_swapped_files_are_refused(data, files, own):
    with pytest.raises(BundleError, match="layer 'hidden_layer' is missing"):
        import_classifier(files / "esm2_tiny.pt", data, window=500, encoders=own)
    swapped = OwnFiles(files, files / "500_model.pth")
    with pytest.raises(BundleError, match=r"500_model\.pth"):
        import_classifier(files / "500_model.pth", data, encoders=swapped)
    nowhere = OwnFiles(files.parent, files / "esm2_tiny.pt")
    with pytest.raises(
        BundleError, match=r"config\.json.*model\.safetensors or pytorch\S+ is missing"
    ):
        import_classifier(files / "500_model.pth", data, encoders=nowhere)


@pytest.mark.usefixtures("reading_here")
def test_the_commands_pack_unpack_and_import(data, files, tmp_path, capsys, called, monkeypatch):
    classifier, packed = str(files / "500_model.pth"), str(tmp_path / "one.tar")
    own = ["--nucleotide", str(files), "--protein", str(files / "esm2_tiny.pt")]
    assert main(["bundle", "import", classifier, "--name", "one", *own]) == 0
    assert main(["bundle", "pack", "one", "-o", packed]) == 0
    assert "Remove that folder first" in called("bundle", "unpack", packed, code=1).stderr
    monkeypatch.setenv("VIRNUCPRO_DATA", str(tmp_path / "elsewhere"))
    assert main(["bundle", "unpack", packed]) == 0
    assert capsys.readouterr().out.startswith(f"one\t{tmp_path / 'elsewhere'}")
    assert main(["bundle", "verify", "one"]) == 0
    assert main(["bundle", "verify", "one", "--golden"]) == 1
    assert "no reference values are recorded" in capsys.readouterr().err
    assert main(["bundle", "import", classifier, *own[:2]]) == 64
    assert main(["bundle", "import", classifier, *own, "--encoders", "one"]) == 64


def nest(path):
    """Write a checkpoint that crashes every reader: its hash recurses without a check."""
    path.unlink()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02})" + b"\x85" * 900_000 + b"Ns.")
        archive.writestr("archive/version", "3")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name"), [("import", "500_model.pth"), ("fetch", "pytorch_model.bin")]
)
def test_a_nested_checkpoint_is_one_clear_error_and_leaves_nothing(
    data, files, tmp_path, stand_ins, monkeypatch, called, command, name
):
    folder = shutil.copytree(files, tmp_path / "nested")
    nest(folder / name)
    recipe = stand_ins.recipe_of_files(folder)
    monkeypatch.setitem(published._RECIPES, recipe.name, recipe)
    own = ["--nucleotide", str(folder), "--protein", str(folder / "esm2_tiny.pt")]
    arguments = {
        "import": ["import", str(folder / name), *own],
        "fetch": ["fetch", recipe.name, "--from", str(folder)],
    }
    output = called("bundle", *arguments[command], code=1).stderr
    assert f"{name}: the process that reads it failed: killed by SIGSEGV" in output
    assert [path for path in data.root.rglob("*") if path.is_file()] == [data.root / "lock"]
    assert list(data.bundles.iterdir()) == []


@pytest.mark.slow
def test_an_installation_that_is_killed_leaves_nothing_and_the_next_one_cleans_up(
    data, files, own, tmp_path
):
    script = (
        "import os, sys, pathlib, virnucpro.bundles.install as a\n"
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


def test_control_characters_of_a_classifiers_name_are_escaped(data, files, own, tmp_path):
    path = tmp_path / "500_model\n|\x1b[2J.pth"
    path.write_bytes((files / "500_model.pth").read_bytes())
    bundle = import_classifier(path, data, name="own", encoders=own)
    (shown,) = bundle.provenance["sources"]["head"]
    assert shown.isprintable()
    assert shown.startswith("500_model")
    (row,) = [line for line in (bundle.path / "CARD.md").read_text().splitlines() if "head" in line]
    assert row.replace("\\|", "").count("|") == 5
    with pytest.raises(BundleError, match="cannot be a bundle's name"):
        import_classifier(path, data, encoders=own)


def test_paths_that_are_not_utf8_are_refused(data, files, own, tmp_path, recipe):
    odd = tmp_path / os.fsdecode(b"odd\xff")
    odd.symlink_to(files)
    head = files / "500_model.pth"
    for act in (
        lambda: import_classifier(head, data, encoders=OwnFiles(odd, own.protein)),
        lambda: import_classifier(head, data, encoders=OwnFiles(files, odd / "esm2_tiny.pt")),
        lambda: import_classifier(odd / head.name, data, encoders=own),
        lambda: fetch_bundle(recipe, data, SILENT, source=odd),
        lambda: fetch_bundle(recipe, DataFolder(odd / "data"), SILENT, source=files),
    ):
        with pytest.raises(BundleError, match=r"odd.*this path contains bytes that are not UTF-8"):
            act()
    assert data.installed() == {}


@pytest.mark.parametrize(
    ("name", "window", "message"),
    [
        ("best.pth", None, "give --window"),
        ("99999999999999999999999999_model.pth", None, OUT_OF_RANGE),
        ("2_model.pth", None, OUT_OF_RANGE),
        ("0_model.pth", None, OUT_OF_RANGE),
        *(("500_model.pth", window, OUT_OF_RANGE) for window in (2, 0, 2**31, 5 * 10**21)),
    ],
)
def test_a_missing_or_invalid_window_is_refused(data, files, own, tmp_path, name, window, message):
    path = tmp_path / name
    path.write_bytes((files / "500_model.pth").read_bytes())
    with pytest.raises(UsageError, match=message):
        import_classifier(path, data, window=window, encoders=own)


@pytest.mark.parametrize("window", [3, 2**31 - 1])
def test_the_smallest_and_largest_window_are_accepted(data, files, own, window):
    bundle = import_classifier(files / "500_model.pth", data, window=window, encoders=own)
    assert bundle.window == window


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_classifier_with_nan_or_infinity_is_refused(data, own, tmp_path, stand_ins, value):
    module = stand_ins.roughen(stand_ins.MLPClassifier())
    module.output_layer.bias.data[1] = value
    stand_ins.save_as_published(module, tmp_path / "500_model.pth")
    with pytest.raises(BundleError, match=r"500_model\.pth: tensor 'output\.bias' contains"):
        import_classifier(tmp_path / "500_model.pth", data, encoders=own)
    assert data.installed() == {}


def test_a_missing_file_is_named(data, files, own, tmp_path):
    folder = tmp_path / "DNABERT-S"
    shutil.copytree(files, folder)
    (folder / "config.json").unlink()
    with pytest.raises(BundleError, match=r"config\.json is missing\. Give"):
        import_classifier(files / "500_model.pth", data, encoders=OwnFiles(folder, own.protein))
    with pytest.raises(BundleError, match=r"none\.pt: cannot be read \(No such file.*its path"):
        import_classifier(
            files / "500_model.pth", data, encoders=OwnFiles(files, tmp_path / "none.pt")
        )


def test_fetch_from_a_file_is_refused(data, files, recipe, capsys):
    assert main(["bundle", "fetch", recipe.name, "--from", str(files / "config.json")]) == 1
    assert "config.json: is not a folder. Give a folder" in capsys.readouterr().err
