"""Row 18: any number of ranks gives the same table, also if resumes change it."""

import json

import pytest
from programs import segments_in
from samples import OPEN_CODONS, random_records

from virnucpro.cli.main import main
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.signals import StopRequested

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """Some 9,000 rows in units of 32: the ranks take longer than the time between two looks."""
    path = tmp_path_factory.mktemp("input") / "world.fa"
    path.write_text(random_records(8_500, seed=18, letters=OPEN_CODONS, name="w"))
    return path


@pytest.fixture(scope="module")
def alone(fasta, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert main(["predict", str(fasta), "-o", str(folder), "--devices", "cpu:1", "-q"]) == 0
    assert len(RunDirectory(folder).segments()) >= 50
    return folder


@pytest.mark.parametrize("world_size", [2, 4, 7])
def test_any_number_of_ranks_gives_one_table(world_size, fasta, alone, tmp_path, difference_of):
    folder = tmp_path / "run"
    command = ["predict", str(fasta), "-o", str(folder), "--devices", f"cpu:{world_size}", "-q"]
    assert main(command) == 0
    assert len(json.loads(RunDirectory(folder).status_json.read_text())["ranks"]) == world_size
    assert difference_of(alone, folder) == []


def test_four_ranks_then_three_then_five(fasta, alone, tmp_path, reporting, difference_of):
    folder = tmp_path / "run"
    command = ["predict", str(fasta), "-o", str(folder), "--resume"]
    kept, stops = {}, [1, 5]

    def stop(event):
        if event == "ranks" and stops and len(RunDirectory(folder).segments()) >= stops[0]:
            raise StopRequested(15)

    reporting(stop)
    for ranks in (4, 3):
        assert main([*command, "--devices", f"cpu:{ranks}"]) == 143
        now = segments_in(folder)
        assert kept.items() <= now.items()
        assert len(now) >= stops.pop(0)
        kept = now
    assert main([*command, "--devices", "cpu:5", "-q"]) == 0
    assert difference_of(alone, folder) == []
    units = [unit for unit, _ in RunDirectory(folder).segments()]
    assert len(units) == len(set(units)) == len(RunDirectory(alone).segments())
