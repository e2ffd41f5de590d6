"""The command line: ``virnucpro`` and ``python -m virnucpro``.

A spawned process imports its parent's main module first: imports stay inside `run`.
"""

from typing import NoReturn

__all__ = ["run"]


def run() -> NoReturn:
    """Run the process's own command line and exit."""
    import signal  # noqa: PLC0415 - see above
    import sys  # noqa: PLC0415 - see above

    code = 128 + signal.SIGINT
    try:
        from virnucpro.console import protect_standard_streams  # noqa: PLC0415 - see above

        protect_standard_streams()
        from virnucpro.cli.main import main  # noqa: PLC0415 - see above

        code = main()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt at exit changes nothing
    except KeyboardInterrupt:  # before or after `main` handles signals
        pass
    sys.exit(code)


if __name__ == "__main__":
    run()
