"""Rows 52 and 53: what a scheduler grants, and what it promises but the machine lacks."""

import json

import pytest
from cases import mostly_slow, slow
from programs import SCRIPTS

import virnucpro as library
from virnucpro.machine import bound_cpus
from virnucpro.run_dir import RunDirectory

GRANTS = ("NSLOTS", "NCPUS", "PBS_NUM_PPN", "LSB_DJOB_NUMPROC")
GRANTS += ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch):
    """The tests may run in a job of a scheduler."""
    for name in (*GRANTS, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    if bound_cpus() < 2:
        pytest.skip("needs two CPUs: a grant of one is the limit of this process")


def devices_of(run):
    return json.loads(RunDirectory(run).run_json.read_text())["launches"][-1]["devices"]


@pytest.mark.parametrize("name", mostly_slow(GRANTS, "NSLOTS"))
def test_a_job_of_one_slot_on_a_larger_node(name, called, few_fasta, tmp_path, monkeypatch):
    monkeypatch.setenv(name, "1")
    limit = f"using 1 of {bound_cpus():,} CPUs: the scheduler grants {name}=1"
    run, launch = tmp_path / "run", tmp_path / "launch"
    shown = called("predict", few_fasta, "-o", run, "--resume", code=0).stderr  # starts workers
    assert limit in shown
    assert "on 1 worker (cpu)\n" in shown
    assert devices_of(run) == ["cpu"]
    for number in range(2):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.fa").write_text(f">a\n{'ACGT' * 200}\n")
    shown = called("launch", "--input-dir", tmp_path / "in", "-o", launch, code=0).stderr
    assert limit in shown
    assert json.loads((launch / "launch.json").read_text())["devices"] == ["cpu"]


@pytest.mark.parametrize("words", [["-t", "2"], slow(["--devices", "cpu:2"])])
def test_a_user_asks_for_more_than_the_grant(words, called, few_fasta, tmp_path, monkeypatch):
    monkeypatch.setenv("NCPUS", "1")
    shown = called("predict", few_fasta, "-o", tmp_path / "run", "--resume", *words, code=0).stderr
    assert "on 2 workers (cpu)\n" in shown
    assert "NCPUS" not in shown


@pytest.mark.parametrize("mask", ["0", slow("GPU-8f6e1b2c-0000"), slow("MIG-0a0b0c0d")])
def test_a_job_with_a_gpu_in_a_container_without_driver(
    mask, called, deep, few_fasta, tmp_path, monkeypatch, computing_here
):
    monkeypatch.setattr("virnucpro.runtime.devices.list_gpus", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    warning = f"CUDA_VISIBLE_DEVICES={mask} names a GPU, but there is no NVIDIA driver"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.fa").write_text(f">a\n{'ACGT' * 200}\n")
    mini = ["predict", tmp_path / "in" / "one.fa", "-o", tmp_path / "mini"]
    assert f"CUDA_VISIBLE_DEVICES={mask} has no effect" in called(*mini, code=0).stderr
    with computing_here():
        words = ["predict", tmp_path / "in" / "one.fa", *deep, "-o", tmp_path / "run"]
        shown = called(*words, code=0).stderr
        assert f"warning: {warning}" in shown
        assert "on 1 worker (cpu)\n" in shown
        shown = called(*words, "--force", "--devices", "cpu", "-q", code=0).stderr
        assert mask not in shown
    words = ["--input-dir", tmp_path / "in", "-o", tmp_path / "out", "-q"]
    words += ["--worker", f"{SCRIPTS / 'word_counts.py'}:WordStatistics", "--set", "shortest=5"]
    assert f"warning: {warning}" in called("launch", *words, code=0).stderr
    with pytest.warns(UserWarning, match=warning):
        library.classify(tmp_path / "in" / "one.fa", bundle="mini-deep")
