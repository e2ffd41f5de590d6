"""Predictions for groups outside the training set; each finished fold is kept in a file."""

import hashlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from virnucpro.arrays import BoolArray, Float32Array, FloatArray, IntArray
from virnucpro.durable import write_file
from virnucpro.lab.training.draw import PieceKind
from virnucpro.lab.training.genomes import Group, are_viral
from virnucpro.lab.training.network import Ensemble, Examples, train
from virnucpro.lab.training.settings import NetworkSettings
from virnucpro.run.reporter import Reporter

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


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of one length, with the features of their windows.

    Attributes
    ----------
    groups
        Group of each piece.
    features
        (n_windows, dim) float32.
    first
        (n_pieces + 1,) int64: piece i has the windows ``first[i]`` to ``first[i + 1] - 1``.
    """

    groups: Sequence[Group]
    features: Float32Array
    first: IntArray

    @property
    def viral(self) -> BoolArray:
        """(n_pieces,) bool."""
        return are_viral(self.groups)

    def logits(self, ensemble: Ensemble) -> FloatArray:
        """Return the mean logit of each piece's windows."""
        found: FloatArray = np.add.reduceat(ensemble.logits(self.features), self.first[:-1])
        return found / np.diff(self.first)

    def select(self, chosen: BoolArray) -> "Pieces":
        """Return the pieces for which `chosen`, (n_pieces,), is True."""
        counts = np.diff(self.first)
        rows = np.repeat(chosen, counts)
        first = np.concatenate(([0], np.cumsum(counts[chosen])))
        groups = [group for group, kept in zip(self.groups, chosen, strict=True) if kept]
        return Pieces(groups, self.features[rows], first)


def cross_validate(
    examples: Examples,
    groups: Sequence[Group],
    pieces: Mapping[PieceKind, Pieces],
    folds: Mapping[str, int],
    settings: NetworkSettings,
    seed: int,
    reporter: Reporter,
    folder: Path,
) -> dict[PieceKind, FloatArray]:
    """Return, by kind, the mean logit of each piece by an ensemble without the piece's group.

    The logits of each finished fold are kept in `folder`. A second call with equal arguments and
    the same version of torch reads them; damaged and other files are replaced.

    Parameters
    ----------
    groups
        Group of each training window.
    pieces
        Pieces of each kind.
    folds
        Fold of each group's name.
    reporter
        Receives a stage for each fold that is trained, and its finished share.
    """
    of_window = np.array([folds[name] for _, name in groups])

    def logits_of(fold: int, inside: Mapping[PieceKind, BoolArray]) -> dict[PieceKind, FloatArray]:
        reporter.stage(f"training for fold {fold + 1} of {max(folds.values()) + 1}")
        ensemble = train(_without(examples, of_window == fold), settings, seed, reporter.finished)
        return {kind: pieces[kind].select(mask).logits(ensemble) for kind, mask in inside.items()}

    key = _key(examples, pieces, groups, folds, settings, seed)
    of_pieces = {kind: of_kind.groups for kind, of_kind in pieces.items()}
    return logits_of_folds(folder / "fold", key, of_pieces, folds, logits_of)


def _key(examples: Examples, pieces: Mapping[PieceKind, Pieces], *others: object) -> str:
    """Return a digest of the arguments that decide the logits of a fold."""
    digest = hashlib.sha256(repr((others, torch.__version__)).encode())
    arrays = [examples.features, examples.classes, examples.viral, examples.groups]
    for kind, of_kind in pieces.items():
        digest.update(repr((kind, of_kind.groups)).encode())
        arrays += [of_kind.features, of_kind.first]
    for array in (*arrays, examples.weights):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _without(examples: Examples, left_out: BoolArray) -> Examples:
    kept = ~left_out
    _, groups = np.unique(examples.groups[kept], return_inverse=True)
    return Examples(
        examples.features[kept],
        examples.classes[kept],
        examples.viral,
        groups,
        examples.weights[kept],
    )
