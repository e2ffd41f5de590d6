"""The loop over the folds of a cross-validation; each finished fold is kept in a file."""

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.durable import write_file
from virnucpro.lab.training.genomes import Group


def logits_of_folds(
    prefix: Path,
    key: str,
    groups: Mapping[int, Sequence[Group]],
    folds: Mapping[str, int],
    logits_of: Callable[[int, Mapping[int, BoolArray]], Mapping[int, FloatArray]],
) -> dict[int, FloatArray]:
    """Return, by length, the logit of each piece by a classifier without the piece's group.

    The logits of fold 1 are kept in ``PREFIX-1.npz``. Damaged files, and files with another key,
    are replaced.

    Parameters
    ----------
    key
        Digest of all that decides the logits.
    groups
        Group of each piece, by length in bases.
    folds
        Fold of each group's name.
    logits_of
        Called for each missing fold with its number, from 0, and by length with a mask of the
        pieces in it. Returns the logits of these pieces.
    """
    prefix.parent.mkdir(exist_ok=True)
    found = {length: np.zeros(len(own)) for length, own in groups.items()}
    for fold in range(max(folds.values()) + 1):
        inside = {
            length: np.array([folds[name] == fold for _, name in own])
            for length, own in groups.items()
        }
        inside = {length: chosen for length, chosen in inside.items() if chosen.any()}
        path = prefix.with_name(f"{prefix.name}-{fold + 1}.npz")
        logits = _read(path, key)
        if logits is None:
            logits = logits_of(fold, inside)
            with write_file(path) as stream:
                arrays: dict[str, Any] = {str(length): values for length, values in logits.items()}
                np.savez(stream, key=key, **arrays)
        for length, values in logits.items():
            found[length][inside[length]] = values
    return found


def _read(path: Path, key: str) -> Mapping[int, FloatArray] | None:
    """Return the logits by length of a finished fold; None if the file is not of this training."""
    try:
        with np.load(path) as file:
            if str(file["key"]) == key:
                return {int(name): file[name] for name in file.files if name != "key"}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        pass
    return None
