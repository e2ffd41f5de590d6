"""Each command imports only the modules that it needs: importing torch takes a second.

Runs of a bundle without language models never import it, neither in the command nor in its ranks.
"""

import json
import os
import re
import shutil
import sys
from dataclasses import replace

import pytest
from doubles import open_run
from programs import run_captured

from virnucpro.bundles.bundle import open_bundle, save_bundle
from virnucpro.bundles.manifest import read_bundle
from virnucpro.bundles.published import recipe_of
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job

EXAMPLE = "tests/data/example.fa"
ENCODERS = {"torch", "esm", "transformers", "tokenizers"}
NOTHING = ENCODERS | {"h5py", "numpy", "safetensors", "xopen", "rich", "pynvml"}
COMMANDS = [
    *("predict", "embed", "bench", "frames", "status", "verify", "aggregate"),
    *("submit", "cite", "completion"),
    *("rescore", "report", "plot", "train", "evaluate", "launch"),
    *("bundle", "bundle fetch", "bundle verify"),
]

CASES = {
    "help": ("--help", ExitCode.OK, NOTHING),
    "wrong usage": ("predict --nonsense", ExitCode.USAGE, NOTHING),
    "status": ("status {run}", ExitCode.PARTIAL, ENCODERS | {"h5py", "safetensors"}),
    "frames": ("frames {example} -o {new}", ExitCode.OK, ENCODERS | {"h5py"}),
    "bundle list": ("bundle list", ExitCode.OK, ENCODERS | {"h5py"}),
    "bundle show": ("bundle show mini", ExitCode.OK, ENCODERS | {"h5py"}),
    "fetch of an unknown name": ("bundle fetch none", ExitCode.USAGE, ENCODERS | {"h5py"}),
    "bundle verify": ("bundle verify mini", ExitCode.OK, ENCODERS | {"h5py"}),
    "bench of an unknown bundle": ("bench -b none", ExitCode.USAGE, ENCODERS),
    "evaluate without labels": ("evaluate -o {new}", ExitCode.USAGE, ENCODERS | {"h5py"}),
    "evaluate, fragments alone": (
        "evaluate --viral {example} --non-viral {hosts} -o {cut} --fragments-only",
        *(ExitCode.OK, ENCODERS | {"sklearn", "matplotlib", "scipy"}),
    ),
    "rescore": ("rescore {run}", ExitCode.PARTIAL, ENCODERS),
    "verify": ("verify {run}", ExitCode.PARTIAL, ENCODERS),
    "aggregate": ("aggregate {run}", ExitCode.PARTIAL, ENCODERS),
    "no such input": ("predict {new}.fa -o {new}", ExitCode.FAILED, ENCODERS),
    "a run that is there": ("predict {example} -o {run}", ExitCode.FAILED, ENCODERS),
}
"""Command line, exit code, modules that neither it nor a case before may import."""


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run stopped before its first batch."""
    folder = tmp_path_factory.mktemp("startup") / "run"
    with open_run(predict_job([EXAMPLE], precision="fp32"), Execution(folder)):
        pass
    return folder


def imported(*command: str) -> tuple[int, set[str]]:
    """Run Python and return the top-level names of the imported modules."""
    done = run_captured(sys.executable, "-X", "importtime", *command)
    names = re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE)
    assert len(names) > 50
    return done.returncode, {name.partition(".")[0] for name in names}


ONE_AFTER_ANOTHER = """
import contextlib, io, json, pathlib, sys
from virnucpro.cli.main import main

if __name__ == "__main__":
    answers = {}
    for name, words in json.loads(sys.argv[1]).items():
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            try:
                code = main(words)
            except SystemExit as stopped:  # wrong usage
                code = stopped.code
        loaded = sorted({one.partition(".")[0] for one in sys.modules})
        answers[name] = code, errors.getvalue(), loaded
    pathlib.Path(sys.argv[2]).write_text(json.dumps(answers))
