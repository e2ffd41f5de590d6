import errno
import fcntl
import os
import random
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from doubles import open_run
from programs import run_captured

from virnucpro import bundles
from virnucpro.cli.main import advice_for, main
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.runtime.signals import StopRequested

MORE_THREADS = len(os.sched_getaffinity(0)) + 1
MINI = Path(bundles.__path__[0]) / "mini"


def test_a_command_line_imports_its_own_command_only():
    code = (
        "import sys; from virnucpro.cli.main import main\n"
        "try: main(['predict', '--help'])\n"
        "except SystemExit: print(*(name for name in sys.modules if name.endswith('_command')))"
    )
    done = run_captured(sys.executable, "-c", code)
    names = re.findall(r"\S+_command\b", done.stdout.splitlines()[-1])
    assert names == ["virnucpro.cli.commands.predict_command"], done.stderr


EXAMPLE = str(Path("tests/data/example.fa").absolute())
UNKNOWN = [
    "bundle show nosuch",
    "bundle fetch nosuch",
    "bench -b nosuch",
    "bench --device mps",
    "bench --parity --device meta",
    "bundle verify mini-deep --golden --device bogus",
    "predict x.fa -o nowhere -b nosuch",
    "embed x.fa -o nowhere -e nosuch/protein",
    "embed x.fa -o nowhere -e nosuch",
    "embed x.fa -o nowhere -e ./nosuch.pt",
    "embed x.fa -o nowhere -e /nosuch/x.pt",
    "embed x.fa -o nowhere -e mini-deep/rna",
    "bench --parity -e nosuch",
]
NOT_ACCEPTED = [
    *((command, 64, "") for command in UNKNOWN),
    ("bundle show no\x1b[2J\x7fsuch", 64, r"no\x1b[2J\x7fsuch: there is no such bundle"),
    *((f"bench --lengths {one}", 64, "up to 5,000") for one in (10**8, "1-5001", "9" * 5000)),
    ("predict -q -o nowhere none.fa", 1, "check its path"),
    ("predict x.fa -o run -b .", 1, "A bundle is a folder with a bundle.json"),
    (f"predict {EXAMPLE} -o run --devices foo", 64, "foo"),
    (f"predict {EXAMPLE} -o run --window 59", 64, "fewer than 60 bases"),
    (f"predict {EXAMPLE} -o run -b mini-deep --preset sensitive", 64, "no calibration"),
    ("embed x.faa -o run -e mini-deep/protein --layer 3", 64, "mini-esm2 has 1 layers"),
    ("embed x.faa -o run -e mini-deep/protein --long truncate", 64, "needs --max-length"),
    ("embed x.faa -o run -e protein", 64, "BUNDLE/VIEW"),
    ("embed x.faa -o run -e mini-deep/sound", 64, "mini-deep/protein"),
    ("embed x.faa -o run -e none/protein", 64, "no such bundle"),
    ("embed x.faa -o run -e a/b", 64, "(hf download a/b --local-dir DIR), then give DIR"),
    ("embed x.faa -o run -e gone/esm2_mine.pt", 64, "no such bundle"),
    ("embed x.faa -o run -e virnucpro-500/esm2", 64, "bundle fetch virnucpro-500"),
]


@pytest.mark.parametrize(("command", "code", "text"), NOT_ACCEPTED, ids=lambda one: str(one)[:60])
def test_an_error_is_one_line_that_names_the_cause(
    command, code, text, tmp_path, called, monkeypatch
):
    """Without advice on outputs that are not the cause."""
    monkeypatch.chdir(tmp_path)
    printed = called(*command.split(" "), code=code).stderr
    assert printed.startswith("virnucpro: error: ")
    assert text in printed
    assert printed.count("\n") == 1
    assert len(printed) < 300
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        "predict x.fa -o out -b",
        "predict x.fa -o",
        "predict -o out",
        "launch --input-dir . -o out -b",
        "launch -o out --input-dir",
        "embed x.fa -o out -e",
        "bench -b",
        "bundle show",
        "bundle verify",
        "bundle fetch virnucpro-500 --from",
        "status",
        "verify",
        "aggregate",
    ],
)
def test_an_empty_name_is_not_the_current_folder(command, tmp_path, called, monkeypatch):
    """An unset variable of a script, in a folder that is a bundle."""
    bundle = shutil.copytree(MINI, tmp_path / "mini")
    monkeypatch.chdir(bundle)
    before = sorted(bundle.iterdir())
    done = called(*command.split(), "", code=64)
    assert "is empty" in done.stderr
    assert sorted(bundle.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "prog", "message"),
    [
        (
            ["predict", "x.fa", "-o", "out", "--windows", "300"],
            "virnucpro predict",
            "unknown option --windows: did you mean --window?",
        ),
        (["predict", "x.fa", "--outdri=out"], "virnucpro predict", "did you mean --outdir?"),
        (["predict", "x.fa", "-o", "out", "--res"], "virnucpro predict", "unknown option --res"),
        (["bundle", "verify", "mini", "--goldn"], "virnucpro bundle verify", "mean --golden?"),
        (["bundle", "verfy"], "virnucpro bundle", "'verfy': did you mean verify?"),
        (["predit", "x.fa"], "virnucpro", "unknown command 'predit': did you mean predict?"),
        (["status", "run", "other"], "virnucpro status", "too many arguments: other"),
        (["status", "run", "-x"], "virnucpro status", "unknown option -x"),
        (["predict", "-o", "out", "--", ""], "virnucpro predict", "an argument is empty: -o out"),
        (["predict", "x.fa", "-o", "out", "--bundle="], "virnucpro predict", "is empty"),
        (["--verison"], "virnucpro", "did you mean --version?"),
        (
            ["predict", "x.fa", "-o", "out", "-b", "mini", "-b", "x"],
            "virnucpro predict",
            "one value",
        ),
        # the default is a value, too
        (["bench", "--bundle=mini", "--bundle=x"], "virnucpro bench", "one value"),
        (["predict", "x.fa", "-o", "out", "--window", "0"], "virnucpro predict", "whole number"),
        (["embed", "x.fa", "--start-timeout", "soon"], "virnucpro embed", "number of seconds"),
        *(  # torch aborts the process if the system refuses to start a thread
            ([*command, "-t", MORE_THREADS], f"virnucpro {command[0]}", "CPUs of this process")
            for command in (["bench"], ["predict", "x.fa", "-o", "nowhere"])
        ),
    ],
)
def test_wrong_usage_is_one_line_with_the_nearest_word_and_the_way_to_help(
    command, prog, message, called
):
    done = called(*command, code=64)
    (error, details) = done.stderr.splitlines()
    assert error.startswith(f"{prog}: error: ")
    assert message in error
    assert details == f"Run {prog} --help for details."


