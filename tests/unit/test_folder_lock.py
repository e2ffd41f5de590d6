import errno
import fcntl
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext

import pytest

from virnucpro.errors import NoLocksError, RunError, RunLockedError
from virnucpro.folder_lock import Use, folder_lock, is_held


def test_a_second_lock_is_refused_and_names_the_holder(tmp_path):
    lock = tmp_path / "run.lock"
    with folder_lock(lock, "Wait for it."):
        assert is_held(lock)
        with (
            pytest.raises(RunLockedError, match=rf"\(pid {os.getpid()}\) uses .* Wait for it\."),
            folder_lock(lock, "Wait for it."),
        ):
            pass
    assert not is_held(lock)


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        *(
            (code, NoLocksError, r"run\.lock: its file system has no file locks")
            for code in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
        ),
        (errno.EIO, OSError, "Input/output error"),
    ],
)
def test_a_file_system_without_locks(code, error, message, tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "fcntl", refused)
    with pytest.raises(error, match=message), folder_lock(tmp_path / "run.lock", "Wait for it."):
        pass
    with folder_lock(tmp_path / "run.lock", "Wait for it.", held=False):
        pass
    task = folder_lock(tmp_path / "run.lock", "Wait for it.", use=Use.TASK)
    with pytest.raises(error) if error is OSError else nullcontext(), task:
        pass


def test_a_named_pipe_in_place_of_the_lock_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "run.lock")
    assert not is_held(tmp_path / "run.lock")
    with (
        pytest.raises(RunError, match=r"run\.lock is not a regular file"),
        folder_lock(tmp_path / "run.lock", "Wait for it."),
    ):
        pass


def test_the_target_of_a_link_in_place_of_the_lock_is_unchanged(tmp_path):
    lock, target = tmp_path / "run.lock", tmp_path / "notes.txt"
    target.write_text("notes")
    lock.symlink_to(target)
    with pytest.raises(RunError, match="is a symbolic link"), folder_lock(lock, "Wait for it."):
        pass
    assert target.read_text() == "notes"


TABLES, TASK, ALONE = Use.TABLES, Use.TASK, Use.ALONE


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (TASK, TASK, True),
        (TASK, TABLES, True),
        (TABLES, TASK, True),
        (TABLES, TABLES, False),
        (TASK, ALONE, False),
        (ALONE, TASK, False),
        (TABLES, ALONE, False),
        (ALONE, TABLES, False),
    ],
)
def test_tasks_share_a_folder_with_each_other_and_with_one_writer_of_tables(
    tmp_path, monkeypatch, first, second, shared
):
    monkeypatch.setattr("virnucpro.folder_lock._LOOK_S", 0.0)
    lock = tmp_path / "run.lock"
    allowed = nullcontext() if shared else pytest.raises(RunLockedError)
    with folder_lock(lock, "Wait.", use=first):
        assert is_held(lock)
        assert is_held(lock, by_tasks=True) == (first is not TABLES)
        with allowed, folder_lock(lock, "Wait.", use=second):
            pass
        assert is_held(lock), "the end of the second process freed the lock of the first"
    with folder_lock(lock, "Wait."):
        pass
    assert not lock.exists()


def test_a_task_waits_for_a_process_that_ends(tmp_path):
    lock = tmp_path / "run.lock"
    with ExitStack() as other, ThreadPoolExecutor(1) as pool:
        other.enter_context(folder_lock(lock, "Wait."))
        pool.submit(lambda: (time.sleep(0.3), other.close()))
        with folder_lock(lock, "Wait.", use=TASK):
            assert is_held(lock, by_tasks=True)
