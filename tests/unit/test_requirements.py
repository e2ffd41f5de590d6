"""Every requirement names a test that exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_requirement_names_a_test_that_exists():
    text = (ROOT / ".planning" / "REQUIREMENTS.md").read_text()
    rows = re.findall(r"^\| ([A-Z]+-\d+) \|.*\| (tests/\S+\.py)::(\w+) \|$", text, re.MULTILINE)
    assert len(rows) > 40
    assert len({number for number, _, _ in rows}) == len(rows)
    missing = [row for row in rows if row[2] not in _functions(ROOT / row[1])]
    assert missing == []


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
