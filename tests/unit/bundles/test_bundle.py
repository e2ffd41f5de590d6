import hashlib
import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from samples import CALIBRATION

from virnucpro.bundles.bundle import describe_bundle, list_bundles, open_bundle
from virnucpro.classifier.head import head_shapes
from virnucpro.errors import BundleError, UsageError
from virnucpro.run.embed_job import find_encoder


def digest_anew(folder, name):
    """Update the digest of a file in the manifest."""
    data = (folder / name).read_bytes()
    path = folder / "bundle.json"
    content = json.loads(path.read_text())
    content["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    path.write_text(json.dumps(content))


def test_a_bundle_opens_with_every_field_of_its_manifest(bundle_folder, monkeypatch):
    monkeypatch.chdir(bundle_folder.parent)
    bundle = open_bundle("tiny")
    assert (bundle.name, bundle.version, bundle.description) == ("tiny", "1.0", "for tests")
    assert [(e.view, e.architecture, e.dim) for e in bundle.encoders] == [
        ("nucleotide", "dnabert_s", 8),
        ("protein", "esm2", 4),
    ]
    assert bundle.encoders[0].file("tokenizer") == bundle_folder / "tokenizer.json"
    assert bundle.head.is_absolute()
    assert bundle.encoders[1].config["embed_dim"] == 4
    assert bundle.head == bundle_folder / "head.safetensors"
    assert (bundle.window, bundle.tiling, bundle.genetic_code) == (500, "even", 11)
    assert bundle.labels == ("others", "virus")
    assert bundle.thresholds == {"viral": 0.6, "non_viral": 0.4}
    assert (bundle.metrics, bundle.provenance) == ({"auroc": 0.5}, {"seed": 1})


def test_the_output_folder_of_train_is_a_name_of_its_bundle(bundle_folder, tmp_path, monkeypatch):
    trained = tmp_path / "my-model"
    shutil.copytree(bundle_folder, trained / "bundle")
    monkeypatch.chdir(tmp_path)
    assert open_bundle("my-model") == open_bundle("my-model/bundle")
    by_output, by_bundle = (find_encoder(f"my-model{below}/protein") for below in ("", "/bundle"))
    assert by_output == by_bundle
    (trained / "bundle" / "bundle.json").unlink()
    with pytest.raises(BundleError, match=r"my-model/bundle\.json: cannot be read"):
        open_bundle("my-model")


FILES = ["nucleotide.safetensors", "protein.safetensors", "tokenizer.json", "head.safetensors"]


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        *((name, flipped, "its SHA-256 is .* get the bundle again") for name in FILES),
        (
            "protein.safetensors",
            lambda data: data + b"\0",
            "has .* bytes, and the bundle.s manifest lists",
        ),
        ("tokenizer.json", None, "cannot be read"),
        ("bundle.json", None, "cannot be read .* check its path"),
        ("bundle.json", lambda _: b"{", "is not JSON"),
        ("bundle.json", lambda _: b"[" * 200_000, "is not JSON"),
    ],
)
def test_a_changed_or_missing_file_is_refused_by_name(bundle_folder, name, change, message):
    path = bundle_folder / name
    if change:
        path.write_bytes(change(path.read_bytes()))
    else:
        path.unlink()
    with pytest.raises(BundleError, match=rf"{name}: {message}"):
        open_bundle(str(bundle_folder))


