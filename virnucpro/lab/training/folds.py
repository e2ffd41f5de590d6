"""The loop over the folds of a cross-validation; each finished fold is kept in a file."""

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.durable import write_file
from virnucpro.lab.training.draw import PieceKind
from virnucpro.lab.training.genomes import Group

_ERRORS: Final = "-errors"


def logits_of_folds(
    prefix: Path,
    key: str,
    groups: Mapping[PieceKind, Sequence[Group]],
    folds: Mapping[str, int],
    logits_of: Callable[[int, Mapping[PieceKind, BoolArray]], Mapping[PieceKind, FloatArray]],
) -> dict[PieceKind, FloatArray]:
    """Return, by kind, the logit of each piece by a classifier without the piece's group.

    The logits of fold 1 are kept in ``PREFIX-1.npz``. Damaged files, and files with another key,
    are replaced.

    Parameters
    ----------
    key
        Digest of all that decides the logits.
    groups
        Group of each piece of a kind.
    folds
        Fold of each group's name.
    logits_of
        Called for each missing fold with its number, from 0, and by kind with a mask of the
        pieces in it. Returns the logits of these pieces.
    """
    prefix.parent.mkdir(exist_ok=True)
    found = {kind: np.zeros(len(own)) for kind, own in groups.items()}
    for fold in range(max(folds.values()) + 1):
        inside = {
            kind: np.array([folds[name] == fold for _, name in own]) for kind, own in groups.items()
        }
        inside = {kind: chosen for kind, chosen in inside.items() if chosen.any()}
        path = prefix.with_name(f"{prefix.name}-{fold + 1}.npz")
        logits = _read(path, key)
        if logits is None:
            logits = logits_of(fold, inside)
            with write_file(path) as stream:
                arrays: dict[str, Any] = {_name(kind): own for kind, own in logits.items()}
                np.savez(stream, key=key, **arrays)
        for kind, values in logits.items():
            found[kind][inside[kind]] = values
    return found


def _name(kind: PieceKind) -> str:
    return f"{kind.bases}{_ERRORS if kind.errors else ''}"


def _read(path: Path, key: str) -> Mapping[PieceKind, FloatArray] | None:
    """Return the logits by kind of a finished fold; None if the file is not of this training."""
    try:
        with np.load(path) as file:
            if str(file["key"]) == key:
                return {
                    PieceKind(int(name.removesuffix(_ERRORS)), name.endswith(_ERRORS)): file[name]
                    for name in file.files
                    if name != "key"
                }
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        pass
    return None
