import json
import pickle
import zipfile

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from virnucpro.bundles.convert import convert_dnabert_s, convert_esm2
from virnucpro.bundles.tensor_files import write_tensors
from virnucpro.cli.main import main
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.dnabert_s_config import find_published
from virnucpro.encoders.esm2_checkpoint import read_checkpoint
from virnucpro.encoders.packed import pack
from virnucpro.encoders.pickles import read_pickle, read_state_dict
from virnucpro.encoders.registry import load_encoder, open_spec
from virnucpro.errors import BundleError


class Widget:
    def __init__(self):
        self.weight = torch.zeros(2)


@pytest.mark.parametrize("archive", [True, False])
def test_a_state_dict_comes_out_as_it_was_saved_in_either_format(tmp_path, archive):
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5.0).half(), "c": torch.ones(1).bfloat16()}
    torch.save(tensors, tmp_path / "x.bin", _use_new_zipfile_serialization=archive)
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
        ([torch.zeros(1)], "holds no tensors by name"),
        ({}, "holds no tensors by name"),
        ({"a": 1}, "holds 'a', which is no tensor"),
        ({3: torch.zeros(1)}, "holds 3, which is no tensor"),
        ({"a": torch.zeros(1, device="meta")}, "holds 'a', which is no tensor"),
        ({"a": Widget()}, r"nothing of it was run \(it names \S*Widget\)"),
        (nn.Linear(2, 2), r"nothing of it was run \(it names torch\.nn\.modules\.linear\.Linear\)"),
    ],
)
def test_anything_but_tensors_by_name_is_refused(tmp_path, content, message):
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


