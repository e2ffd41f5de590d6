"""Entry point: picks the command, turns errors into messages and exit codes."""

import argparse
import sys
from collections.abc import Sequence

from virnucpro import __version__
from virnucpro.cli.advice import advice_for
from virnucpro.cli.commands import (
    aggregate_command,
    bench_command,
    bundle_command,
    embed_command,
    frames_command,
    launch_command,
    parity_command,
    predict_command,
    status_command,
    verify_command,
)
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.parser import Parser
from virnucpro.console import printable
from virnucpro.errors import BundleError, InputError, UsageError, VirnucproError
from virnucpro.runtime.signals import StopRequested, stop_on_signals

__all__ = ["main"]

_COMMANDS = (
    predict_command,
    embed_command,
    launch_command,
    frames_command,
    status_command,
    verify_command,
    aggregate_command,
    bundle_command,
    parity_command,
    bench_command,
)

_EPILOG = """\
Run virnucpro COMMAND --help for the options of one command.

exit codes: 0 all sequences answered | 1 failed | 2 partial, see missing.tsv and quarantine.tsv |
64 wrong usage | 129, 130, 143 stopped by SIGHUP, SIGINT, SIGTERM: rerun with --resume
"""


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
            sys.stdout.flush()  # results that cannot be printed are an error of the command
            return code
    except StopRequested as stop:
        return ExitCode.signalled(stop.signum)
    except UsageError as error:
        _complain(error)
        return ExitCode.USAGE
    except VirnucproError as error:
        cause = error.__cause__
        # Advice on system errors is about output folders; a missing input is named already.
        if isinstance(error, InputError | BundleError) and isinstance(cause, FileNotFoundError):
            cause = None
        _complain(error, _advice(cause, arguments) if isinstance(cause, OSError) else None)
        return ExitCode.FAILED
    except (OSError, MemoryError) as error:
        _complain(error, _advice(error, arguments))
        return ExitCode.FAILED


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="virnucpro",
        description="Identify viral sequences.",
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
    texts = [str(error) or "out of memory", *getattr(error, "__notes__", []), advice or ""]
    lines = [printable(line) for text in texts if text for line in text.split("\n")]
    print(f"virnucpro: error: {lines[0]}", *lines[1:], sep="\n  ", file=sys.stderr)
