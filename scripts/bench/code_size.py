"""Print the size of the package: files, lines and code lines of each folder, long modules.

With --run, classify a file, and count the modules entered and the pairs of modules that call.

    python scripts/bench/code_size.py [--run tests/data/example.fa]
"""

import argparse
import ast
import inspect
import io
import os
import re
import sys
import threading
import tokenize
from collections import Counter, defaultdict
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "virnucpro"
LONGEST_MODULE = 600
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Count the lines that are neither blank, comment nor docstring."""
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if isinstance(node.value.value, str)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line
        for token in tokens
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - strings)


def code_lines_of_c(text: str) -> int:
    """Count the lines that are neither blank nor comment."""
    return sum(
        map(bool, map(str.strip, re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines()))
    )


def traced(fasta: Path) -> tuple[set[str], set[tuple[str, str]]]:
    """Classify a file in this process; return the modules entered, and calls between modules."""
    sys.path.insert(0, str(ROOT))
    import virnucpro  # noqa: PLC0415 - after the path is set

    calls = set()

    def module_of(frame: FrameType | None) -> str:
        path = frame.f_code.co_filename if frame else ""
        return path.removeprefix(f"{PACKAGE}{os.sep}") if path.startswith(str(PACKAGE)) else ""

    def called(frame: FrameType, event: str, _: object) -> None:
        in_a_function = frame.f_code.co_flags & inspect.CO_NEWLOCALS  # not the body of a module
        if event == "call" and in_a_function and (module := module_of(frame)):
            calls.add((module_of(frame.f_back), module))

    threading.setprofile(called)
    sys.setprofile(called)
    with virnucpro.classify(fasta):
        sys.setprofile(None)
    threading.setprofile(None)
    edges = {(caller, module) for caller, module in calls if caller and caller != module}
    return {module for _, module in calls}, edges


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--run", type=Path, metavar="FASTA", help="count modules that this enters")
    arguments = parser.parse_args()
    sizes = defaultdict(list)
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.c")]):
        text = path.read_text()
        count = code_lines if path.suffix == ".py" else code_lines_of_c
        sizes[path.parent.relative_to(ROOT)].append((len(text.splitlines()), count(text), path))
    print(f"{'folder':34} {'files':>5} {'lines':>7} {'code':>7}")
    for folder, modules in sizes.items():
        lines, code = sum(one[0] for one in modules), sum(one[1] for one in modules)
        print(f"{folder!s:34} {len(modules):5} {lines:7,} {code:7,}")
    every = [one for modules in sizes.values() for one in modules]
    print(f"{'all':34} {len(every):5} {sum(o[0] for o in every):7,} {sum(o[1] for o in every):7,}")
    for lines, _, path in every:
        if lines > LONGEST_MODULE:
            print(f"longer than {LONGEST_MODULE} lines: {path.relative_to(ROOT)} ({lines})")
    if arguments.run:
        modules, edges = traced(arguments.run)
        rooms = Counter(str(Path(module).parent) for module in modules)
        print(f"classify({arguments.run}): {len(modules)} modules, {len(edges)} calls between them")
        print(", ".join(f"{room} {count}" for room, count in sorted(rooms.items())))


if __name__ == "__main__":
    main()
