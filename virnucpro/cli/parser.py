"""Parser of command lines: its usage errors name the nearest option or command."""

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from virnucpro.cli.exit_codes import ExitCode

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """Parser that accepts no abbreviations, as its subparsers."""

    def __init__(self, **keywords: Any) -> None:  # noqa: ANN401 - ArgumentParser's own
        super().__init__(**keywords, allow_abbrev=False)
        self._commands: argparse._SubParsersAction[Any] | None = None

    def add_subparsers(self, **keywords: Any) -> Any:  # noqa: ANN401 - argparse keeps the type private
        """Add the commands of this parser."""
        self._commands = super().add_subparsers(**keywords)
        return self._commands

    def parse_known_args(  # type: ignore[override] # one signature for ArgumentParser's overloads
        self, args: Iterable[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; exit with this parser's usage if one of them is unknown."""
        words = sys.argv[1:] if args is None else list(args)
        self._refuse_unknown(words)
        parsed, rest = super().parse_known_args(words, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Print usage and message; exit with the code of wrong usage."""
        self.print_usage(sys.stderr)
        self.exit(ExitCode.USAGE, f"{self.prog}: error: {message}\n")

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        for word in words:
            if word == "--":
                return
            option = word.partition("=")[0]
            known = self._option_string_actions
            if option.startswith("--") and option not in known:
                self.error(f"unknown option {option}{_nearest(option, known)}")
            if self._commands is not None and not word.startswith("-"):
                names = self._commands.choices
                if word not in names:
                    self.error(f"unknown command {word!r}{_nearest(word, names)}")
                return  # all further words are the command's


def _nearest(word: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(word, known, n=1)
    return f": did you mean {nearest[0]}?" if nearest else ""
