"""Templates of the pages are compiled once for each installation."""

import sys

import pytest
from jinja2 import Environment

from virnucpro.report.html.page import page_template


@pytest.fixture
def compiled_again(monkeypatch):
    """Return a function that gives the names of the templates that a new process compiles."""
    compiled = []
    compile_template = Environment.compile

    def counted(self, source, name, *rest, **options):
        compiled.append(name)
        return compile_template(self, source, name, *rest, **options)

    monkeypatch.setattr(Environment, "compile", counted)

    def names():
        page_template.cache_clear()
        compiled.clear()
        assert page_template().name == "report"
        return set(compiled)

    yield names
    page_template.cache_clear()


def test_a_template_is_compiled_again_if_its_file_is_damaged(compiled_again, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    everything = compiled_again()
    assert "report" in everything
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert compiled_again() == everything
    assert compiled_again() == set()
    (file,) = tmp_path.rglob("report.*")
    file.write_bytes(file.read_bytes()[:-7])
    assert compiled_again() == {"report"}
    (tmp_path / "cache").rename(tmp_path / "moved")
    (tmp_path / "cache").write_text("no folder")
    assert compiled_again() == compiled_again() == everything
