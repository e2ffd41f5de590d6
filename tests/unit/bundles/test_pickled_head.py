import collections
import io
import os
import pickle
import shutil
import tracemalloc
import zipfile

import pytest
import torch
from torch import nn

from virnucpro.bundles.pickled_head import read_pickled_head
from virnucpro.classify.head_tensors import head_shapes
from virnucpro.errors import BundleError


def archive_of(path, pickled, members=()):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, content in members:
            archive.writestr(name, content)
    return path


@pytest.fixture
def classifier(tmp_path, stand_ins):
    path = tmp_path / "500_model.pth"
    return path, stand_ins.write_classifier(path)


def test_every_tensor_of_a_published_classifier_is_read(classifier):
    path, module = classifier
    tensors = read_pickled_head(path)
    theirs = module.state_dict()
    assert torch.equal(tensors["hidden.0.linear.weight"], theirs["hidden_layer.weight"])
    assert torch.equal(tensors["hidden.0.linear.bias"], theirs["hidden_layer.bias"])
    assert torch.equal(tensors["hidden.0.norm.weight"], theirs["bn1.weight"])
    assert torch.equal(tensors["hidden.0.norm.bias"], theirs["bn1.bias"])
    assert torch.equal(tensors["hidden.0.norm.running_mean"], theirs["bn1.running_mean"])
    assert torch.equal(tensors["hidden.0.norm.running_var"], theirs["bn1.running_var"])
    assert torch.equal(tensors["output.weight"], theirs["output_layer.weight"])
    assert torch.equal(tensors["output.bias"], theirs["output_layer.bias"])
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert shapes == head_shapes((56, 16, 2))


def test_a_damaged_archive_is_refused(classifier):
    path, _ = classifier
    content = path.read_bytes()
    for end in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(BundleError, match=r"500_model\.pth: .*again"):
            read_pickled_head(path)


def test_a_flip_of_any_byte_changes_nothing_or_is_refused(classifier):
    """Zip archives hold a checksum of each member; what they do not cover is not read."""
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


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "function",
    [os.system, eval, exec, getattr, __import__, os.mkdir, io.open, shutil.rmtree],
    ids=lambda one: one.__name__,
)
def test_no_function_runs(tmp_path, function, protocol):
    victim = tmp_path / "victim"
    pickled = pickle.dumps(Calls(function, f"touch {victim}"), protocol)
    with pytest.raises(BundleError, match=r"names \w+.*Nothing of it was run"):
        read_pickled_head(archive_of(tmp_path / "poison.pth", pickled))
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
    ],
)
def test_no_way_to_name_a_function_leads_to_it(tmp_path, opcodes):
    with pytest.raises(BundleError):
        read_pickled_head(archive_of(tmp_path / "poison.pth", opcodes))


def test_the_admitted_names_do_not_lead_to_what_they_name(tmp_path):
    """Linear(10**6, 10**6) would take 4 TB, were it torch's."""
    pickled = pickle.dumps(Calls(nn.Linear, 10**6, 10**6), 2)
    with pytest.raises(BundleError):
        read_pickled_head(archive_of(tmp_path / "large.pth", pickled))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 2)), "names torch.nn.modules.container.Sequential"),
        (lambda: nn.Linear(2, 2), "holds no MLPClassifier"),
        (collections.OrderedDict, "holds no MLPClassifier"),
        (lambda: {"hidden_layer.weight": torch.zeros(2, 2)}, "holds no MLPClassifier"),
    ],
)
def test_another_module_is_refused(tmp_path, build, message):
    torch.save(build(), tmp_path / "other.pth")
    with pytest.raises(BundleError, match=message):
        read_pickled_head(tmp_path / "other.pth")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: setattr(m, "bn1", nn.Dropout(0.1)), "lacks the layer 'bn1'"),
        (lambda m: delattr(m, "output_layer"), "lacks the layer 'output_layer'"),
        (lambda m: setattr(m.bn1, "eps", 1e-3), "batch norm whose eps"),
        (lambda m: m.double(), "DoubleStorage"),
        (lambda m: setattr(m.output_layer, "bias", None), "without 'bias' in float32"),
        (
            lambda m: setattr(m, "output_layer", nn.Linear(16, 3)),
            r"has \(3, 16\) numbers in output",
        ),
        (lambda m: setattr(m, "bn1", nn.BatchNorm1d(17)), r"numbers in hidden\.0\.norm"),
        (lambda m: setattr(m, "extra", nn.ReLU()), "names torch.nn.modules.activation.ReLU"),
        (
            lambda m: setattr(m.hidden_layer, "weight", nn.Parameter(torch.zeros(56, 16).T)),
            "in another way than row by row",
        ),
    ],
)
def test_a_classifier_of_another_make_is_refused(tmp_path, stand_ins, change, message):
    module = stand_ins.roughen(stand_ins.MLPClassifier())
    change(module)
    stand_ins.save_as_published(module, tmp_path / "other.pth")
    with pytest.raises(BundleError, match=message):
        read_pickled_head(tmp_path / "other.pth")


