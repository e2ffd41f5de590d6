"""The Python API in scripts, IPython and a notebook, and for type checkers."""

import json
import os
import sys
from pathlib import Path

import pytest
from cases import slow
from programs import run_captured

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "data" / "example.fa"
NOTEBOOK = ROOT / "docs" / "notebooks" / "virnucpro.ipynb"
CALL = f"virnucpro.classify({str(EXAMPLE)!r}, devices=DEVICES, threads=2)"
GUARD = 'if __name__ == "__main__":'

UNGUARDED = f"import gc, virnucpro\nprint({CALL})\nassert gc.get_freeze_count() == 0\n"
GUARDED = f"import virnucpro\n{GUARD}\n    print({CALL})\n"
RESULT = "<virnucpro.Result: 7 sequences: 3 viral, 4 non-viral>\n"


def python(*arguments, text=None, cwd=ROOT, **environment):
    return run_captured(
        sys.executable,
        *arguments,
        input=text,
        timeout=110,
        cwd=cwd,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("script", "devices"),
    [
        pytest.param(UNGUARDED, "cpu", id="one worker"),
        slow(GUARDED, "cpu:2", id="guarded"),
    ],
)
def test_a_script(script, devices, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(script.replace("DEVICES", repr(devices)))
    done = python(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, RESULT, "")


@pytest.mark.slow  # test_gpu_coordinator.py shows the error
def test_a_script_without_the_main_guard_is_told_so_in_one_line(tmp_path):
    """Each worker runs the script again; it must neither start workers itself nor hang."""
    path = tmp_path / "script.py"
    path.write_text(UNGUARDED.replace("DEVICES", "'cpu:2'"))
    done = python(path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("Traceback") == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("virnucpro.errors.UsageError: each worker process imports the main")
    assert last.endswith(f"`{GUARD}`")


def test_a_script_from_standard_input_is_told_so():
    done = python("-", text=UNGUARDED.replace("DEVICES", "'cpu:2'"))
    assert done.stderr.count("Traceback") == 1
    assert "cannot import a script from standard input" in done.stderr.splitlines()[-1]
    assert "by the encoders of bundles only" in done.stderr.splitlines()[-1]


FORKED = f"""
import multiprocessing, virnucpro

DEEP = {{"bundle": "mini-deep"}}

def call(options):
    try:
        if options == "model":
            return model.score({str(EXAMPLE)!r})
        return repr(virnucpro.classify({str(EXAMPLE)!r}, threads=1, **options))
    except virnucpro.VirnucproError as error:
        return str(error)

{GUARD}
    model = virnucpro.load()
    call("model")
    cases = {{}}, {{"devices": "cpu:2"}}, "model", DEEP
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(*pool.map(call, cases), sep="\\n")
"""


@pytest.mark.parametrize("deep", [False, slow(True)])
def test_a_forked_worker_of_a_pool_works_or_is_told_why_not(deep, tmp_path):
    """torch in a fork waits for threads that it does not have."""
    text = FORKED.replace("    model =", "    call(DEEP)\n    model =")
    path = tmp_path / "script.py"
    path.write_text(text if deep else FORKED.replace(", DEEP\n", "\n"))
    done = python(path)
    assert (done.returncode, done.stderr) == (0, "")
    result, daemonic, loaded, *forked = done.stdout.splitlines()
    assert loaded == "this model was loaded before the fork: load it in each process"
    assert f"{result}\n" == RESULT
    assert ["a fork of one in which torch has computed" in one for one in forked] == [True] * deep
    assert daemonic.startswith("this process is daemonic")


@pytest.mark.slow
def test_ipython_needs_no_guard(needs, tmp_path):
    needs("IPython")
    code = UNGUARDED.replace("DEVICES", "'cpu:2'")
    done = python("-m", "IPython", "--no-banner", "-c", code, IPYTHONDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert RESULT in done.stdout


@pytest.fixture(scope="module")
def executed(needs, tmp_path_factory):
    """The notebook with its outputs."""
    needs("nbclient")
    needs("ipykernel")
    needs("pandas")
    folder = tmp_path_factory.mktemp("notebook")
    folders = ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "MPLCONFIGDIR")
    done = python(
        ROOT / "tests" / "data" / "run_notebook.py",
        NOTEBOOK,
        folder / "out.ipynb",
        **dict.fromkeys(folders, str(folder)),
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads((folder / "out.ipynb").read_text())["cells"]
    return {cell["id"]: cell["outputs"] for cell in cells if cell["cell_type"] == "code"}


@pytest.mark.scripts
def test_the_notebook_runs(executed):
    assert [*executed] == ["classify", "table", "plot", "embed"]
    shown = {
        name: {kind for output in outputs for kind in output.get("data", {})}
        for name, outputs in executed.items()
    }
    assert {"text/html"} <= shown["classify"] & shown["table"]
    assert {"image/png"} <= shown["plot"] & shown["embed"]
    html = "".join(executed["classify"][0]["data"]["text/html"])
    assert "7 sequences: 3 viral, 4 non-viral" in html
    printed = [output for outputs in executed.values() for output in outputs if "name" in output]
    assert printed == []  # neither progress nor warnings


def test_the_notebook_is_stored_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * 4
    assert NOTEBOOK.stat().st_size < 8192
