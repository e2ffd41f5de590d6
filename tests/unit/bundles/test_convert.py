import json
import pickle
import zipfile

import pytest
import torch
from batchings import vectors_of
from safetensors.torch import load_file
from torch import nn

from virnucpro.bundles.convert import convert_dnabert_s, convert_esm2, write_tensors
from virnucpro.encoders.dnabert_s.config import find_published
from virnucpro.encoders.registry import open_spec
from virnucpro.encoders.weights.pickles import read_pickle, read_state_dict
from virnucpro.errors import BundleError


class Widget:
    def __init__(self):
        self.weight = torch.zeros(2)


def test_a_state_dict_is_read_and_written_unchanged(tmp_path):
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5.0).half(), "c": torch.ones(1).bfloat16()}
    torch.save(tensors, tmp_path / "x.bin")
    found = read_state_dict(tmp_path / "x.bin")
    write_tensors(tmp_path / "x.safetensors", found)
    for result in (found, load_file(tmp_path / "x.safetensors")):
        assert set(result) == set(tensors)
        for name, tensor in tensors.items():
            assert result[name].dtype == tensor.dtype
            assert torch.equal(result[name], tensor)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(1)], "no named tensors"),
        ({}, "no named tensors"),
        ({"a": 1}, "'a'"),
        ({3: torch.zeros(1)}, " 3"),
        ({"a": torch.zeros(1, device="meta")}, "'a'"),
        ({"a": Widget()}, "Widget"),
        (nn.Linear(2, 2), r"torch\.nn\.modules\.linear\.Linear"),
    ],
)
def test_a_checkpoint_of_anything_but_named_tensors_is_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "x.bin")
    with pytest.raises(BundleError, match=message):
        read_state_dict(tmp_path / "x.bin")


def test_a_damaged_checkpoint_is_refused(tmp_path):
    torch.save({"a": torch.zeros(1000)}, tmp_path / "x.bin")
    content = (tmp_path / "x.bin").read_bytes()
    for size in (0, 4, 200, len(content) // 2, len(content) - 30):
        (tmp_path / "x.bin").write_bytes(content[:size])
        with pytest.raises(BundleError, match=r"x\.bin: .*again") as caught:
            read_state_dict(tmp_path / "x.bin")
        assert "weights_only" not in str(caught.value)


def test_another_pickle_is_refused(tmp_path):
    (tmp_path / "x.pt").write_bytes(pickle.dumps({"model": {}}))
    with zipfile.ZipFile(tmp_path / "y.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"garbage")
        archive.writestr("archive/version", "3")
    for name in ("x.pt", "y.pt", "none.pt"):
        with pytest.raises(BundleError, match=name):
            open_spec(tmp_path / name)


def repacked(path, compression=zipfile.ZIP_STORED, times=1):
    """Rewrite an archive with one of its parts listed several times."""
    with zipfile.ZipFile(path) as archive:
        parts = [(part.filename, archive.read(part)) for part in archive.infolist()]
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts:
            archive.writestr(name, content)
        largest = max(archive.filelist, key=lambda part: part.file_size)
        archive.filelist += [largest] * (times - 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compression": zipfile.ZIP_DEFLATED}, "is compressed or"),
        ({"compression": zipfile.ZIP_LZMA}, "is compressed or"),
        ({"times": 1000}, "or has overlapping parts"),
    ],
    ids=["deflated", "lzma", "overlapping"],
)
def test_a_checkpoint_that_expands_is_refused_unread(
    tmp_path, stand_ins, monkeypatch, change, message
):
    stand_ins.publish(tmp_path)
    for name, place in (
        ("esm2_tiny.pt", tmp_path / "esm2_tiny.pt"),
        ("pytorch_model.bin", tmp_path),
    ):
        path = tmp_path / name
        repacked(path)
        open_spec(place)
        repacked(path, **change)
        with monkeypatch.context() as patch:
            patch.setattr(zipfile.ZipFile, "open", None)
            for read in (open_spec, lambda _, path=path: read_pickle(path)):
                with pytest.raises(BundleError, match=rf"{name}: .*{message}"):
                    read(place)


@pytest.fixture
def esm2(tmp_path, stand_ins):
    """A checkpoint of ESM-2 and its content."""
    path = tmp_path / "esm2_tiny.pt"
    stand_ins.write_esm2(path)
    with torch.serialization.safe_globals([stand_ins.Namespace]):
        return path, torch.load(path, weights_only=True)


def test_a_checkpoint_without_a_tensor_is_refused(tmp_path, esm2):
    path, content = esm2
    del content["model"]["encoder.sentence_encoder.layers.1.fc1.bias"]
    torch.save(content, path)
    for read in (lambda: open_spec(path), lambda: convert_esm2("tiny", path, tmp_path)):
        with pytest.raises(BundleError, match=r"esm2_tiny\.pt.*missing: 'layers\.1\.fc1\.bias'"):
            read()


def test_conversion_keeps_types_and_omits_heads(tmp_path, esm2):
    path, content = esm2
    content["model"] = {name: tensor.half() for name, tensor in content["model"].items()}
    torch.save(content, path)
    entry = convert_esm2("tiny", path, tmp_path)
    assert (entry.dim, entry.view, entry.files) == (
        32,
        "protein",
        {"weights": "protein.safetensors"},
    )
    tensors = load_file(tmp_path / "protein.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    assert not [name for name in tensors if name.startswith(("lm_head", "contact_head"))]
    frequencies = "layers.1.self_attn.rot_emb.inv_freq"
    assert torch.equal(
        tensors[frequencies], content["model"]["encoder.sentence_encoder." + frequencies]
    )
    own, theirs = (vectors_of(one, [b"MKTAYIAKQRQISFVKSH" * 9]) for one in (entry, open_spec(path)))
    assert torch.equal(own, theirs)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", "JSON"),
        ("config.json", "[]", "object"),
        ("config.json", "{}", "'vocab_size'"),
        ("tokenizer.json", "{}", ""),
    ],
)
def test_invalid_settings_or_tokenizers_are_refused(tmp_path, stand_ins, name, content, message):
    stand_ins.write_dnabert_s(tmp_path)
    (tmp_path / name).write_text(content)
    (tmp_path / "out").mkdir()
    with pytest.raises(BundleError, match=rf"{name}.*{message}"):
        convert_dnabert_s("x", find_published(tmp_path), tmp_path / "out")


