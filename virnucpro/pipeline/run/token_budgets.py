"""budgets.json: batch sizes that the ranks of a run learnt, by kind of device."""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from virnucpro.durable import write_file
from virnucpro.encoders.memory.token_budget import is_fitted
from virnucpro.run_dir import RunDirectory

__all__ = ["Learnt", "merge_budgets", "read_budgets", "write_budgets"]

Learnt: TypeAlias = Mapping[str, Mapping[str, int]]
"""Name of a device -> encoder, encoder/length class, or encoder/``fitted`` -> tokens."""

_MOST_BYTES = 1 << 20
_MOST_TOKENS = 1 << 40
_LENGTH_CLASSES = frozenset(str(1 << power) for power in range(41))


def read_budgets(run: RunDirectory) -> Learnt:
    """Return the content of budgets.json; empty without a readable file.

    It saves a launch from running out of memory again. Invalid entries are ignored: results depend
    on batch sizes by rounding only.
    """
    try:
        if not run.budgets.is_file():  # to open a named pipe would wait for its writer
            return {}
        with run.budgets.open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
        content = json.loads(text) if len(text) <= _MOST_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {
        device: {key: tokens for key, tokens in learnt.items() if _is_budget(key, tokens)}
        for device, learnt in content.items()
        if isinstance(learnt, dict)
    }


def _is_budget(key: str, tokens: Any) -> bool:  # noqa: ANN401 - anything that JSON can hold
    """Return whether an encoder can have learnt this; JSON's true is an int in Python."""
    name, _, size = key.rpartition("/")
    known = size in _LENGTH_CLASSES if name and size.isdecimal() else bool(size)
    return known and type(tokens) is int and 0 < tokens <= _MOST_TOKENS


def merge_budgets(known: Learnt, device: str, learnt: Mapping[str, int]) -> Learnt:
    """Return `known` with the budgets that a rank learnt on `device`.

    The lowest limit of all ranks counts, and the longest row that fitted on any.
    """
    own = dict(known.get(device, {}))
    for key, tokens in learnt.items():
        choose = max if is_fitted(key) else min
        own[key] = choose(tokens, own.get(key, tokens))
    return {**known, device: own} if own else known


def write_budgets(run: RunDirectory, learnt: Learnt) -> None:
    """Write budgets.json atomically.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    with write_file(run.budgets, lasting=False) as stream:
        stream.write(json.dumps(learnt, indent=2, sort_keys=True).encode() + b"\n")
