"""Print the size of the package: files, lines and code lines of each folder, long modules.

With --run, count also the modules that a `predict` with one rank executes.

    python scripts/bench/code_size.py [--run]
"""

import argparse
import ast
import io
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "virnucpro"
LONGEST_MODULE = 400
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
PROFILER = """
import atexit, os, sys, threading
executed = set()
def called(frame, event, _):
    code = frame.f_code
    in_a_function = code.co_flags & 2  # CO_NEWLOCALS: not the body of a module
    if event == "call" and in_a_function and {package!r} in code.co_filename:
        executed.add(code.co_filename)
def report():
    if not os.path.isdir({folder!r}):  # multiprocessing's resource tracker may end after the run
        return
    with open(os.path.join({folder!r}, str(os.getpid())), "w") as stream:
        stream.write("\\n".join(executed))
exit_now = os._exit
os._exit = lambda code: (report(), exit_now(code))
atexit.register(report)
sys.setprofile(called)
threading.setprofile(called)
"""


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


def executed_modules() -> Iterator[str]:
    """Run a small `predict` on one CPU rank and yield the modules whose functions were called."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        modules, hook = folder / "modules", folder / "hook"
        modules.mkdir()
        hook.mkdir()
        text = PROFILER.format(package=f"{PACKAGE}{os.sep}", folder=str(modules))
        (hook / "sitecustomize.py").write_text(text)
        subprocess.run(
            [
                *(sys.executable, "-m", "virnucpro", "predict", ROOT / "tests/data/example.fa"),
                *("-o", folder / "run", "--devices", "cpu:1", "-q"),
            ],
            env=os.environ | {"PYTHONPATH": f"{hook}{os.pathsep}{ROOT}"},
            check=True,
        )
        yield from {path for file in modules.iterdir() for path in file.read_text().split("\n")}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--run", action="store_true", help="count executed modules, too")
    arguments = parser.parse_args()
    sizes = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        sizes[path.parent.relative_to(ROOT)].append(
            (len(text.splitlines()), code_lines(text), path)
        )
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
        found = [Path(path).relative_to(PACKAGE) for path in executed_modules() if path]
        print(f"modules executed by a predict with one rank: {len(found)}")
        rooms = defaultdict(int)
        for path in found:
            rooms[path.parts[0] if len(path.parts) > 1 else "."] += 1
        print(", ".join(f"{room} {count}" for room, count in sorted(rooms.items())))


if __name__ == "__main__":
    main()
