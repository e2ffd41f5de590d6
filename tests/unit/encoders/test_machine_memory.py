from virnucpro.encoders import machine_memory
from virnucpro.encoders.machine_memory import _limits, available_memory, usable_memory


def test_limits_of_a_control_group_and_of_those_above_it_count(tmp_path):
    v1, v2 = tmp_path / "memory" / "slurm" / "job_7", tmp_path / "user.slice" / "job_7"
    for folder, name, text in (
        (v1, "memory.limit_in_bytes", "4000"),
        (v1.parent, "memory.limit_in_bytes", "9000"),
        (v2, "memory.max", "max"),
        (v2.parent, "memory.max", "5000"),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    assert list(_limits(tmp_path, "4:memory:/slurm/job_7\n3:cpu:/x\n")) == [4000, 9000]
    assert list(_limits(tmp_path, "0::/user.slice/job_7\n")) == [5000]
    assert list(_limits(tmp_path, "0::/elsewhere\n")) == []


def test_what_can_be_had_now_is_part_of_what_may_be_used(monkeypatch):
    assert 10**8 < available_memory() <= usable_memory() < 10**14
    monkeypatch.setattr(machine_memory, "usable_memory", lambda: 5000)
    assert available_memory() == 5000
