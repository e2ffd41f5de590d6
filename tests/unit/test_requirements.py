"""Every requirement names a test that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(
    r"\| ([A-Z]+-\d+) \|.*\| (tests/\S+\.py)::(\w+) \|",
    (ROOT / ".planning" / "REQUIREMENTS.md").read_text(),
)


def test_there_are_requirements_with_distinct_ids():
    assert len(NAMED) > 40
    assert len({number for number, _, _ in NAMED}) == len(NAMED)


@pytest.mark.parametrize(("number", "path", "name"), NAMED, ids=[one[0] for one in NAMED])
def test_the_named_test_exists(number, path, name):
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in functions
