import collections
import io
import os
import pickle
import shutil
import zipfile

import pytest
import torch
from torch import nn

from virnucpro.bundles.convert import convert_head, convert_isolated
from virnucpro.bundles.pickled_head import read_pickled_head
from virnucpro.classifier.head import head_shapes
from virnucpro.errors import BundleError
from virnucpro.runtime.isolation import run_isolated


def write_archive(path, pickled):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3")
        archive.writestr("archive/byteorder", "little")
    return path


@pytest.fixture
def classifier(tmp_path, stand_ins):
    path = tmp_path / "500_model.pth"
    return path, stand_ins.write_classifier(path)


def test_every_tensor_of_a_published_classifier_is_read(classifier):
    path, module = classifier
    tensors = read_pickled_head(path)
    layers = {"hidden_layer": "hidden.0.linear", "bn1": "hidden.0.norm", "output_layer": "output"}
    theirs = module.state_dict()
    del theirs["bn1.num_batches_tracked"]
    for name, tensor in theirs.items():
        layer, part = name.split(".")
        assert torch.equal(tensors[f"{layers[layer]}.{part}"], tensor)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert shapes == head_shapes((56, 16, 2))


def test_a_truncated_archive_is_refused(classifier):
    path, _ = classifier
    content = path.read_bytes()
    for end in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(BundleError, match=r"500_model\.pth: .*again"):
            read_pickled_head(path)


def test_a_flipped_byte_changes_nothing_or_is_refused(classifier):
    """Zip archives have a checksum of each member."""
    path, _ = classifier
    expected = read_pickled_head(path)
    content = path.read_bytes()
    for position in range(0, len(content), 67):
        flipped = bytearray(content)
        flipped[position] ^= 0x10
        path.write_bytes(flipped)
        try:
            found = read_pickled_head(path)
        except BundleError:
            continue
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


class Calls:
    """Pickles as a call of any function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "function",
    [os.system, eval, exec, getattr, __import__, os.mkdir, io.open, shutil.rmtree],
    ids=lambda one: one.__name__,
)
def test_no_function_of_a_pickle_runs(tmp_path, function, protocol):
    victim = tmp_path / "victim"
    pickled = pickle.dumps(Calls(function, f"touch {victim}"), protocol)
    with pytest.raises(BundleError, match=r"poison\.pth"):
        read_pickled_head(write_archive(tmp_path / "poison.pth", pickled))
    assert not victim.exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"(cos\nsystem\nS'true'\no.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"ctorch.nn.modules.linear\nLinear.__init__.__globals__\n.",
        b"ctorch.nn.modules.linear\ntorch\n.",
        b"\x82\x01.",
        pickle.dumps(Calls(nn.Linear, 10**6, 10**6), 2),  # torch's own would need 4 TB
    ],
)
def test_no_opcode_reaches_a_function_or_class_by_name(tmp_path, opcodes):
    with pytest.raises(BundleError):
        read_pickled_head(write_archive(tmp_path / "poison.pth", opcodes))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (nn.Sequential(nn.Linear(2, 2)), {}, r"torch\.nn\.modules\.container\.Sequent"),
        (nn.Linear(2, 2), {}, "layer 'hidden_layer' is missing"),
        (collections.OrderedDict(), {}, "layer 'hidden_layer' is missing"),
        ({"hidden_layer.weight": torch.zeros(2, 2)}, {}, "layer 'hidden_layer' is missing"),
        ([1], {"_use_new_zipfile_serialization": False}, r"other\.pth: .*PyTorch 1\.6"),
    ],
    ids=["sequential", "linear", "no tensors", "a bare tensor", "older format"],
)
def test_another_module_or_format_is_refused(tmp_path, content, options, message):
    torch.save(content, tmp_path / "other.pth", **options)
    with pytest.raises(BundleError, match=message):
        read_pickled_head(tmp_path / "other.pth")


def with_weight(tensor):
    return lambda m: setattr(m.hidden_layer, "weight", nn.Parameter(tensor))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: setattr(m, "bn1", nn.Dropout(0.1)), "eps of the batch norm"),
        (lambda m: delattr(m, "output_layer"), "layer 'output_layer' is missing"),
        (lambda m: setattr(m.bn1, "eps", 1e-3), "eps of the batch norm"),
        (lambda m: m.double(), "no float32 tensor 'weight'"),
        (lambda m: setattr(m.output_layer, "bias", None), "no float32 tensor 'bias'"),
        (lambda m: setattr(m, "output_layer", nn.Linear(16, 3)), "has 3 classes"),
        (lambda m: setattr(m, "bn1", nn.BatchNorm1d(17)), r"'hidden\.0\.norm\.\w+' has shape"),
        (lambda m: setattr(m, "extra", nn.ReLU()), r"torch\.nn\.modules\.activation\.ReLU"),
        (with_weight(torch.zeros(56, 16).T), "is not contiguous"),
        (with_weight(torch.zeros(1, 1).expand(9, 9)), "is not contiguous"),
        (lambda m: m.output_layer.to("meta"), "is not contiguous"),
    ],
)
def test_a_classifier_of_another_structure_is_refused(tmp_path, stand_ins, change, message):
    module = stand_ins.roughen(stand_ins.MLPClassifier())
    change(module)
    stand_ins.save_as_published(module, tmp_path / "other.pth")
    with pytest.raises(BundleError, match=rf"other\.pth.*{message}"):
        convert_head(tmp_path / "other.pth", tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BundleError, match=r"none\.pth: cannot be read"):
        read_pickled_head(tmp_path / "none.pth")


def nested_key(depth):
    """A dict whose key is a tuple in a tuple in a tuple: its hash recurses without a check."""
    return b"\x80\x02})" + b"\x85" * depth + b"Ns."


def doubled_key(depth):
    """A dict whose key contains the same tuple twice, at every level: its hash never ends."""
    pickled = b"\x80\x02)q\x00"
    for number in range(depth):
        pickled += b"h%ch%c\x86q%c" % (number, number, number + 1)
    return pickled + b"}h%cNs." % depth


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opcodes", "seconds", "reason"),
    [
        (nested_key(200_000), 60.0, "killed by SIGSEGV"),
        (nested_key(900_000), 60.0, "killed by SIGSEGV"),
        (doubled_key(60), 4.0, "limit of 4 s"),
    ],
    ids=["200,000 levels", "900,000 levels", "endless"],
)
def test_a_pickle_that_crashes_its_reader_is_one_clear_error(tmp_path, opcodes, seconds, reason):
    path = write_archive(tmp_path / "nested.pth", opcodes)

    def isolate(function, *arguments, **_limits):
        return run_isolated(function, *arguments, n_bytes=1 << 30, seconds=seconds)

    with pytest.raises(BundleError, match=rf"nested\.pth: the process .* failed: .*{reason}"):
        convert_isolated(isolate, path, convert_head, path, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["nested.pth"]


def test_limits_of_a_conversion_grow_with_its_file(classifier, tmp_path):
    path, _ = classifier
    limits = []

    def isolate(function, *arguments, **given):
        limits.append(given)
        return function(*arguments)

    convert_isolated(isolate, path, convert_head, path, tmp_path)
    os.truncate(path, 10**9)
    with pytest.raises(BundleError):
        convert_isolated(isolate, path, convert_head, path, tmp_path)
    small, large = limits
    assert large["n_bytes"] - small["n_bytes"] > 2 * 10**9
    assert large["seconds"] - small["seconds"] > 900