@pytest.mark.parametrize("name", ["bundle.json", "head.safetensors"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_opened(bundle_folder, name):
    (bundle_folder / name).unlink()
    os.mkfifo(bundle_folder / name)
    with pytest.raises(BundleError, match=rf"{name}: (is not a file|has 0 bytes)"):
        open_bundle(str(bundle_folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-such-bundle", "no-such-bundle: there is no such bundle.*mini"),
        ("", "is empty"),
        ("mini\0", "has a NUL"),
    ],
)
def test_a_name_of_no_bundle_is_refused(bundle_folder, monkeypatch, name, message):
    monkeypatch.chdir(bundle_folder)
    with pytest.raises(UsageError, match=message):
        open_bundle(name)


def of_encoder(number, **settings):
    return lambda m: m["encoders"][number]["config"].update(settings)


def listing(name):
    return lambda m: m["files"].update({name: {"sha256": "0" * 64, "bytes": 1}})


NO_PLAIN_NAMES = ["../x.safetensors", "/etc/hostname", "..", ".", "", "a/b", "a\\b", "bundle.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_encoder(0, num_hidden_layers=10**8), r"100,000,000 layers, .* \d+ tensors"),
        (of_encoder(1, num_layers=10**8), r"100,000,000 layers, .* \d+ tensors"),
        (of_encoder(0, vocab_size=10), r"nucleotide\.\S*: .*word_embed.* \(9, 8\).* \(10, 8\)"),
        (of_encoder(0, type_vocab_size=1), r"nucleotide\.\S*: .*token_type.* \(2, 8\).* \(1, 8\)"),
        (of_encoder(0, num_hidden_layers=2), r"nucleotide\.\S*: 11 of 26 tensors are missing"),
        (of_encoder(0, layer_norm_eps=10**400), "'layer_norm_eps' is 1000.* not a positive number"),
        (
            of_encoder(0, layer_norm_eps=float("inf")),
            "'layer_norm_eps' is inf.* not a positive number",
        ),
        (of_encoder(1, num_layers=2), r"protein\.safetensors: 16 of 37 tensors are missing"),
        (of_encoder(1, embed_dim=8), r"protein\.safetensors: .* has shape .* of different models"),
        (of_encoder(1, embed_dim=4 * 10**20), r"protein\.\S*: .* has shape .* different models"),
        (lambda m: m["encoders"][1]["config"].pop("embed_dim"), "settings lack 'embed_dim'"),
        (
            lambda m: m.update(schema_version=2),
            "schema 2.*Use a version of virnucpro that reads",
        ),
        *((listing(name), "is not a plain file name") for name in NO_PLAIN_NAMES),
    ],
)
def test_a_manifest_that_does_not_fit_the_files_is_refused_when_opened(edit, change, message):
    with pytest.raises(BundleError, match=message):
        open_bundle(edit(change))


def test_fewer_layers_than_weights_are_refused_when_a_bundle_is_opened(bundle_folder):
    path = bundle_folder / "protein.safetensors"
    more = {"layers.1.fc1.bias": torch.zeros(16), "lm_head.bias": torch.zeros(3)}
    save_file(load_file(path) | more, path)
    digest_anew(bundle_folder, path.name)
    with pytest.raises(BundleError, match=r"not part of the model: 'layers\.1\.fc1\.bias'"):
        open_bundle(str(bundle_folder))


def tensors_of(sizes):
    return {name: torch.ones(shape) for name, shape in head_shapes(sizes).items()}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (tensors_of((13, 3, 2)), "needs vectors of 13 numbers.* give vectors of 12"),
        ({"x": torch.zeros(2)}, "is not a classifier"),
        ({"output.weight": torch.zeros(2)}, "is not a classifier"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(bundle_folder, tensors, message):
    save_file(tensors, bundle_folder / "head.safetensors")
    digest_anew(bundle_folder, "head.safetensors")
    with pytest.raises(BundleError, match=message):
        open_bundle(str(bundle_folder))


def test_a_head_without_hidden_layers_is_accepted(bundle_folder):
    save_file(tensors_of((12, 2)), bundle_folder / "head.safetensors")
    digest_anew(bundle_folder, "head.safetensors")
    assert open_bundle(str(bundle_folder)).head.is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: m.update(items="genes"),
            "unknown items 'genes'; known are open_frames, longest_stretch, window",
        ),
        (lambda m: m.update(items=5), "field 'items' of type str"),
        (lambda m: m.update(items="window"), "protein encoder, which cannot read whole windows"),
        (lambda m: m.update(calibration=[1]), "field 'calibration' of type dict"),
        (lambda m: m.update(calibration=CALIBRATION | {"lines": []}), "calibration has no line"),
        (lambda m: m.update(calibration={"lines": []}), "calibration has a missing or invalid"),
        (lambda m: m.update(head="../head.safetensors"), "not in its list of files"),
        (lambda m: m["encoders"][0]["files"].update(weights="/x"), "not in its list of files"),
        (lambda m: m["encoders"][0].update(architecture="gpt"), "architecture 'gpt'"),
        (lambda m: m["encoders"][1].update(view="smell"), "view 'smell'"),
        (lambda m: m["encoders"][1].update(dim="4"), r"encoders\[1\].* field 'dim' of type int"),
        (lambda m: m["encoders"][1].pop("config"), "field 'config'"),
        (lambda m: m.update(encoders=[]), "lists no encoder"),
        (lambda m: m.update(encoders=["esm2"]), "must be a JSON object"),
        (lambda m: m.update(window=2), "window of 3 to 2,147,483,647 bases, not 2"),
        (lambda m: m.update(window=2**31), "window of 3 to 2,147,483,647 bases"),
        (lambda m: m["encoders"][0].update(name="p"), "two encoders of the name 'p'"),
        (lambda m: m.update(window=True), "field 'window' of type int"),
        (lambda m: m.update(tiling="odd"), "tiling 'odd'"),
        (lambda m: m.update(genetic_code=99), "unknown genetic code"),
        (lambda m: m.update(labels=["virus"]), "needs two labels"),
        (lambda m: m.update(labels=[0, 1]), "strings only in 'labels'"),
        (lambda m: m.pop("thresholds"), "must be a JSON object"),
        (lambda m: m["thresholds"].update(viral=0.3), "0 <= non_viral <= viral <= 1"),
        (lambda m: m["thresholds"].update(viral=float("nan")), "0 <= non_viral <= viral <= 1"),
        (lambda m: m["thresholds"].pop("non_viral"), "field 'non_viral'"),
        (lambda m: m.pop("name"), "field 'name'"),
        (lambda m: m.update(version="\ud800"), "control characters"),
        (lambda m: m.update(description="\x1b[2J"), "control characters"),
        (lambda m: m.update(version="1\nevil\t9"), "control characters"),
        (lambda m: m["encoders"][0].update(name="a\u202eb"), "control characters"),
        (lambda m: m["metrics"].update({"x\x9b": [["\x7f"]]}), "control characters"),
        (lambda m: m["files"].update({"tokenizer.json": {"bytes": 2}}), "field 'sha256'"),
    ],
)
def test_an_invalid_field_is_named(edit, change, message):
    path = edit(change)
    with pytest.raises(BundleError, match=rf"bundle\.json: .*{message}"):
        open_bundle(path)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda m: m.update(window=300), False),
        (lambda m: m.update(tiling="published"), False),
        (lambda m: m.update(genetic_code=4), False),
        (lambda m: m.update(labels=["host", "virus"]), False),
        (lambda m: m["thresholds"].update(viral=0.7), False),
        (lambda m: m["encoders"][1]["config"].update(attention_heads=1), False),
        (lambda m: m["encoders"].reverse(), False),
        (lambda m: m.update(calibration=CALIBRATION), False),
        (lambda m: m.update(name="other", version="2", description="something else"), True),
        (lambda m: m["encoders"][0].update(name="renamed"), True),
        (lambda m: m.update(metrics={}, provenance={"seed": 2}), True),
        (lambda m: m.update(items="open_frames", calibration=None), True),
    ],
)
def test_the_fingerprint_changes_with_parameters_of_the_results_and_not_with_text(
    bundle_folder, edit, change, same
):
    before = open_bundle(str(bundle_folder)).fingerprint
    assert (open_bundle(edit(change)).fingerprint == before) is same


