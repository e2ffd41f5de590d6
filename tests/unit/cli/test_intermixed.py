"""Options and arguments may be mixed, in each command."""

import argparse
from itertools import chain

import pytest

from virnucpro.cli.main import full_parser


def commands(parser, words=()):
    """Yield the words and the parser of each command, such as ``bundle show``."""
    below = [action for action in parser._actions if action.nargs == argparse.PARSER]
    if not below:
        yield words, parser
    for action in below:
        for name, child in action.choices.items():
            yield from commands(child, (*words, name))


COMMANDS = {" ".join(words): parser for words, parser in commands(full_parser())}


def example_of(action):
    return next(iter(action.choices)) if action.choices else "x"


@pytest.mark.parametrize("command", COMMANDS)
def test_options_between_and_behind_the_arguments_of_a_command(command):
    """The last argument comes last, as in ``predict a.fa -o out -q b.fa``."""
    actions = [action for action in COMMANDS[command]._actions if action.dest != "help"]
    arguments = [
        example_of(action)
        for action in actions
        if not action.option_strings
        for _ in range(2 if action.nargs == "+" else 1)
    ]
    needed = [
        [action.option_strings[-1], example_of(action)]
        for action in actions
        if action.option_strings and action.required
    ]
    switches = [[action.option_strings[-1]] for action in actions if action.nargs == 0]
    options = [*needed, *switches[:1]]
    *first, last = arguments or [""]
    mixed = [*first, *chain(*options), last] if arguments else [*chain(*options)]
    parse = COMMANDS[command].parse_args
    wanted = parse([*chain(*options), *arguments])
    assert parse(mixed) == wanted
    if arguments and COMMANDS[command].get_default("behind") is None:
        behind = [*first, *chain(*options), "--", last]
        assert parse(behind) == wanted


def test_inputs_before_and_behind_the_options(tmp_path, called, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.fa", "b.fa", "-c.fa"):
        (tmp_path / name).write_text(">x\nATGGCC\n")
    called("frames", "a.fa", "-o", "out", "b.fa", "--force", "--", "-c.fa", code=0)
    assert sorted(path.name[:2] for path in (tmp_path / "out").glob("*.faa")) == ["-c", "a_", "b_"]


def test_wrong_usage_of_mixed_arguments_is_named(called):
    for words, message in (
        ("predict a.fa -o out -z b.fa", "unknown option -z"),
        ("predict a.fa -o out --forse b.fa", "unknown option --forse: did you mean --force?"),
        ("predict a.fa -q b.fa", "the following arguments are required: -o/--outdir"),
        ("verify run -q other", "unknown option -q\n"),
        ("verify run --json other", "too many arguments: other"),
        ("bundle show mini --json other", "too many arguments: other"),
        ("predict", "the following arguments are required: FASTA, -o/--outdir"),
    ):
        assert message in called(*words.split(), code=64).stderr
