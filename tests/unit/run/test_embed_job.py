import zipfile

import pytest
import torch
from cases import slow

from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.errors import BundleError
from virnucpro.run.embed_job import embed_job


@pytest.fixture
def checkpoint(tmp_path, stand_ins, reading_here):
    """Return a function that saves a tiny fair-esm checkpoint with a given file name."""

    def make(name):
        config = Esm2Config(1, 8, 2)
        tensors = {key: torch.zeros(shape) for key, shape in config.tensor_shapes().items()}
        stand_ins.save_checkpoint(tmp_path / name, config, tensors)
        return str(tmp_path / name)

    return make


def test_another_file_with_a_published_name_is_refused(checkpoint):
    path = checkpoint("esm2_t6_8M_UR50D.pt")
    with pytest.raises(BundleError, match=r"is not the published file.*md5.*another file name"):
        embed_job(["a.fa"], encoder=path)


def test_a_checkpoint_with_another_name_is_accepted(checkpoint):
    (spec,) = embed_job(["a.fa"], encoder=checkpoint("esm2_mine.pt")).encoders
    assert (spec.name, spec.dim) == ("esm2_mine", 8)


@pytest.fixture
def nested(tmp_path):
    """A 0.3 MB archive with a dict whose key is a tuple in a tuple in a tuple, 300,000 times."""
    folder = tmp_path / "weights"
    folder.mkdir()
    with zipfile.ZipFile(folder / "esm2_nested.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02})" + b"\x85" * 300_000 + b"Ns.")
        archive.writestr("archive/version", "3")
        archive.writestr("archive/byteorder", "little")
    return folder / "esm2_nested.pt"


@pytest.mark.parametrize("command", ["embed", slow("bench")])
def test_a_checkpoint_that_crashes_its_reader_is_a_clear_error(nested, tmp_path, called, command):
    fasta = tmp_path / "proteins.fa"
    fasta.write_text(">a\nMKLV\n")
    options = {"embed": [str(fasta), "-o", str(tmp_path / "run")], "bench": ["--device", "cpu"]}
    printed = called(command, *options[command], "-e", nested, code=1).stderr
    assert f"{nested}: the process that reads it failed: killed by SIGSEGV" in printed
    assert [path.name for path in nested.parent.iterdir()] == [nested.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["proteins.fa", "weights"]