@pytest.mark.parametrize("name", ["nucleotide.safetensors", "head.safetensors", "tokenizer.json"])
def test_the_fingerprint_changes_with_a_file(bundle_folder, name):
    before = open_bundle(str(bundle_folder)).fingerprint
    if name == "tokenizer.json":
        (bundle_folder / name).write_text('{"other": 1}')
    else:
        tensors = load_file(bundle_folder / name)
        save_file({key: tensor + 1 for key, tensor in tensors.items()}, bundle_folder / name)
    digest_anew(bundle_folder, name)
    assert open_bundle(str(bundle_folder)).fingerprint != before


def test_the_fingerprint_does_not_depend_on_the_folder(bundle_folder, tmp_path):
    copy = shutil.copytree(bundle_folder, tmp_path / "elsewhere")
    assert open_bundle(str(copy)).fingerprint == open_bundle(str(bundle_folder)).fingerprint


def test_a_calibration_is_kept_and_its_presets_are_described(edit):
    assert "preset" not in describe_bundle(open_bundle(edit(lambda _: None)))
    bundle = open_bundle(edit(lambda m: m.update(calibration=CALIBRATION)))
    assert bundle.calibration == CALIBRATION
    text = describe_bundle(bundle)
    assert "preset default: viral from a probability of 0.700, non-viral below 0.400" in text
    assert "viral from a score" not in text


