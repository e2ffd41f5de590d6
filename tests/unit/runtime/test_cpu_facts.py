from virnucpro.runtime import cpu_facts
from virnucpro.runtime.cpu_facts import cpu_flags


def test_flags_are_the_first_cpus(tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(cpu_facts, "_CPUINFO", path)
    path.write_text("processor\t: 0\nflags\t\t: fpu amx_bf16\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert cpu_flags() == {"fpu", "amx_bf16"}
    path.write_text("Features : asimd\n")
    assert cpu_flags() == frozenset()


def test_this_machine_says_something():
    assert all(isinstance(flag, str) for flag in cpu_flags())
