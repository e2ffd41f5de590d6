import argparse
import errno
import os

import pytest

from virnucpro.cli import main as entry
from virnucpro.cli.advice import advice_for


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE])
def test_only_a_command_that_can_resume_is_told_to(code):
    error = OSError(code, "x")
    assert advice_for(error, resumable=True).endswith(", then repeat the command with --resume")
    assert advice_for(error, resumable=False).endswith(", then repeat the command")


def test_what_nobody_can_mend_is_for_elsewhere_or_left_to_the_system():
    assert "choose another" in advice_for(OSError(errno.EROFS, "x"), resumable=False)
    assert advice_for(OSError(errno.ELOOP, "x"), resumable=True) is None
    assert advice_for(OSError("x"), resumable=True) is None
    assert "ulimit -v" in advice_for(MemoryError(), resumable=True)


@pytest.mark.parametrize(
    ("command", "resumes"), [(["predict", "a.fa", "-o", "b"], True), (["aggregate", "a"], False)]
)
def test_the_command_line_knows_which_commands_resume(command, resumes, monkeypatch, capsys):
    def full(_: argparse.Namespace) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    arguments = entry._parser().parse_args(command)
    arguments.run = full
    parser = type("Parser", (), {"parse_args": lambda *_: arguments})
    monkeypatch.setattr(entry, "_parser", parser)
    assert entry.main(command) == 1
    assert ("--resume" in capsys.readouterr().err) == resumes


def test_a_file_that_may_not_be_read_is_no_folder_to_make_writable(tmp_path, monkeypatch):
    path = tmp_path / "closed"
    path.write_text("")
    denied = OSError(errno.EACCES, "Permission denied", str(path))
    assert "writable" in advice_for(denied, resumable=True)
    monkeypatch.setattr(os, "access", lambda part, *_, **__: part != path)
    assert f"chmod u+r {path}" in advice_for(denied, resumable=True)
    assert "writable" in advice_for(OSError(errno.EACCES, "x", str(tmp_path)), resumable=False)
