"""``virnucpro train``, ``evaluate`` and ``bundle list`` as functions."""

import argparse
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from virnucpro.api.keywords import errors_in_python, keyword_name, keywords_of_actions
from virnucpro.bundles.bundle import list_bundles as listed
from virnucpro.bundles.manifest import Bundle
from virnucpro.errors import UsageError
from virnucpro.runtime.process import leave_unguarded_import


def train(outdir: str | os.PathLike[str], **options: Any) -> Path:  # noqa: ANN401 - see below
    """Train a classifier on labelled sequences, as ``virnucpro train`` does.

    It prints what the command prints; with ``quiet=True``, its results and warnings only.

    Parameters
    ----------
    outdir
        Output folder.
    **options
        Options of the command, with ``_`` for ``-``: `labels`, or `viral` and `non_viral`, and so
        on. Several values are a list.

    Returns
    -------
    Path
        Folder of the new bundle.

    Raises
    ------
    UsageError
        If an option has an invalid value.
    VirnucproError
        As the command.
    """
    _run("train", outdir, options)
    return Path(outdir, "bundle")


def evaluate(outdir: str | os.PathLike[str], **options: Any) -> Any:  # noqa: ANN401 - JSON
    """Measure the accuracy of bundles and other tools, as ``virnucpro evaluate`` does.

    Parameters and errors are those of `train`, with the options of this command.

    Returns
    -------
    dict
        Content of evaluation.json in `outdir`.
    """
    _run("evaluate", outdir, options)
    return json.loads(Path(outdir, "evaluation.json").read_text())


def list_bundles() -> dict[str, Bundle]:
    """Return the embedded and installed bundles that can be used, by name."""
    return {name: bundle for name, bundle in listed().items() if isinstance(bundle, Bundle)}


def _run(command: str, outdir: str | os.PathLike[str], options: dict[str, Any]) -> None:
    leave_unguarded_import()
    parser = argparse.ArgumentParser(exit_on_error=False)
    module = import_module(f"virnucpro.cli.commands.{command}_command")
    module.add_options(parser)
    own = parser._actions  # noqa: SLF001 - has no public name
    actions = {name: action for action in own for name in (action.dest, keyword_name(action))}
    words = [f"--outdir={os.fspath(outdir)}"]
    for name, value in options.items():
        if name not in actions:
            raise TypeError(f"{command}() got an unexpected keyword argument {name!r}")
        words += _words(actions[name], value)
    with errors_in_python(keywords_of_actions(actions.values())):
        try:
            arguments = parser.parse_args(words)
        except argparse.ArgumentError as error:
            flag = (error.argument_name or "").rpartition("/")[2]
            raise UsageError(f"{command}: {flag}: {error.message}") from error
        module.run(arguments)


def _words(action: argparse.Action, value: Any) -> list[str]:  # noqa: ANN401 - of any option
    flag, values = action.option_strings[-1], [value]
    if action.nargs == 0:
        return [flag] * (value == action.const)
    if isinstance(value, list | tuple):
        values = list(value)
    if action.nargs == "+":
        return [flag, *map(str, values)]
    if not isinstance(action, argparse._AppendAction):  # noqa: SLF001 - has no public name
        values = [",".join(map(str, values))]
    return [f"{flag}={text}" for text in values]
