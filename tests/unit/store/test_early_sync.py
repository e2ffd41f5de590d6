import os
import time

import pytest

from virnucpro.store.aggregate import _BYTES, EarlySync


def test_large_writes_are_flushed_and_small_ones_are_not(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    with (tmp_path / "file").open("wb") as stream:
        with EarlySync(stream.fileno()) as sync:
            sync.wrote(_BYTES - 1)
            assert not flushed
            sync.wrote(1)
        assert flushed == [stream.fileno()]


def write_much(path, turns):
    with path.open("wb") as stream, EarlySync(stream.fileno()) as sync:
        for _ in range(turns):
            sync.wrote(_BYTES)
            time.sleep(0.01)


@pytest.mark.parametrize("turns", [1, 50])
def test_a_failed_flush_is_not_lost(tmp_path, monkeypatch, turns):
    def fail(_handle):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_much(tmp_path / "file", turns)
