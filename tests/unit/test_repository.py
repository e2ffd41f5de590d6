"""The repository has no stray files."""

import shutil
from pathlib import Path

import pytest
from programs import run_captured

ROOT = Path(__file__).parents[2]
TOP = {
    *(".ci", ".gitignore", ".planning", "CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md"),
    *("constraints.txt", "docs", "hatch_build.py", "mkdocs.yml", "pyproject.toml", "scripts"),
    *("tests", "virnucpro"),
}
"""Files and folders at the top of the repository."""


def test_a_stray_file_at_the_top_is_not_committed():
    if not (shutil.which("git") and (ROOT / ".git").exists()):
        pytest.skip("needs git and a clone of the repository")
    listed = run_captured("git", "ls-files", "-z", cwd=ROOT, code=0).stdout
    assert {name.split("/")[0] for name in listed.split("\0") if name} == TOP
