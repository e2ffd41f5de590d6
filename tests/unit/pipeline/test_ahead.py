"""Which processes are started before it is known what a run will do."""

import pytest

from virnucpro.errors import UsageError
from virnucpro.pipeline.ahead import likely_units, ranks_ahead
from virnucpro.pipeline.execution import Execution

EXAMPLE = "tests/data/example.fa"


@pytest.fixture
def ahead(importable, monkeypatch, tmp_path):
    """Give the number of processes that stand by for a run."""
    prepare = importable("standby_workers").prepare
    monkeypatch.setattr("virnucpro.pipeline.ahead.import_work", prepare)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4))

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


def test_there_are_no_more_than_processors(ahead):
    assert ahead(devices="cpu:40") == 4


def test_there_are_no_more_than_memory_has_room_for(ahead, monkeypatch):
    monkeypatch.setattr("virnucpro.pipeline.ahead.usable_memory", lambda: 2 << 30)
    assert ahead(devices="cpu:4") == 2


def test_there_are_no_more_than_a_small_input_has_work_for(ahead, tmp_path):
    small = tmp_path / "small.fa"
    small.write_text(">a\n" + "ACGT" * 800)
    assert ahead([str(small)], devices="cpu:4") == 2


def test_units_are_guessed_from_the_files_sizes(tmp_path):
    plain, packed = tmp_path / "a.fa", tmp_path / "a.fa.gz"
    plain.write_bytes(bytes(10_000))
    packed.write_bytes(bytes(10_000))
    assert likely_units([str(plain)]) == 6
    assert likely_units([str(packed)]) == 26
    assert likely_units([str(plain), str(packed)]) == 31
    assert likely_units([str(plain), "-"]) > 1e9


@pytest.mark.parametrize("folder", ["x" * 300, "no/such/\udc80"])
def test_a_name_that_cannot_be_looked_at_is_for_others_to_complain_of(ahead, folder):
    assert ahead([folder], devices="cpu:2") == 0
    assert ahead(folder=folder, devices="cpu:2") == 2


@pytest.mark.parametrize("folder", ["", "a-file"])
def test_there_is_none_where_the_run_folder_is_there(ahead, tmp_path, folder):
    (tmp_path / "a-file").touch()
    assert ahead(folder=folder, devices="cpu:2") == 0


def test_there_is_none_where_an_input_is_not(ahead):
    assert ahead([EXAMPLE, "tests/data/none.fa"], devices="cpu:2") == 0


def test_devices_that_make_no_sense_are_told_at_once(ahead):
    with pytest.raises(UsageError, match="is no device"):
        ahead(devices="foo")
