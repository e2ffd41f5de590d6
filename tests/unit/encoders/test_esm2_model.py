import torch
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.encoders.encoder import CPU_STEP
from virnucpro.encoders.esm2 import model as esm2_model
from virnucpro.encoders.registry import load_encoder, open_spec


@given(st.integers(1, 300_000))
def test_stripes_are_multiples_of_the_step_except_the_last(rows):
    size = esm2_model._stripe_rows(rows, "cpu")
    stripes = [len(part) for part in torch.empty(rows, 0).split(size)]
    assert sum(stripes) == rows
    assert max(stripes) <= esm2_model._STRIPE["cpu"]
    assert len(stripes) == -(-rows // esm2_model._STRIPE["cpu"])
    assert all(stripe % CPU_STEP == 0 for stripe in stripes[:-1])
    assert stripes[-1] % CPU_STEP == rows % CPU_STEP


def test_stripes_have_even_sizes():
    parts = torch.empty(8_224, 0).split(esm2_model._stripe_rows(8_224, "cpu"))
    assert [len(part) for part in parts] == [4_128, 4_096]


def test_stripes_do_not_change_any_bit(fair_esm, proteins, monkeypatch):
    path, _ = fair_esm()
    encoder = load_encoder(open_spec(path))
    batch = encoder.collate(encoder.tokenise(proteins([70, 33, 33, 5, 1])))
    whole = encoder.encode(batch)
    monkeypatch.setitem(esm2_model._STRIPE, "cpu", 64)
    assert torch.equal(encoder.encode(batch), whole)
