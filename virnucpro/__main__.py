"""The command line: ``virnucpro`` and ``python -m virnucpro``.

A spawned process imports its parent's main module before anything else: so here is nothing.
"""

from typing import NoReturn

__all__ = ["run"]


def run() -> NoReturn:
    """Run the process's own command line and exit."""
    import sys  # noqa: PLC0415 - see above

    try:
        from virnucpro.cli.main import main  # noqa: PLC0415 - see above

        sys.exit(main())
    except KeyboardInterrupt:  # before, or after, the command line hears of signals itself
        sys.exit(130)


if __name__ == "__main__":
    run()