def test_a_write_error_is_a_clear_error(stand_ins, tmp_path):
    with pytest.raises(BundleError, match=r"none/x\.safetensors: cannot be written"):
        write_tensors(tmp_path / "none" / "x.safetensors", {"a": torch.zeros(1)})


@pytest.mark.parametrize("command", ["bench", "embed"])
def test_a_poisoned_checkpoint_is_refused_without_torchs_advice_by_every_command(
    tmp_path, stand_ins, command, reading_here, called
):
    stand_ins.publish(tmp_path)
    path = tmp_path / "esm2_poisoned.pt"
    torch.save({"cfg": {"model": Widget()}, "model": {"x": torch.zeros(1)}}, path)
    commands = {
        "bench": ["bench", "-e", path],
        "embed": ["embed", "x.fa", "-o", tmp_path / "run", "-e", path],
    }
    output = called(*commands[command], code=1).stderr
    assert "Widget" in output
    assert "weights_only" not in output
    assert "\x1b" not in output


def test_a_torchscript_archive_is_refused_without_torchs_advice(tmp_path, reading_here, called):
    path = tmp_path / "esm2_script.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for part in ("data.pkl", "constants.pkl", "code/x.py"):
            archive.writestr(f"script/{part}", b"\x80\x02).")
        archive.writestr("script/version", "3")
    output = called("bench", "-e", path, code=1).stderr
    assert "esm2_script.pt: is a TorchScript" in output
    for advice in ("weights_only", "jit.load", "likely succeed"):
        assert advice not in output


@pytest.mark.parametrize("read", ["open", "convert"])
def test_esm2_in_the_format_before_archives_is_refused(tmp_path, esm2, read):
    old = tmp_path / "esm2_old.pt"
    torch.save(esm2[1], old, _use_new_zipfile_serialization=False)
    with pytest.raises(BundleError, match=r"esm2_old\.pt: .*PyTorch 1\.6"):
        open_spec(old) if read == "open" else convert_esm2("old", old, tmp_path)


def test_a_published_dnabert_s_folder_is_opened_as_an_encoder(tmp_path, stand_ins):
    stand_ins.write_dnabert_s(tmp_path)
    spec = open_spec(tmp_path)
    assert spec.files["weights"] == "pytorch_model.bin"
    (tmp_path / "out").mkdir()
    converted = convert_dnabert_s("x", find_published(tmp_path), tmp_path / "out")
    one, other = (vectors_of(each, [b"ACGTTGCAACGTGGCA"]) for each in (spec, converted))
    assert torch.equal(one, other)
    damaged = bytearray((tmp_path / "pytorch_model.bin").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "pytorch_model.bin").write_bytes(damaged)
    with pytest.raises(BundleError, match="checksum"):
        open_spec(tmp_path)


def test_more_layers_than_tensors_are_refused_before_a_module_is_built(tmp_path, stand_ins):
    stand_ins.write_dnabert_s(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**8}))
    for attempt in (
        lambda: open_spec(tmp_path),
        lambda: convert_dnabert_s("x", find_published(tmp_path), tmp_path),
    ):
        with pytest.raises(BundleError, match=r": .*100,000,000 layers, .* \d+ tensors"):
            attempt()
