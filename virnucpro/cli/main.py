"""Entry point: picks the command, turns errors into messages and exit codes."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from virnucpro import __version__
from virnucpro.cli import (
    aggregate,
    bench,
    bundle,
    embed,
    frames,
    launch,
    parity,
    predict,
    status,
    verify,
)
from virnucpro.cli.advice import advice_for
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.errors import BundleError, InputError, UsageError, VirnucproError
from virnucpro.runtime.signals import StopRequested, stop_on_signals

__all__ = ["main"]

_COMMANDS = (predict, embed, launch, frames, status, verify, aggregate, bundle, parity, bench)

_EPILOG = """\
exit codes: 0 all sequences answered | 1 failed | 2 partial, see missing.tsv and quarantine.tsv |
64 wrong usage | 129, 130, 143 stopped by SIGHUP, SIGINT, SIGTERM: go on with --resume

virnucpro COMMAND --help tells of one command
"""


class _Parser(argparse.ArgumentParser):
    """Wrong usage exits with the code that the contract gives it."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(ExitCode.USAGE, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Returns
    -------
    The exit code, see `ExitCode`. Raises SystemExit only where argparse does (help, version,
    wrong usage).
    """
    arguments = _parser().parse_args(argv)
    try:
        with stop_on_signals():
            code: int = arguments.run(arguments)
            return code
    except StopRequested as stop:
        return ExitCode.signalled(stop.signum)
    except UsageError as error:
        _complain(error)
        return ExitCode.USAGE
    except VirnucproError as error:
        cause = error.__cause__
        # what is not there to be read is named already; the system's advice is on folders of output
        if isinstance(error, InputError | BundleError) and isinstance(cause, FileNotFoundError):
            cause = None
        _complain(error, _advice(cause, arguments) if isinstance(cause, OSError) else None)
        return ExitCode.FAILED
    except BrokenPipeError:
        # The reader of standard output went away (head): say nothing, and flush nothing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except (OSError, MemoryError) as error:
        _complain(error, _advice(error, arguments))
        return ExitCode.FAILED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="virnucpro",
        description="Tell viral from non-viral sequences.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"virnucpro {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _COMMANDS:
        module.add_parser(commands)
    return parser


def _advice(error: OSError | MemoryError, arguments: argparse.Namespace) -> str | None:
    return advice_for(error, resumable=hasattr(arguments, "resume"))


def _complain(error: Exception, advice: str | None = None) -> None:
    lines = [str(error) or "out of memory", *getattr(error, "__notes__", [])]
    if advice is not None:
        lines.append(advice)
    lines = [_visible(line) for line in lines]
    print(f"virnucpro: error: {lines[0]}", *lines[1:], sep="\n  ", file=sys.stderr)


def _visible(text: str) -> str:
    """Show control characters, which servers and files may have put into a message, as such."""
    shown = "\n\t"
    return "".join(one if one.isprintable() or one in shown else ascii(one)[1:-1] for one in text)
