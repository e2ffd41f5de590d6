import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from virnucpro import arrays
from virnucpro.arrays import large_array, slices


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 30])
def test_slices_cover_all_positions_in_order(n, monkeypatch):
    monkeypatch.setattr(arrays, "_AT_ONCE", 8)
    parts = list(slices(n))
    assert [place for part in parts for place in range(part.start, part.stop)] == [*range(n)]
    assert all(0 < part.stop - part.start <= 8 for part in parts)


def _mapped_files():
    text = Path("/proc/self/maps").read_text()
    return [line for line in text.splitlines() if tempfile.gettempdir() in line]


@pytest.mark.parametrize("full", [False, True])
def test_a_large_array_is_a_file_without_a_name_if_there_is_space(full, monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if full:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    small = large_array((1 << 10,), np.float64)
    assert not _mapped_files()
    values = large_array((1 << 10, 1 << 10), np.float32)
    assert len(_mapped_files()) == (not full)
    values[:] = small[0] = 1
    assert values.sum() == 1 << 20
    assert [*tmp_path.iterdir()] == []
    del values
    assert not _mapped_files()
