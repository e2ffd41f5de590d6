"""Other programs: the tools of schedulers, and virnucpro itself as a task.

No other module uses `subprocess`.
"""

import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from virnucpro.errors import EngineError

_ANSWER_S = 120.0
"""Maximum seconds for a program whose output is awaited."""


def output_of(words: Sequence[str]) -> str:
    """Run a program and return its standard output.

    Raises
    ------
    FileNotFoundError
        If there is no such program.
    EngineError
        If the program fails, or does not end in `_ANSWER_S`.
    """
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=_ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"{words[0]} did not answer in {_ANSWER_S:.0f} s.") from None
    if done.returncode:
        reason = done.stderr.strip() or done.stdout.strip() or "no message"
        raise EngineError(f"{words[0]} failed with exit code {done.returncode}: {reason}")
    return done.stdout


def run_programs(
    commands: Sequence[Sequence[str]], limit: int, folder: str | None = None
) -> list[int]:
    """Run programs, at most `limit` at once, with this program's standard streams.

    They run in `folder`; None for the working folder of this process.

    An interrupted call sends SIGTERM to all running programs and waits for their end. The programs
    are in sessions of their own: Ctrl-C reaches this program alone, and they get one signal.

    Returns
    -------
    The exit code of each program; -N after signal N.

    Raises
    ------
    FileNotFoundError
        If there is no such program.
    """
    running: set[subprocess.Popen[bytes]] = set()
    lock, stopping = threading.Lock(), threading.Event()

    def run(words: Sequence[str]) -> int:
        with lock:
            if stopping.is_set():
                return -1
            process = subprocess.Popen(words, cwd=folder, start_new_session=True)
            running.add(process)
        code = process.wait()
        running.discard(process)
        return code

    with ThreadPoolExecutor(limit) as pool:
        futures = [pool.submit(run, words) for words in commands]
        try:
            wait(futures)
        except BaseException:
            with lock:
                stopping.set()
                for process in list(running):
                    process.terminate()
            raise
        return [future.result() for future in futures]