def test_the_help_lists_every_command_in_one_group(called):
    printed = called("--help").stdout
    first = printed.index
    assert first("Identify:") < first("  predict") < first("Look after a run:") < first("  verify")
    assert len(re.findall(r"^    [a-z]+\b", printed, re.MULTILINE)) == 17


def test_no_help_text_states_a_default_twice(called):
    for command in re.findall(r"^    ([a-z]+)\b", called("--help").stdout, re.MULTILINE):
        for text in re.split(r"\n  +(?=-)", called(command, "--help").stdout):
            assert text.count("default:") < 2, (command, text)


@pytest.mark.parametrize(
    "command",
    [
        "predict {fasta} -o {run}",
        "evaluate --viral {fasta} --non-viral {other} -o {run} --per-group 1",
        "train --viral {fasta} --non-viral {other} -o {run}",
        "launch --input-dir {folder} -o {run}",
    ],
)
def test_no_lock_is_advised_where_it_is_an_option(command, tmp_path, called, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / "in").mkdir()
    fasta = shutil.copy("tests/data/example.fa", tmp_path / "in")
    other = tmp_path / "other.fa"
    draw = random.Random(1).choices
    other.write_text("".join(f">{n}\n{''.join(draw('ACGT', k=4000))}\n" for n in range(5)))
    monkeypatch.setattr(fcntl, "fcntl", refused)
    places = {"fasta": fasta, "other": other, "run": tmp_path / "run", "folder": tmp_path / "in"}
    printed = called(*command.format(**places).split(), code=1).stderr
    assert "its file system has no file locks" in printed
    assert "add --no-lock" in printed


@pytest.fixture
def prepared(tmp_path):
    """Return the folder of a run without computed units."""
    execution = Execution(tmp_path / "out" / "a.fa", devices="cpu:1")
    execution.outdir.parent.mkdir()
    with open_run(predict_job("tests/data/example.fa", precision="fp32"), execution):
        return execution.outdir


@pytest.mark.parametrize(
    ("command", "step"),
    [
        (["aggregate", "{run}"], "run.outputs.write_outputs"),
        (
            ["launch", "--input-dir", ".", "-o", "{run}", "--devices", "cpu"],
            "launch.orchestrator.LauncherOrchestrator.launch",
        ),
    ],
)
def test_the_advice_after_a_stop_names_no_option_that_the_command_lacks(
    command, step, prepared, capsys, monkeypatch
):
    def stop(*_, **_keywords):
        raise StopRequested(signal.SIGTERM)

    monkeypatch.setattr(f"virnucpro.{step}", stop)
    assert main([part.format(run=prepared) for part in command]) == 128 + signal.SIGTERM
    printed = capsys.readouterr().err
    assert "the command" in printed
    assert "--" not in printed


def test_aggregate_names_the_command_that_computes_missing_rows(prepared, capsys):
    assert main(["aggregate", str(prepared)]) == 2
    assert "rerun the command of the run with --resume" in capsys.readouterr().err


# --- advice


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE])
def test_resume_is_advised_for_commands_that_have_it(code):
    error = OSError(code, "x")
    assert advice_for(error, resumable=True).endswith(", then rerun the command with --resume")
    assert advice_for(error, resumable=False).endswith(", then rerun the command")


def test_other_errors_advise_another_folder_or_nothing():
    assert "choose another" in advice_for(OSError(errno.EROFS, "x"), resumable=False)
    assert advice_for(OSError(errno.ENAMETOOLONG, "x"), resumable=True) == "give a shorter path"
    assert advice_for(OSError(errno.EDOM, "x"), resumable=True) is None
    assert advice_for(OSError("x"), resumable=True) is None
    assert "ulimit -v" in advice_for(MemoryError(), resumable=True)


def test_a_full_disk_advises_resume_if_the_command_has_it(monkeypatch, called):
    def full(*_: object, **_keywords: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("virnucpro.run.embed_job.embed_job", full)
    assert "--resume" in called("embed", "a.fa", "-o", "b", "-e", "c", code=1).stderr
