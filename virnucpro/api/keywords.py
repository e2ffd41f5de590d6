"""Messages about options of the command line, with the keyword arguments of Python."""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from virnucpro.errors import VirnucproError
from virnucpro.option import defaults_of, options_of


class Keyword(NamedTuple):
    """A keyword argument: its name, and the meaning of its flag on the command line.

    Attributes
    ----------
    choices
        Allowed words.
    value
        Value that the flag stands for; None if the flag is followed by a value.
    """

    name: str
    choices: tuple[str, ...] = ()
    value: object = None


Keywords: TypeAlias = Mapping[str, Keyword]
"""Keyword arguments of a function by the flags of the command line."""


def keywords_of(declared: type) -> Keywords:
    """Return the keyword arguments of a function with the options of a dataclass."""
    defaults = defaults_of(declared)
    found = {}
    for name, option in options_of(declared).items():
        switch = option.metavar is None and option.choices is None
        keyword = Keyword(name, option.choices or (), not defaults[name] if switch else None)
        found.update(dict.fromkeys(option.flags, keyword))
    return found


def keyword_name(action: argparse.Action) -> str:
    """Return the keyword argument of an option: its last flag, with ``_`` for ``-``.

    A switch has the name of its meaning, such as ``records`` for ``--no-records``.
    """
    flag = action.option_strings[-1].removeprefix("--").replace("-", "_")
    return action.dest if action.nargs == 0 else flag


def keywords_of_actions(actions: Iterable[argparse.Action]) -> Keywords:
    """Return the keyword arguments that stand for the options of a parser."""
    found = {}
    for action in actions:
        choices = tuple(map(str, action.choices or ()))
        keyword = Keyword(
            keyword_name(action), choices, action.const if action.nargs == 0 else None
        )
        found.update(dict.fromkeys(action.option_strings, keyword))
    return found


def in_python(text: str, keywords: Keywords) -> str:
    """Return a message about options of the command line with keywords: ``layer=99``.

    Words of more than 120 letters, such as a sequence in the place of a path, are cut.
    """

    def keyword(match: re.Match[str]) -> str:
        flag, space, word = match.groups("")
        if flag not in keywords:
            return match[0]
        name, choices, value = keywords[flag]
        if value is not None:
            return f"{name}={value}{space}{word}"
        if word in choices or re.search(r"[\d']", word):
            return f"{name}={word}" if word[0] in "'-0123456789" else f'{name}="{word}"'
        return f"{name}{space}{word}"

    text = re.sub(r"[^\s/]{121,}", lambda match: f"{match[0][:117]}...", text)
    return re.sub(r"(--[a-z-]+)(?:( )('[^']*'|[\w.+-]*\w))?", keyword, text)


@contextmanager
def errors_in_python(keywords: Keywords) -> Iterator[None]:
    """Rewrite the messages of errors, which name options of the command line."""
    try:
        yield
    except VirnucproError as error:
        error.args = (in_python(str(error), keywords), *error.args[1:])
        raise
