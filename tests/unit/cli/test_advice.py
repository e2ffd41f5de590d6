import errno
import os
from pathlib import Path

import pytest

from virnucpro.cli.main import advice_for, main


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE])
def test_resume_is_advised_for_commands_that_have_it(code):
    error = OSError(code, "x")
    assert advice_for(error, resumable=True).endswith(", then rerun the command with --resume")
    assert advice_for(error, resumable=False).endswith(", then rerun the command")


def test_other_errors_advise_another_folder_or_nothing():
    assert "choose another" in advice_for(OSError(errno.EROFS, "x"), resumable=False)
    assert advice_for(OSError(errno.ELOOP, "x"), resumable=True) is None
    assert advice_for(OSError("x"), resumable=True) is None
    assert "ulimit -v" in advice_for(MemoryError(), resumable=True)


def test_a_full_disk_advises_resume_if_the_command_has_it(monkeypatch, called):
    def full(*_: object, **_keywords: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("virnucpro.run.embed_job.embed_job", full)
    assert "--resume" in called("embed", "a.fa", "-o", "b", "-e", "c", code=1).stderr


def test_a_deleted_working_directory_is_named(tmp_path, monkeypatch):
    missing = OSError(errno.ENOENT, "No such file or directory")
    assert "check that the folder exists" in advice_for(missing, resumable=False)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "working directory was deleted" in advice_for(missing, resumable=False)


def test_a_link_without_a_target_is_named(tmp_path, capsys):
    (tmp_path / "out").symlink_to("nowhere")
    fasta = str(Path("tests/data/example.fa").absolute())
    assert main(["predict", fasta, "-o", str(tmp_path / "out"), "-q"]) == 1
    assert f"{tmp_path / 'out'} is a symbolic link without a target" in capsys.readouterr().err
    assert main(["frames", fasta, "-o", str(tmp_path / "out")]) == 1
    assert "is a symbolic link without" in capsys.readouterr().err


def test_an_unreadable_file_is_not_taken_for_a_folder_that_is_not_writable(tmp_path, monkeypatch):
    path = tmp_path / "closed"
    path.write_text("")
    denied = OSError(errno.EACCES, "Permission denied", str(path))
    assert "writable" in advice_for(denied, resumable=True)
    monkeypatch.setattr(os, "access", lambda part, *_, **__: part != str(path))
    assert f"chmod a+r {path}" in advice_for(denied, resumable=True)
    assert "writable" in advice_for(OSError(errno.EACCES, "x", str(tmp_path)), resumable=False)
