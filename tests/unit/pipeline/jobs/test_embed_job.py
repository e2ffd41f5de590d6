import pytest
import torch

from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.errors import BundleError
from virnucpro.pipeline.jobs.embed_job import embed_job


@pytest.fixture
def checkpoint(tmp_path, stand_ins):
    """Give a function that saves a tiny fair-esm checkpoint of a name."""

    def make(name):
        config = Esm2Config(1, 8, 2)
        tensors = {key: torch.zeros(shape) for key, shape in config.tensor_shapes().items()}
        stand_ins.save_checkpoint(tmp_path / name, config, tensors)
        return str(tmp_path / name)

    return make


def test_a_published_name_stands_for_the_published_file(checkpoint):
    path = checkpoint("esm2_t6_8M_UR50D.pt")
    with pytest.raises(BundleError, match=r"is not the published file.*md5.*another file name"):
        embed_job(["a.fa"], encoder=path)


def test_any_other_name_may_stand_for_anything(checkpoint):
    (spec,) = embed_job(["a.fa"], encoder=checkpoint("esm2_mine.pt")).encoders
    assert (spec.name, spec.dim) == ("esm2_mine", 8)