def test_the_format_before_archives_is_refused_in_words(tmp_path, stand_ins):
    torch.save([1], tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    with pytest.raises(BundleError, match=r"old\.pth: .*torch\.save of an MLPClassifier"):
        read_pickled_head(tmp_path / "old.pth")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BundleError, match=r"none\.pth: cannot be read"):
        read_pickled_head(tmp_path / "none.pth")


STORAGE = (
    b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
)


def nested_tuple(depth):
    """A tuple of a letter, and tuples of the one before, twice."""
    pickled = b"\x80\x02X\x01\x00\x00\x00a\x85q\x00"
    for number in range(depth):
        pickled += b"h%ch%c\x86q%c" % (number, number, number + 1)
    return pickled


@pytest.mark.parametrize(
    "opcodes",
    [
        nested_tuple(40) + b"Q.",
        b"\x80\x02}" + nested_tuple(40)[2:] + b"K\x01s.",
        b"\x80\x02}" + nested_tuple(0)[2:] + b"2\x86" * 40 + b"K\x01s.",
        nested_tuple(40).replace(b"\x86q", b"\x86N0q") + b"Q.",
        nested_tuple(40) + b"c__builtin__\nset\nh\x28\x85R.",
    ],
    ids=["printed", "hashed", "duplicated", "hidden", "as a set"],
)
def test_a_small_pickle_of_a_large_tuple_is_refused_at_once(tmp_path, opcodes):
    with pytest.raises(BundleError, match="same tuples again"):
        read_pickled_head(archive_of(tmp_path / "nested.pth", opcodes))


@pytest.mark.parametrize(
    "put", [b"r\xff\xff\xff\x0c", b"p218103807\n", b"q\x05", b"r\xff\xff\xff\xff"]
)
def test_a_number_that_no_pickler_gives_takes_no_memory(tmp_path, put):
    path = archive_of(tmp_path / "gaps.pth", b"\x80\x02K\x01" + put + b"0K\x02.")
    tracemalloc.start()
    try:
        with pytest.raises(BundleError, match="puts an object away as number"):
            read_pickled_head(path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_storage_is_read_once(tmp_path, monkeypatch):
    read, reads = zipfile.ZipFile.read, []
    monkeypatch.setattr(
        zipfile.ZipFile, "read", lambda self, name: reads.append(name) or read(self, name)
    )
    path = tmp_path / "many.pth"
    archive_of(path, b"\x80\x02](" + STORAGE * 12 + b"e.", [("archive/data/0", bytes(4_000))])
    with pytest.raises(BundleError, match="holds no MLPClassifier"):
        read_pickled_head(path)
    assert len(reads) == 2


def test_storages_are_small_together_and_not_compressed(tmp_path, monkeypatch):
    monkeypatch.setattr("virnucpro.bundles.pickled_head._MOST_STORAGE_BYTES", 6_000)
    path = tmp_path / "large.pth"
    two = STORAGE + STORAGE.replace(b"\x01\x00\x00\x000", b"\x01\x00\x00\x001")
    members = [("archive/data/0", bytes(4_000)), ("archive/data/1", bytes(4_000))]
    archive_of(path, b"\x80\x02](" + two + b"e.", members)
    with pytest.raises(BundleError, match="more than 1 GB"):
        read_pickled_head(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02](" + STORAGE + b"e.")
        archive.writestr("archive/data/0", bytes(4_000))
    with pytest.raises(BundleError, match="compressed"):
        read_pickled_head(path)
