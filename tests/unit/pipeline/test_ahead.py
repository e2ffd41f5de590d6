"""Which processes are started before it is known what a run will do."""

import pytest

from virnucpro.errors import UsageError
from virnucpro.pipeline.ahead import ranks_ahead
from virnucpro.pipeline.execution import Execution

EXAMPLE = "tests/data/example.fa"


@pytest.fixture
def ahead(importable, monkeypatch, tmp_path):
    """Give the number of processes that stand by for a run."""
    importable("coordinator_workers")
    monkeypatch.setattr("virnucpro.pipeline.ahead._MODULES", ())

    def count(inputs=(EXAMPLE,), folder="run", **options):
        with ranks_ahead(inputs, Execution(tmp_path / folder, **options)) as standby:
            return len(standby.pids)

    return count


def test_there_is_one_for_each_rank(ahead):
    assert ahead(devices="cpu:3") == 3
    assert ahead(devices="cpu", threads=2) == 1


def test_without_devices_there_is_one_for_each_thread(ahead, monkeypatch):
    monkeypatch.setattr("virnucpro.runtime.devices.list_gpus", list)
    assert ahead(threads=2) == 2


def test_standard_input_is_there(ahead):
    assert ahead(["-"], devices="cpu:1") == 1


@pytest.mark.parametrize("folder", ["", "a-file"])
def test_there_is_none_where_the_run_folder_is_there(ahead, tmp_path, folder):
    (tmp_path / "a-file").touch()
    assert ahead(folder=folder, devices="cpu:2") == 0


def test_there_is_none_where_an_input_is_not(ahead):
    assert ahead([EXAMPLE, "tests/data/none.fa"], devices="cpu:2") == 0


def test_devices_that_make_no_sense_are_told_at_once(ahead):
    with pytest.raises(UsageError, match="is no device"):
        ahead(devices="foo")
