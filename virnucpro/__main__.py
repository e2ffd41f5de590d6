"""The command line: ``virnucpro`` and ``python -m virnucpro``.

A spawned process imports its parent's main module before anything else: so here is nothing.
"""

from typing import NoReturn

__all__ = ["run"]


def run() -> NoReturn:
    """Run the process's own command line and exit."""
    import sys  # noqa: PLC0415 - see above

    from virnucpro.cli.main import main  # noqa: PLC0415 - see above

    sys.exit(main())


if __name__ == "__main__":
    run()
