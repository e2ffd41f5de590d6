"""Entry point of the commands ``virnucpro`` and ``python -m virnucpro``.

A child process imports its parent's main module first, so `run` contains all imports.
"""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # python -m: a file such as signal.py in the working folder must not replace a module
    folder = sys.path.pop(0)
    if folder == os.path.dirname(os.path.dirname(__file__)):  # noqa: PTH120 - imports little
        sys.path.append(folder)  # a source tree that is not installed

TYPE_CHECKING = False  # importing typing takes time
if TYPE_CHECKING:
    from typing import NoReturn


def run() -> "NoReturn":
    """Run the command of ``sys.argv`` and exit the process with its exit code."""
    import gc  # noqa: PLC0415 - see above
    import signal  # noqa: PLC0415 - see above

    gc.set_threshold(50_000)  # collections while modules are imported take a tenth of the start
    code = 128 + signal.SIGINT
    try:
        from virnucpro.runtime.signals import exit_on_warnings  # noqa: PLC0415 - see above

        exit_on_warnings()
        from virnucpro.console import protect_standard_streams  # noqa: PLC0415 - see above

        protect_standard_streams()
        from virnucpro.cli.main import main  # noqa: PLC0415 - see above

        code = main()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at exit has no effect
    except KeyboardInterrupt:  # Ctrl-C while `main` does not handle signals
        pass
    gc.freeze()  # else the interpreter visits all objects at its end: 0.1 s
    sys.exit(code)


if __name__ == "__main__":
    run()
