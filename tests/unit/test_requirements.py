"""The tests that requirements and the fault matrix name exist."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def test_each_requirement_names_a_test_that_exists():
    text = (ROOT / ".planning" / "REQUIREMENTS.md").read_text()
    rows = re.findall(r"^\| ([A-Z]+-\d+) \|.*\| (tests/\S+\.py)::(\w+) \|$", text, re.MULTILINE)
    assert len(rows) > 40
    assert len({number for number, _, _ in rows}) == len(rows)
    missing = [row for row in rows if row[2] not in functions(ROOT / row[1])]
    assert missing == []


def test_each_test_of_the_fault_matrix_exists():
    """A name without a file may be in any one; a file without a folder is in tests/faults."""
    text = (ROOT / ".planning" / "faults.md").read_text()
    text = text.split("## Failing ranks", 1)[1]
    named = set(re.findall(r"(?:(\S*test_\w+\.py)::)?(test_\w+)\b(?!\.py)", text))
    files = set(re.findall(r"[\w/]*test_\w+\.py", text))
    assert len(named) > 60
    everywhere = set().union(*map(functions, TESTS.rglob("test_*.py")))
    missing = [file for file in files if not place(file).is_file()]
    missing += [
        name for file, name in named if name not in (functions(place(file)) if file else everywhere)
    ]
    assert missing == []


def place(file: str) -> Path:
    return ROOT / file if "/" in file else TESTS / "faults" / file


@cache
def functions(path: Path) -> frozenset[str]:
    text = path.read_text() if path.is_file() else ""
    return frozenset(re.findall(r"^ *def (\w+)", text, re.MULTILINE))