def test_a_bundle_of_whole_windows_has_encoders_of_nucleotides(bundle_folder, edit):
    save_file(tensors_of((8, 2)), bundle_folder / "head.safetensors")
    digest_anew(bundle_folder, "head.safetensors")

    def change(manifest):
        del manifest["encoders"][1]
        manifest["items"] = "window"

    windows = open_bundle(edit(change))
    assert windows.items == "window"
    frames = open_bundle(edit(lambda m: m.pop("items")))
    assert frames.items == "open_frames"
    assert frames.fingerprint != windows.fingerprint


def test_a_description_contains_parameters_encoders_and_card(bundle_folder):
    (bundle_folder / "CARD.md").write_bytes(b"# the card\x1b[2J\n\xff\n")
    text = describe_bundle(open_bundle(str(bundle_folder)))
    for part in (
        "tiny 1.0",
        "for tests",
        "500 bases",
        "0.600",
        "esm2, vectors of 4 numbers",
        "# the card\\x1b[2J\n\ufffd",
    ):
        assert part in text


@pytest.fixture
def encoders_alone(edit):
    return edit(lambda content: content.update(head=None, labels=[], thresholds={}))


def test_a_bundle_may_have_no_classifier(encoders_alone):
    bundle = open_bundle(encoders_alone)
    assert (bundle.head, bundle.labels, bundle.thresholds) == (None, (), {})
    assert "encoders only, no classifier" in describe_bundle(bundle)


def test_predict_refuses_a_bundle_without_a_classifier(encoders_alone, called, tmp_path):
    command = ["predict", "x.fa", "-o", tmp_path / "out", "--bundle", encoders_alone]
    assert "virnucpro embed" in called(*command, code=64).stderr


def test_installed_bundles_are_found_after_embedded_ones(bundle_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("VIRNUCPRO_DATA", str(tmp_path / "data"))
    for name in ("own", "mini"):
        shutil.copytree(bundle_folder, tmp_path / "data" / "bundles" / name)
    assert open_bundle("own").path == tmp_path / "data" / "bundles" / "own"
    assert open_bundle("mini").name == "mini"
    assert {name: bundle.name for name, bundle in list_bundles().items()} == {
        "mini": "mini",
        "mini-deep": "mini-deep",
        "own": "tiny",
    }


def test_a_malformed_bundle_is_listed_with_its_error(bundle_folder, tmp_path, monkeypatch, called):
    from virnucpro.run.embed_job import embed_job

    monkeypatch.setenv("VIRNUCPRO_DATA", str(tmp_path / "data"))
    installed = tmp_path / "data" / "bundles"
    for name in ("tiny", "renamed"):
        shutil.copytree(bundle_folder, installed / name)
    (installed / "broken").mkdir()
    (installed / "broken" / "bundle.json").write_text("{")
    rows = [line.split("\t") for line in called("bundle", "list", code=0).stdout.splitlines()]
    assert [row[0] for row in rows] == ["broken", "mini", "mini-deep", "renamed", "tiny"]
    assert rows[0][2].startswith(f"cannot be used: {installed}/broken/bundle.json: is not JSON")
    rows = json.loads(called("bundle", "list", "--json", code=0).stdout)
    assert [row["name"] for row in rows] == ["broken", "mini", "mini-deep", "renamed", "tiny"]
    assert "is not JSON" in rows[0]["error"]
    assert rows[3]["fingerprint"] == open_bundle("renamed").fingerprint
    assert embed_job(["x.fa"], encoder="tiny/protein").encoders[0].name == "p"
