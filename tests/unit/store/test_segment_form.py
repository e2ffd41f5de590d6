"""Segments of a known form are decoded without HDF5, with equal content."""

import h5py
import numpy as np
import pytest

from virnucpro.errors import DamagedSegmentError
from virnucpro.store import segment as module
from virnucpro.store.schema import USER_BLOCK, RowState
from virnucpro.store.segment import Segment, commit_segment, encode_segment, read_segment


@pytest.fixture(autouse=True)
def _no_forms(monkeypatch):
    monkeypatch.setattr(module, "_FORMS", {})


def a_segment(unit: int, n: int = 7, fingerprint: str = "f" * 64) -> Segment:
    dice = np.random.default_rng(unit)
    state = np.zeros(n, np.uint8)
    vectors = dice.standard_normal((n, 5)).astype(np.float16)
    scores = dice.random((n, 2), np.float32)
    reasons = {}
    if unit % 2:
        state[2], vectors[2], scores[2] = RowState.QUARANTINED, 0, 0
        reasons = {unit * n + 2: f"poison: {unit}"}
    rows = np.arange(unit * n, unit * n + n)
    return Segment(unit, fingerprint, rows, state, vectors, scores, reasons)


def same(one: Segment, other: Segment) -> bool:
    return encode_segment(one) == encode_segment(other)


@pytest.fixture
def _without_hdf5(monkeypatch, tmp_path):
    """Let both forms be learned, then refuse HDF5."""
    for unit in (0, 2, 3, 5):
        path = tmp_path / f"unit-{unit:06d}.h5"
        commit_segment(path, a_segment(unit))
        read_segment(path)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("HDF5 reads an image of a known form")

    monkeypatch.setattr(module, "_decode_hdf5", refuse)


@pytest.mark.usefixtures("_without_hdf5")
@pytest.mark.parametrize("unit", [0, 4, 7, 8])
def test_a_segment_of_a_known_form_is_read_without_hdf5(tmp_path, unit):
    path = tmp_path / f"unit-{unit:06d}.h5"
    commit_segment(path, a_segment(unit))
    found = read_segment(path)
    assert same(found, a_segment(unit))
    assert not found.rows.flags.writeable
    assert not found.embeddings.flags.writeable


@pytest.mark.parametrize(
    "other", [a_segment(9, fingerprint="e" * 64), a_segment(9, n=8), a_segment(11)]
)
def test_a_segment_of_another_form_is_read_with_hdf5(tmp_path, other):
    for unit in (0, 2, 4):
        commit_segment(tmp_path / f"unit-{unit:06d}.h5", a_segment(unit))
        read_segment(tmp_path / f"unit-{unit:06d}.h5")
    path = tmp_path / f"unit-{other.unit:06d}.h5"
    commit_segment(path, other)
    assert same(read_segment(path), other)


def test_an_image_with_other_metadata_is_not_taken_for_a_known_form(tmp_path):
    """A file of the same size with a valid checksum, but another value of an attribute."""
    path = tmp_path / "unit-000002.h5"
    for _ in range(3):
        commit_segment(path, a_segment(2))
        read_segment(path)
    image = path.read_bytes()[USER_BLOCK:].replace(b"virnucpro segment", b"virnucpro segmenT")
    path.write_bytes(module._header(image) + image)
    with pytest.raises(DamagedSegmentError, match="segmenT"):
        read_segment(path)


def test_images_of_another_hdf5_layout_are_read(tmp_path):
    """The oldest object headers with times: files that this program's encoder does not write."""
    segments = [a_segment(unit) for unit in (0, 2, 4)]
    for segment in segments:
        path = tmp_path / f"unit-{segment.unit:06d}.h5"
        with h5py.File(path, "w", userblock_size=USER_BLOCK) as file:
            file.attrs.update(
                format="virnucpro segment",
                unit=segment.unit,
                fingerprint=segment.fingerprint,
                schema_version=1,
            )
            for name in ("scores", "embeddings", "state", "rows"):
                file.create_dataset(name, data=getattr(segment, name), track_times=True)
            file["reasons"] = np.frombuffer(b"{}", np.uint8)
        image = path.read_bytes()[USER_BLOCK:]
        path.write_bytes(module._header(image) + image)
        assert same(read_segment(path), segment)