"""


def answers_of(tmp_path, commands):
    """Run commands one after another in a new process.

    Return exit code, standard error and the modules imported up to then by their names.
    """
    script, answers = tmp_path / "script.py", tmp_path / "answers.json"
    script.write_text(ONE_AFTER_ANOTHER)
    words = {name: [*map(str, command)] for name, command in commands.items()}
    run_captured(sys.executable, script, json.dumps(words), answers, code=0)
    return json.loads(answers.read_text())


def test_the_program_imports_no_heavy_module_for_its_version():
    code, modules = imported("-m", "virnucpro", "--version")
    assert code == ExitCode.OK
    assert "virnucpro" in modules
    assert modules & NOTHING == set()


def test_a_command_imports_only_what_it_needs(run_folder, tmp_path):
    names = {name: tmp_path / name for name in ("new", "cut", "hosts")}
    names |= {"run": run_folder, "example": EXAMPLE}
    names["hosts"].write_text(f">host\n{'ACGTTGCA' * 200}\n")
    commands = {case: line.format(**names).split() for case, (line, _, _) in CASES.items()}
    for case, (code, errors, modules) in answers_of(tmp_path, commands).items():
        _, wanted, forbidden = CASES[case]
        assert code == wanted, f"{case}: {errors}"
        assert forbidden.intersection(modules) == set(), case


def test_fetching_an_installed_bundle_imports_no_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRNUCPRO_DATA", str(tmp_path))
    folder = tmp_path / "bundles" / "esm2_t6_8M_UR50D"
    shutil.copytree(open_bundle("mini-deep").path, folder)
    deep = read_bundle(folder)
    sources = {"sources": recipe_of(folder.name).sources}
    protein = deep.encoders[1:]
    save_bundle(
        replace(deep, encoders=protein, head=None, labels=(), thresholds={}, provenance=sources)
    )
    code, modules = imported("-m", "virnucpro", "bundle", "fetch", folder.name)
    assert code == 0
    assert modules & ENCODERS == set()


def test_help_pages_import_no_heavy_module():
    program = (
        "import contextlib\n"
        "from virnucpro.cli.main import main\n"
        f"for command in {COMMANDS!r}:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main([*command.split(), '--help'])\n"
    )
    code, modules = imported("-c", program)
    assert code == 0
    assert modules & NOTHING == set()


def test_the_list_of_help_pages_is_complete(virnucpro):
    listed = re.findall(r"^ {4}(\w+)(?: |$)", virnucpro("--help").stdout, re.MULTILINE)
    assert set(listed) <= set(COMMANDS)
    assert len(listed) >= 10


WITHOUT_MODELS = "import sys; sys.modules.update(torch=None, tokenizers=None)"


@pytest.fixture
def without_torch(tmp_path, monkeypatch):
    """The extra `models` is missing, in this program's children and in theirs."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_MODELS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


@pytest.mark.usefixtures("without_torch")
def test_runs_of_mini_never_import_torch(tmp_path):
    (tmp_path / "in").mkdir()
    shutil.copy(EXAMPLE, tmp_path / "in" / "example.fa")
    run, out, cpu = tmp_path / "run", tmp_path / "out", ("--devices", "cpu:1")
    commands = {
        "small": ["predict", EXAMPLE, "-o", tmp_path / "small"],
        "predict": ["predict", EXAMPLE, "-o", run, "--devices", "cpu:1"],
        "rescore": ["rescore", run, "--preset", "sensitive"],
        "report": ["report", run],
        "verify": ["verify", run],
        "launch": ["launch", "--input-dir", tmp_path / "in", "-o", out, *cpu],
    }
    for name, (code, errors, modules) in answers_of(tmp_path, commands).items():
        assert code == ExitCode.OK, f"{name}: {errors}"
        if name == "small":  # computes in its own process; its versions need no email parser
            assert {"multiprocessing", "email"}.isdisjoint(modules)
    classify = f"import virnucpro; print(len(virnucpro.classify({EXAMPLE!r}).records))"
    run_captured(sys.executable, "-c", classify, code=0)


NEED_MODELS = {
    "bundle mini-deep": "predict {example} -b mini-deep -o {new}",
    "bundle mini-deep of launch": "launch --input-dir {folder} -b mini-deep -o {new}",
    "bundle mini-deep of a task": "predict {example} -b mini-deep --task 0/2 -o {new}",
    "bundle mini-deep of evaluate": (
        "evaluate --viral {example} --non-viral {fasta} -b mini-deep -o {new}"
    ),
    "the encoder mini-deep/protein": "embed {fasta} -e mini-deep/protein -o {new}",
    "the encoder {folder}": "embed {fasta} -e {folder} -o {new}",
    "--format pt": "embed {example} -e mini/nucleotide --format pt -o {new}",
    "train": "train --viral {example} --non-viral {fasta} -o {new}",
    "bench": "bench",
    "bundle verify --golden": "bundle verify mini-deep --golden",
    "bundle fetch": "bundle fetch virnucpro-500",
}
"""Beginning of the message up to " of ", and command line."""


@pytest.mark.usefixtures("without_torch")
def test_what_needs_torch_names_the_extra_and_writes_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "in"
    folder.mkdir()
    fasta = shutil.copy(EXAMPLE, folder)
    monkeypatch.setenv("VIRNUCPRO_DATA", str(tmp_path / "data"))
    names = {"folder": folder, "fasta": fasta, "new": tmp_path / "new", "example": EXAMPLE}
    commands = {case: line.format(**names).split() for case, line in NEED_MODELS.items()}
    for case, (code, errors, _) in answers_of(tmp_path, commands).items():
        assert code == ExitCode.USAGE, errors
        subject = case.format(**names).partition(" of ")[0]
        message = f"{subject} needs torch and tokenizers: pip install 'virnucpro[models]'"
        assert errors.strip().splitlines()[-1].endswith(message)
    assert not (tmp_path / "new").exists()
