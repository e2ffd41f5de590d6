"""Entry point: import the given command, convert errors to messages and exit codes."""

import argparse
import difflib
import errno
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

from virnucpro import __version__
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import printable
from virnucpro.errors import BundleError, InputError, NoLocksError, UsageError, VirnucproError
from virnucpro.runtime.signals import StopRequested, stop_on_signals

_GROUPS: Final = {
    "Identify": {
        "predict": "identify viral sequences",
        "report": "write report.html of one run or several",
        "plot": "draw the scores of a run, or of one sequence, as PNG, SVG or PDF",
        "rescore": "call the sequences of a run by another rule, without computing scores again",
        "launch": "process many files, with one run folder per file",
    },
    "Look after a run": {
        "status": "print the progress of a run or launch",
        "verify": "check all files of a run for damage",
        "aggregate": "write the tables of a run of several tasks or a partial run; join segments",
    },
    "Many machines": {
        "submit": "compute a run with many tasks on a cluster",
    },
    "Models": {
        "bundle": "list, show, fetch and verify bundles",
        "train": "train a classifier on labelled sequences",
        "evaluate": "measure the accuracy of bundles and other tools on labelled sequences",
        "bench": "measure the throughput of encoders on this machine, or check their numbers",
    },
    "Embeddings": {
        "embed": "compute one embedding per sequence",
        "frames": "write windows and stop-free reading frames as FASTA",
    },
    "Other": {
        "cite": "print the publications to cite",
        "completion": "print a completion script for a shell",
    },
}
"""Help of each command. Its module ``commands.NAME_command`` adds the description and options."""

