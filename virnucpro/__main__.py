"""The command line: ``virnucpro`` and ``python -m virnucpro``.

A spawned process imports its parent's main module before anything else: so here is nothing.
"""

from typing import NoReturn

__all__ = ["run"]


def run() -> NoReturn:
    """Run the process's own command line and exit."""
    import signal  # noqa: PLC0415 - see above
    import sys  # noqa: PLC0415 - see above

    code = 128 + signal.SIGINT
    try:
        from virnucpro.cli.main import main  # noqa: PLC0415 - see above

        code = main()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end is not broken off any more
    except KeyboardInterrupt:  # before, or after, the command line hears of signals itself
        pass
    sys.exit(code)


if __name__ == "__main__":
    run()
