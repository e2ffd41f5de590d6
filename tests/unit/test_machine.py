import os

import pytest

from virnucpro import machine
from virnucpro.machine import (
    _GRANTS,
    _cpu_quotas,
    _memory_limits,
    available_memory,
    bound_cpus,
    scheduler_limit,
    usable_cpus,
    usable_memory,
)


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch):
    for name in _GRANTS:
        monkeypatch.delenv(name, raising=False)


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_memory_limits_of_a_control_group_and_its_parents_count(tmp_path):
    job = tmp_path / "memory" / "slurm" / "job_7"
    write(job, memory__limit_in_bytes="4000")
    write(job.parent, memory__limit_in_bytes="9000")
    write(tmp_path / "user.slice" / "job_7", memory__max="max")
    write(tmp_path / "user.slice", memory__max="5000")
    assert list(_memory_limits(tmp_path, "4:memory:/slurm/job_7\n3:cpu:/x\n")) == [4000, 9000]
    assert list(_memory_limits(tmp_path, "0::/user.slice/job_7\n")) == [5000]
    assert list(_memory_limits(tmp_path, "0::/elsewhere\n")) == []


def test_cpu_quotas_of_a_control_group_and_its_parents_count(tmp_path):
    write(tmp_path / "user.slice" / "job_7", cpu__max="max 100000")
    write(tmp_path / "user.slice", cpu__max="200000 100000")
    old = tmp_path / "cpu,cpuacct" / "slurm"
    write(old / "job_7", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(old, cpu__cfs_quota_us="150000", cpu__cfs_period_us="100000")
    assert list(_cpu_quotas(tmp_path, "0::/user.slice/job_7\n")) == [2.0]
    assert list(_cpu_quotas(tmp_path, "5:cpu,cpuacct:/slurm/job_7\n")) == [1.5]
    assert list(_cpu_quotas(tmp_path, "0::/elsewhere\n")) == []


@pytest.mark.parametrize(("quota", "wanted"), [("200000", 2), ("150000", 1), ("50000", 1)])
def test_the_smaller_of_affinity_and_quota_counts(tmp_path, monkeypatch, quota, wanted):
    write(tmp_path, cpu__max=f"{quota} 100000")
    groups = tmp_path / "cgroup"
    groups.write_text("0::/\n")
    monkeypatch.setattr(machine, "_CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(machine, "_CGROUPS", groups)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    assert usable_cpus() == wanted
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(1))
    assert usable_cpus() == 1


@pytest.mark.parametrize(
    ("granted", "cpus", "limit"),
    [
        *(
            ({name: "3"}, 3, f"using 3 of 64 CPUs: the scheduler grants {name}=3")
            for name in _GRANTS
        ),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "2"}, 2, "SLURM_CPUS_PER_TASK=2"),
        ({"NSLOTS": "256"}, 64, ""),  # of several nodes
        ({"NSLOTS": "64"}, 64, ""),
        ({"NSLOTS": "", "NCPUS": "abc", "LSB_DJOB_NUMPROC": "0", "PBS_NUM_PPN": "-2"}, 64, ""),
        ({"OMP_NUM_THREADS": "1"}, 64, ""),
    ],
)
def test_a_job_may_use_fewer_cpus_than_the_node_has(granted, cpus, limit, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    for name, value in granted.items():
        monkeypatch.setenv(name, value)
    assert (usable_cpus(), bound_cpus()) == (cpus, 64)
    assert limit in scheduler_limit(1, None)
    assert bool(limit) == bool(scheduler_limit(1, None))
    assert scheduler_limit(1, 64) == scheduler_limit(65, None) == ""


def test_available_memory_is_part_of_usable_memory(monkeypatch):
    assert 10**8 < available_memory() <= usable_memory() < 10**14
    monkeypatch.setattr(machine, "usable_memory", lambda: 5000)
    assert available_memory() == 5000
