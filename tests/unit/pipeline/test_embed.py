from argparse import Namespace

import pytest
import torch

from virnucpro.encoders.esm2_config import Esm2Config
from virnucpro.errors import BundleError
from virnucpro.pipeline.embed import embed_job


@pytest.fixture
def checkpoint(tmp_path):
    """Give a function that saves a tiny fair-esm checkpoint of a name."""

    def make(name):
        settings = Namespace(
            encoder_layers=1, encoder_embed_dim=8, encoder_attention_heads=2, token_dropout=True
        )
        shapes = Esm2Config(1, 8, 2).tensor_shapes()
        tensors = {key: torch.zeros(shape) for key, shape in shapes.items()}
        torch.save({"cfg": {"model": settings}, "model": tensors}, tmp_path / name)
        return str(tmp_path / name)

    return make


def test_a_published_name_stands_for_the_published_file(checkpoint):
    path = checkpoint("esm2_t6_8M_UR50D.pt")
    with pytest.raises(BundleError, match=r"is not the published file.*md5.*another file name"):
        embed_job(["a.fa"], encoder=path)


def test_any_other_name_may_stand_for_anything(checkpoint):
    (spec,) = embed_job(["a.fa"], encoder=checkpoint("esm2_mine.pt")).encoders
    assert (spec.name, spec.dim) == ("esm2_mine", 8)