_EPILOG: Final = """\
Run virnucpro COMMAND --help for the options of one command.

exit codes: 0 all sequences have a result | 1 failed | 2 partial: see missing.tsv and
quarantine.tsv | 64 wrong usage | 129, 130, 143 stopped by SIGHUP, SIGINT, SIGTERM
or a scheduler's warning (143): rerun the command with --resume
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
    offered: frozenset[str] = getattr(arguments, "offered", frozenset())
    resumable = "resume" in offered and not getattr(arguments, "force", False)
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
        if isinstance(error, NoLocksError) and "lock" in offered:
            error.add_note("If no other process uses this folder, add --no-lock.")
        _complain(error, cause, resumable=resumable)
        return ExitCode.FAILED
    except (OSError, MemoryError) as error:
        _complain(error, error, resumable=resumable)
        return ExitCode.FAILED


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Formatter that lists the commands in groups."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - has no public name
            return super()._format_action(action)
        first = {next(iter(members)): group for group, members in _GROUPS.items()}
        texts = []
        self._indent()
        for command in action._get_subactions():  # noqa: SLF001
            texts.append(f"\n{first[command.dest]}:\n" if command.dest in first else "")
            texts.append(self._format_action(command))
        self._dedent()
        return "".join(texts)


class _Parser(argparse.ArgumentParser):
    """Parser without abbreviations; its usage errors name the nearest option or command.

    Options may be between arguments.
    """

    def __init__(self, **keywords: Any) -> None:  # noqa: ANN401 - ArgumentParser's own
        super().__init__(**keywords, allow_abbrev=False)
        self._parses_intermixed = False

    def parse_known_args(  # type: ignore[override] # one signature for ArgumentParser's overloads
        self, args: Iterable[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; for an unknown argument, print an error of this parser and exit."""
        if self._parses_intermixed:  # the call is from argparse
            return super().parse_known_args(args, namespace)
        words = list(args or ())
        self._check_words(words)
        behind: list[str] = []
        if "--" in words and self.get_default("behind") is not None:
            words, behind = words[: words.index("--")], words[words.index("--") + 1 :]
        parsed, rest = super().parse_known_args(words, namespace)
        if rest and self._names() is None:
            self._parses_intermixed = True
            parsed, rest = super().parse_known_intermixed_args(words, namespace)
            self._parses_intermixed = False
        if behind:
            parsed.behind = behind  # for commands with words of another program behind --
        if unknown := [word for word in rest if word.startswith("-")]:
            self.error(f"unknown option {' '.join(unknown)}")
        if rest:
            self.error(f"too many arguments: {' '.join(rest)}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Print the message in one line and how to get help; exit with the code of wrong usage."""
        details = f"Run {self.prog} --help for details."
        self.exit(ExitCode.USAGE, f"{self.prog}: error: {message}\n{details}\n")

    def _names(self) -> Iterable[str] | None:
        """Return the names of the commands or actions, if this parser has any."""
        parsers = (action for action in self._actions if action.nargs == argparse.PARSER)
        return next((action.choices for action in parsers), None)

    def _check_words(self, words: Sequence[str]) -> None:
        names = self._names()
        known = self._option_string_actions
        empty = names is None and "" in words
        is_value = False
        for word in words[: words.index("--")] if "--" in words else words:
            if is_value:  # of an option before the name of a command
                is_value = False
                continue
            option, equals, value = word.partition("=")
            is_value = names is not None and option in known and known[option].nargs is None
            is_value &= not equals
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

    For speed, options are added only to the commands whose names occur in `words`, and others
    are listed only if the first word is not a command.
    """
    parser = _Parser(
        prog="virnucpro",
        description="Identify viral sequences in FASTA and FASTQ files.",
        epilog=_EPILOG,
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="version", version=f"virnucpro {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listed = [entry for members in _GROUPS.values() for entry in members.items()]
    first = [name for name, _ in listed if words[:1] == [name]]
    for name, text in listed:
        if first and name not in first:
            continue
        command = commands.add_parser(name, help=text)
        if name in words:
            module = import_module(f"virnucpro.cli.commands.{name}_command")
            command.description = module.__doc__
            module.add_options(command)
            command.set_defaults(run=module.run)
    return parser


def full_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line with the options of all commands."""
    return _parser(["", *(name for members in _GROUPS.values() for name in members)])


def _complain(
    error: Exception, cause: BaseException | None = None, *, resumable: bool = False
) -> None:
    """Print an error message, its notes, and advice if the operating system caused the error."""
    texts = [str(error) or "out of memory", *getattr(error, "__notes__", [])]
    if isinstance(cause, OSError | MemoryError):
        texts.append(advice_for(cause, resumable=resumable) or "")
    lines = [printable(line) for text in texts if text for line in text.split("\n")]
    print(f"virnucpro: error: {lines[0]}", *lines[1:], sep="\n  ", file=sys.stderr)


_DENIED = "check the permissions of this path, or choose another one"
_NOT_A_FOLDER = "a file has the same name as a required folder: choose another output folder"
_ALTERNATIVES = {
    errno.EROFS: _DENIED,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.ENOTDIR: "a file is where a folder is needed: name the folder of a run",
    errno.EEXIST: _NOT_A_FOLDER,
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "the link points to itself: remove it, or give another path",
}
_REPAIRS = {
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "your disk quota is used up: free disk space",
    errno.EFBIG: "the file exceeds the size limit: raise it (ulimit -f)",
    errno.ENOENT: "check that the folder exists and its disk is mounted",
    errno.ESTALE: "the network file system lost the file: check that it is mounted",
    errno.EIO: "the disk or its connection fails: ask the administrator of the machine",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the machine has too many open files: close some programs",
    errno.ENOMEM: "free memory, or raise its limit (ulimit -v)",
    errno.EAGAIN: "no more processes or threads are allowed: raise the limit (ulimit -u)",
}
"""Advice by error number; after this step, the same command can succeed."""


def advice_for(error: OSError | MemoryError, *, resumable: bool) -> str | None:
    """Return advice for the user about `error`; None if the system's message is sufficient.

    Parameters
    ----------
    resumable
        True if the command has an option ``--resume``, and ``--force`` is not given.
    """
    code = errno.ENOMEM if isinstance(error, MemoryError) else error.errno
    if code in _REPAIRS:
        return f"{_REPAIRS[code]}, then rerun the command{' with --resume' if resumable else ''}"
    return None if code is None else _ALTERNATIVES.get(code)
