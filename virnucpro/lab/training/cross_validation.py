"""Predictions for groups outside the training set; each finished fold is kept in a file."""

import hashlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from virnucpro.arrays import BoolArray, FloatArray, IntArray, slices
from virnucpro.durable import write_file
from virnucpro.lab.training.draw import PieceKind
from virnucpro.lab.training.genomes import Group, are_viral
from virnucpro.lab.training.network import BLOCK_ROWS, Ensemble, Examples, Rows, train
from virnucpro.lab.training.settings import NetworkSettings
from virnucpro.run.reporter import Reporter

_ERRORS: Final = "-errors"
_TESTED: Final = 1024
"""Rows of features in the digest: they belong to windows that the settings of the folder decide."""


def logits_of_folds(
    prefix: Path,
    key: str,
    folds: Mapping[PieceKind, IntArray],
    logits_of: Callable[[int, Mapping[PieceKind, BoolArray]], Mapping[PieceKind, FloatArray]],
) -> dict[PieceKind, FloatArray]:
    """Return, by kind, the logit of each piece by a classifier without the piece's fold.

    The logits of fold 1 are kept in ``PREFIX-1.npz``. Damaged files, and files with another key,
    are replaced.

    Parameters
    ----------
    key
        Digest of all that decides the logits.
    folds
        Fold of each piece of a kind.
    logits_of
        Called for each missing fold with its number, from 0, and by kind with a mask of the
        pieces in it. Returns the logits of these pieces.
    """
    prefix.parent.mkdir(exist_ok=True)
    found = {kind: np.zeros(len(own)) for kind, own in folds.items()}
    for fold in range(max(int(own.max()) for own in folds.values()) + 1):
        inside = {kind: own == fold for kind, own in folds.items()}
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


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of one length, with the features of their windows.

    Attributes
    ----------
    groups
        Group of each piece.
    features
        (n_windows, dim).
    first
        (n_pieces + 1,) int64: piece i has the windows ``first[i]`` to ``first[i + 1] - 1``.
    """

    groups: Sequence[Group]
    features: Rows
    first: IntArray

    @property
    def viral(self) -> BoolArray:
        """(n_pieces,) bool."""
        return are_viral(self.groups)

    def logits(self, ensemble: Ensemble, chosen: BoolArray) -> FloatArray:
        """Return the mean logit of the windows of each piece in `chosen`, (n_pieces,)."""
        counts = np.diff(self.first)
        rows = np.repeat(chosen, counts)
        blocks = [
            ensemble.logits(self.features[block][rows[block]])
            for block in slices(len(rows), BLOCK_ROWS)
        ]
        counts = counts[chosen]
        sums: FloatArray = np.add.reduceat(np.concatenate(blocks), np.cumsum(counts) - counts)
        return sums / counts


def cross_validate(
    examples: Examples,
    fold_of_window: IntArray,
    pieces: Mapping[PieceKind, Pieces],
    folds: Mapping[PieceKind, IntArray],
    settings: NetworkSettings,
    seed: int,
    reporter: Reporter,
    prefix: Path,
) -> dict[PieceKind, FloatArray]:
    """Return, by kind, the mean logit of each piece by an ensemble without the piece's fold.

    The logits of each finished fold are kept. A second call with equal arguments and
    the same version of torch reads them; damaged and other files are replaced.

    Parameters
    ----------
    fold_of_window
        Fold of each training window.
    pieces
        Pieces of each kind.
    folds
        Fold of each piece.
    reporter
        Receives a stage for each fold that is trained, and its finished share.
    prefix
        Path of the files, without their numbers.
    """
    number = int(fold_of_window.max()) + 1

    def logits_of(fold: int, inside: Mapping[PieceKind, BoolArray]) -> dict[PieceKind, FloatArray]:
        reporter.stage(f"training for {prefix.name} {fold + 1} of {number}")
        weights = np.where(fold_of_window == fold, 0, examples.weights)
        known = replace(examples, weights=weights)
        ensemble = train(known, settings, seed, reporter.finished)
        return {kind: pieces[kind].logits(ensemble, mask) for kind, mask in inside.items()}

    key = _key(examples, pieces, (fold_of_window.tolist(), settings, seed))
    return logits_of_folds(prefix, key, folds, logits_of)


def _key(examples: Examples, pieces: Mapping[PieceKind, Pieces], others: object) -> str:
    """Return a digest of the arguments that decide the logits of a fold."""
    digest = hashlib.sha256(repr((others, torch.__version__)).encode())
    arrays = [examples.classes, examples.viral, examples.groups, examples.weights]
    arrays.append(examples.features[slice(0, _TESTED)])
    for kind, of_kind in pieces.items():
        digest.update(repr((kind, of_kind.groups)).encode())
        arrays += [of_kind.first, of_kind.features[slice(0, _TESTED)]]
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
