"""Entry point: import the given command, convert errors to messages and exit codes."""

import argparse
import difflib
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

from virnucpro import __version__
from virnucpro.cli.advice import advice_for
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import printable
from virnucpro.errors import BundleError, InputError, UsageError, VirnucproError
from virnucpro.runtime.signals import StopRequested, stop_on_signals

__all__ = ["full_parser", "main"]

_COMMANDS: Final = {
    "predict": "identify viral sequences",
    "embed": "compute one embedding per sequence",
    "launch": "process many files, with one run folder per file",
    "frames": "write windows and stop-free reading frames as FASTA",
    "plan": "prepare a run that several machines compute",
    "work": "compute a part of a planned run on this machine",
    "submit": "start the tasks of a run on a cluster",
    "merge": "write the tables of a run that several machines compute",
    "rescue": "begin a round for the missing units of such a run",
    "status": "print the progress of a run or launch",
    "verify": "check all files of a run for damage",
    "report": "write report.html of one run or several",
    "plot": "draw the scores of a run, or of one sequence, as PNG, SVG or PDF",
    "rescore": "call the sequences of a run by another rule, without computing scores again",
    "aggregate": "write the outputs of a partial run, or join segments",
    "train": "train a classifier on labelled sequences",
    "bundle": "list, show, fetch, verify and move bundles",
    "evaluate": "measure the accuracy of bundles and other tools on labelled sequences",
    "parity": "compare results of a device and precision with those of the CPU at fp32",
    "bench": "measure the throughput of an encoder on this machine",
    "cite": "print the publications to cite",
    "completion": "print a completion script for a shell",
}
"""Help of each command. Its module ``commands.NAME_command`` adds the description and options."""

_CLUSTER: Final = {"plan", "work", "merge", "rescue", "submit"}
"""Commands for one run on many machines; their modules are in ``commands/cluster/``."""

_EPILOG: Final = """\
Run virnucpro COMMAND --help for the options of one command.

exit codes: 0 all sequences have a result | 1 failed | 2 partial: see missing.tsv and
quarantine.tsv | 64 wrong usage | 129, 130, 143 stopped by SIGHUP, SIGINT, SIGTERM: rerun the
command with --resume
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Returns
    -------
    The exit code, see `ExitCode`. Raises SystemExit only where argparse does (help, version,
    wrong usage).
    """
    words = sys.argv[1:] if argv is None else list(argv)
    arguments = _parser(words).parse_args(words)
    resumable = getattr(arguments, "resume", None) is not None
    try:
        with stop_on_signals():
            code: int = arguments.run(arguments)
            sys.stdout.flush()  # raises here if results cannot be printed
            return code
    except StopRequested as stop:
        return stop.exit_code
    except UsageError as error:
        _complain(error)
        return ExitCode.USAGE
    except VirnucproError as error:
        cause = error.__cause__
        # System error advice is about output folders; this message already names the missing file.
        if isinstance(error, InputError | BundleError) and isinstance(cause, FileNotFoundError):
            cause = None
        _complain(error, cause, resumable=resumable)
        return ExitCode.FAILED
    except (OSError, MemoryError) as error:
        _complain(error, error, resumable=resumable)
        return ExitCode.FAILED


class _Parser(argparse.ArgumentParser):
    """Parser without abbreviations; its usage errors name the nearest option or command."""

    def __init__(self, **keywords: Any) -> None:  # noqa: ANN401 - ArgumentParser's own
        super().__init__(**keywords, allow_abbrev=False)

    def parse_known_args(  # type: ignore[override] # one signature for ArgumentParser's overloads
        self, args: Iterable[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; for an unknown argument, print this parser's usage and exit."""
        words = list(args or ())
        self._check_words(words)
        behind: list[str] = []
        if "--" in words and self.get_default("behind") is not None:
            words, behind = words[: words.index("--")], words[words.index("--") + 1 :]
        parsed, rest = super().parse_known_args(words, namespace)
        if behind:
            parsed.behind = behind  # for commands with words of another program behind --
        if rest:
            problem = "unknown option" if rest[0].startswith("-") else "too many arguments:"
            self.error(f"{problem} {' '.join(rest)}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Print usage and message; exit with the code of wrong usage."""
        self.print_usage(sys.stderr)
        self.exit(ExitCode.USAGE, f"{self.prog}: error: {message}\n")

    def _check_words(self, words: Sequence[str]) -> None:
        # the names of the commands or actions, if this parser has any
        names = next((one.choices for one in self._actions if one.nargs == argparse.PARSER), None)
        known = self._option_string_actions
        empty = names is None and "" in words
        for word in words[: words.index("--")] if "--" in words else words:
            option, equals, value = word.partition("=")
            if option.startswith("--") and " " not in option and option not in known:
                self.error(f"unknown option {option}{_nearest(option, known)}")
            empty = empty or (option.startswith("--") and equals == "=" and not value)
            if names is not None and not word.startswith("-"):
                if word not in names:
                    self.error(f"unknown command {word!r}{_nearest(word, names)}")
                return  # the remaining words belong to the command
        if empty:
            self.error(f"an argument is empty: {shlex.join(words)}")


def _nearest(word: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(word, known, n=1)
    return f": did you mean {nearest[0]}?" if nearest else ""


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    For speed, options are added only to the commands whose names occur in `words`.
    """
    parser = _Parser(
        prog="virnucpro",
        description="Identify viral sequences in FASTA and FASTQ files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"virnucpro {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, text in _COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name in words:
            folder = "commands.cluster" if name in _CLUSTER else "commands"
            module = import_module(f"virnucpro.cli.{folder}.{name}_command")
            command.description = module.__doc__
            module.add_options(command)
    return parser


def full_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line with the options of all commands."""
    return _parser(list(_COMMANDS))


def _complain(
    error: Exception, cause: BaseException | None = None, *, resumable: bool = False
) -> None:
    """Print an error message, its notes, and advice if the operating system caused the error."""
    texts = [str(error) or "out of memory", *getattr(error, "__notes__", [])]
    if isinstance(cause, OSError | MemoryError):
        texts.append(advice_for(cause, resumable=resumable) or "")
    lines = [printable(line) for text in texts if text for line in text.split("\n")]
    print(f"virnucpro: error: {lines[0]}", *lines[1:], sep="\n  ", file=sys.stderr)