def test_a_pickle_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "x.pt").write_bytes(pickle.dumps({"model": {}}))
    with zipfile.ZipFile(tmp_path / "y.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"garbage")
        archive.writestr("archive/version", "3")
    for name in ("x.pt", "y.pt", "none.pt"):
        with pytest.raises(BundleError, match=name):
            read_checkpoint(tmp_path / name)


def repacked(path, compression=zipfile.ZIP_STORED, times=1):
    """Write an archive's parts anew, and list one of them so many times."""
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
        ({"compression": zipfile.ZIP_DEFLATED}, r"\S+ in it is compressed"),
        ({"compression": zipfile.ZIP_LZMA}, r"\S+ in it is compressed"),
        ({"times": 1000}, r"said to hold [\d,]+ bytes, and has [\d,]+"),
    ],
    ids=["deflated", "lzma", "overlapping"],
)
def test_a_checkpoint_that_holds_more_than_its_bytes_is_refused_unread(
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


def test_another_checkpoint_is_no_fair_esm(tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "x.pt")
    with pytest.raises(BundleError, match="is no ESM-2 checkpoint of fair-esm"):
        read_checkpoint(tmp_path / "x.pt")


def test_a_checkpoint_that_lacks_a_tensor_is_refused_before_it_is_a_bundle(tmp_path, stand_ins):
    stand_ins.write_esm2(tmp_path / "esm2_tiny.pt")
    with torch.serialization.safe_globals([stand_ins.Namespace]):
        content = torch.load(tmp_path / "esm2_tiny.pt", weights_only=True)
    del content["model"]["encoder.sentence_encoder.layers.1.fc1.bias"]
    torch.save(content, tmp_path / "esm2_tiny.pt")
    with pytest.raises(BundleError, match=r"layers\.1\.fc1\.bias"):
        convert_esm2("tiny", tmp_path / "esm2_tiny.pt", tmp_path)


def test_types_are_kept_and_heads_are_left_out(tmp_path, stand_ins):
    stand_ins.write_esm2(tmp_path / "esm2_tiny.pt")
    with torch.serialization.safe_globals([stand_ins.Namespace]):
        content = torch.load(tmp_path / "esm2_tiny.pt", weights_only=True)
    content["model"] = {name: tensor.half() for name, tensor in content["model"].items()}
    torch.save(content, tmp_path / "esm2_tiny.pt")
    entry = convert_esm2("tiny", tmp_path / "esm2_tiny.pt", tmp_path)
    tensors = load_file(tmp_path / "protein.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    assert not [name for name in tensors if name.startswith(("lm_head", "contact_head"))]
    frequencies = "layers.1.self_attn.rot_emb.inv_freq"
    assert torch.equal(
        tensors[frequencies], content["model"]["encoder.sentence_encoder." + frequencies]
    )
    spec = EncoderSpec("tiny", "esm2", "protein", 32, tmp_path, entry.files, entry.config)
    own, theirs = load_encoder(spec), load_encoder(open_spec(tmp_path / "esm2_tiny.pt"))
    tokens = own.tokenise([b"MKTAYIAKQRQISFVKSH" * 9])
    assert torch.equal(own.encode(own.collate(tokens)), theirs.encode(theirs.collate(tokens)))


@pytest.mark.parametrize(
    ("config", "message"),
    [("{", "is no JSON"), ("[]", "holds no settings by name"), ("{}", "lack 'vocab_size'")],
)
def test_settings_that_make_no_sense_are_refused(tmp_path, stand_ins, config, message):
    stand_ins.write_dnabert_s(tmp_path)
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "out").mkdir()
    with pytest.raises(BundleError, match=rf"config\.json: .*{message}"):
        convert_dnabert_s("x", find_published(tmp_path), tmp_path / "out")


def test_a_tokenizer_of_another_model_is_refused(tmp_path, stand_ins):
    stand_ins.write_dnabert_s(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "out").mkdir()
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        convert_dnabert_s("x", find_published(tmp_path), tmp_path / "out")


def test_a_disk_that_is_full_is_told(stand_ins, tmp_path):
    with pytest.raises(BundleError, match=r"none/x\.safetensors: cannot be written"):
        write_tensors(tmp_path / "none" / "x.safetensors", {"a": torch.zeros(1)})


def test_a_converted_encoder_loads(tmp_path, stand_ins):
    stand_ins.write_esm2(tmp_path / "esm2_tiny.pt")
    entry = convert_esm2("tiny", tmp_path / "esm2_tiny.pt", tmp_path)
    assert (entry.dim, entry.view, entry.files) == (
        32,
        "protein",
        {"weights": "protein.safetensors"},
    )
    spec = EncoderSpec("tiny", "esm2", "protein", 32, tmp_path, entry.files, entry.config)
    assert load_encoder(spec).dim == 32


@pytest.mark.parametrize("command", ["parity", "embed", "import"])
def test_a_poisoned_checkpoint_is_refused_without_torchs_advice_by_every_command(
    tmp_path, stand_ins, command, capsys
):
    stand_ins.publish(tmp_path)
    path = tmp_path / "esm2_poisoned.pt"
    torch.save({"cfg": {"model": Widget()}, "model": {"x": torch.zeros(1)}}, path)
    commands = {
        "parity": ["parity", "-e", path],
        "embed": ["embed", "x.fa", "-o", tmp_path / "run", "-e", path],
        "import": [
            *("bundle", "import", tmp_path / "500_model.pth"),
            *("--nucleotide", tmp_path, "--protein", path),
        ],
    }
    assert main([str(word) for word in commands[command]]) == 1
    told = capsys.readouterr().err
    assert "nothing of it was run (it names" in told
    assert "weights_only" not in told
    assert "\x1b" not in told


@pytest.mark.parametrize("read", ["open", "convert"])
def test_esm2_in_the_format_before_archives_is_refused_alike(tmp_path, stand_ins, read):
    stand_ins.write_esm2(tmp_path / "esm2_tiny.pt")
    with torch.serialization.safe_globals([stand_ins.Namespace]):
        content = torch.load(tmp_path / "esm2_tiny.pt", weights_only=True)
    old = tmp_path / "esm2_old.pt"
    torch.save(content, old, _use_new_zipfile_serialization=False)
    with pytest.raises(BundleError, match=r"esm2_old\.pt: .*before PyTorch 1\.6"):
        open_spec(old) if read == "open" else convert_esm2("old", old, tmp_path)


def test_a_published_dnabert_s_folder_is_an_encoder_as_it_is(tmp_path, stand_ins):
    module = stand_ins.write_dnabert_s(tmp_path)
    spec = open_spec(tmp_path)
    assert spec.files["weights"] == "pytorch_model.bin"
    encoder = load_encoder(spec)
    tokens = encoder.tokenise([b"ACGTTGCAACGTGGCA"])
    with torch.inference_mode():
        assert torch.allclose(
            encoder.encode(encoder.collate(tokens)), module(pack(tokens)), atol=1e-6
        )
    damaged = bytearray((tmp_path / "pytorch_model.bin").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "pytorch_model.bin").write_bytes(damaged)
    with pytest.raises(BundleError, match="is not what its checksum says"):
        open_spec(tmp_path)


def test_more_layers_than_tensors_are_refused_before_a_module_is_built(tmp_path, stand_ins):
    stand_ins.write_dnabert_s(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**8}))
    for attempt in (
        lambda: open_spec(tmp_path),
        lambda: convert_dnabert_s("x", find_published(tmp_path), tmp_path),
    ):
        with pytest.raises(BundleError, match=r": .*100,000,000 layers, .* \d+ tensors in all"):
            attempt()
