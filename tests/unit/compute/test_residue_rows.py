"""Segments with one vector per residue, and the rows that are left out of them."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from esm.model.esm2 import ESM2
from samples import index_of

from virnucpro.compute.rank_main import UnitProgress
from virnucpro.compute.row_embedder import RowEmbedder
from virnucpro.encoders.encoder import TorchEncoder
from virnucpro.encoders.pooling import Pooling
from virnucpro.encoders.registry import open_spec, pooled_spec
from virnucpro.runtime.policy import Findings
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.store.schema import RowState
from virnucpro.store.segment import encode_segment

LENGTHS = [90, 60, 41, 40, 33, 20, 7, 1]


class Channel:
    def put(self, payload): ...

    def progress(self, done, total): ...

    def mark(self, place): ...


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    dice = random.Random(5)
    proteins = [bytes(dice.choices(b"LAGVSERTID", k=n)) for n in LENGTHS]
    spec = IndexSpec("whole", Alphabet.PROTEIN)
    return index_of(tmp_path_factory.mktemp("index"), proteins, spec)


@pytest.fixture
def task(tmp_path, doubles, stand_ins):
    """Return a function that makes the task of a run with a pooling."""
    torch.manual_seed(3)
    stand_ins.save_esm2(tmp_path / "esm2_tiny.pt", ESM2(2, 32, 4).eval())
    spec = open_spec(tmp_path / "esm2_tiny.pt")
    (tmp_path / "run").mkdir()
    whole = doubles.mini_task(tmp_path / "run", len(LENGTHS))

    def make(**pooling):
        return replace(
            whole,
            encoders=(pooled_spec(spec, Pooling("none", **pooling)),),
            head=None,
            others={},
            batch_tokens=120,
        )

    return make


def embedded(task, index):
    watch = UnitProgress(Channel(), 0, len(LENGTHS))
    segment = RowEmbedder(task, index).embed(0, range(len(LENGTHS)), watch, Findings())
    encode_segment(segment)  # refuses arrays that do not fit together
    return segment


def without(segment, rows):
    """Return the residues of a segment without those of some rows."""
    owners = np.repeat(np.arange(len(segment.rows)), segment.counts)
    return segment.embeddings[~np.isin(owners, rows)]


def test_each_row_has_a_vector_per_residue(task, index):
    segment = embedded(task(), index)
    assert segment.counts.tolist() == LENGTHS
    assert np.ptp(segment.embeddings.astype(np.float32), axis=1).min() > 0


def test_rows_that_stay_not_finite_are_left_out(task, index, monkeypatch):
    healthy, encode = embedded(task(), index), TorchEncoder.encode

    def faulty(self, batch):
        vectors = encode(self, batch)
        # other rows of this batch are finite when they are computed alone
        return vectors * torch.nan if 42 in [group.length for group in batch.groups] else vectors

    monkeypatch.setattr(TorchEncoder, "encode", faulty)
    segment = embedded(task(), index)
    assert np.flatnonzero(segment.state == RowState.QUARANTINED).tolist() == [3]
    assert segment.reasons[3].startswith("not_finite")
    assert segment.counts.tolist() == [90, 60, 41, 0, 33, 20, 7, 1]
    np.testing.assert_allclose(segment.embeddings, without(healthy, [3]), atol=1e-3)


def test_rows_above_the_limit_are_left_out_and_chunks_keep_all_residues(task, index):
    refused = embedded(task(max_length=40), index)
    assert refused.counts.tolist() == [0, 0, 0, 40, 33, 20, 7, 1]
    assert set(refused.reasons) == {0, 1, 2}
    healthy = embedded(task(), index)
    np.testing.assert_allclose(refused.embeddings, without(healthy, [0, 1, 2]), atol=1e-3)
    assert embedded(task(max_length=40, long="chunk-mean"), index).counts.tolist() == LENGTHS
    assert embedded(task(max_length=40, long="truncate"), index).counts.tolist() == [
        *(40, 40, 40, 40, 33, 20, 7, 1)
    ]
