"""How large batches may be on each kind of device, as the ranks of a run learnt it."""

import json
from collections.abc import Mapping
from typing import TypeAlias

from virnucpro.durable import write_file
from virnucpro.run_dir import RunDirectory

__all__ = ["Learnt", "merge_budgets", "read_budgets", "write_budgets"]

Learnt: TypeAlias = Mapping[str, Mapping[str, int]]
"""Name of a device -> encoder, or encoder/length class -> padded tokens."""


def read_budgets(run: RunDirectory) -> Learnt:
    """Read budgets.json; empty where there is none, or none that can be read.

    It saves a launch from running out of memory where a former one did. No number depends on it,
    but for rounding.
    """
    try:
        content = json.loads(run.budgets.read_bytes())
        return {
            str(device): {
                str(key): tokens
                for key, tokens in learnt.items()
                if isinstance(tokens, int) and tokens > 0
            }
            for device, learnt in content.items()
        }
    except (FileNotFoundError, ValueError, AttributeError):
        return {}


def merge_budgets(known: Learnt, device: str, learnt: Mapping[str, int]) -> Learnt:
    """Add what a rank learnt on `device`: the lowest of all ranks' budgets holds."""
    own = dict(known.get(device, {}))
    for key, tokens in learnt.items():
        own[key] = min(tokens, own.get(key, tokens))
    return {**known, device: own} if own else known


def write_budgets(run: RunDirectory, learnt: Learnt) -> None:
    """Write budgets.json, whole or not at all.

    Raises
    ------
    OSError
        When it cannot be written.
    """
    with write_file(run.budgets, lasting=False) as stream:
        stream.write(json.dumps(learnt, indent=2, sort_keys=True).encode() + b"\n")
