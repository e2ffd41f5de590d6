"""Paired gain of a trained bundle over a k-mer regression in its own cross-validation by group.

Both classifiers see the same windows with the same weights in the same folds, and score the same
pieces of groups that they did not see. The bundle's scores stand in the training folder. The
regression is scikit-learn's, on 3- to 6-mers; its penalty is the best of several by the scores
themselves, which favours the regression. Prints the AUROC of both, the gain, and its 95 % interval
by a paired bootstrap over groups. Pieces of 1,250 bases are scored by the mean of their windows.

    python scripts/train_mini.py ... --out OUT
    python scripts/bench/kmer_cross_validation.py --out OUT
"""

import argparse
import csv
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from virnucpro.lab.evaluation.input_table import read_regions
from virnucpro.lab.evaluation.labels import read_labels
from virnucpro.lab.metrics import auroc
from virnucpro.lab.training.draw import PieceKind
from virnucpro.lab.training.genomes import VIRUS, Group, read_genomes
from virnucpro.lab.training.weights import draw_weights, equal_weights, resampled_weights
from virnucpro.lab.training.windows_file import TrainingWindows, draw_training_windows

FloatArray = NDArray[np.float64]
Frequencies = NDArray[np.float32]

LENGTHS = (300, 500, 1250)
STRENGTHS = (0.5, 5.0, 50.0, 500.0)
"""Inverse penalties, times the number of training windows."""
SIZES = (3, 4, 5, 6)
"""Lengths of k-mers."""
RESAMPLES = 2000
SEED = 1

_LETTERS = np.full(256, 4, np.uint8)
_LETTERS[np.frombuffer(b"ACGT", np.uint8)] = np.arange(4)


def main() -> None:
    """Print one line for each length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="output folder of train_mini.py")
    folder = parser.parse_args().out
    seed = json.loads((folder / "training" / "train.json").read_bytes())["seed"]
    excluded = read_regions(folder / "exclude.bed")
    sources = read_labels(folder / "labels.tsv", "train")
    windows = draw_training_windows(read_genomes(sources, excluded), seed)
    theirs = cross_validated(windows, _folds(folder))
    print("bases pieces bundle  k-mers (penalty)  gain    95 % interval")
    for length in LENGTHS:
        groups, ours = _held_out(folder, length)
        if groups != list(windows.tiled[PieceKind(length)].pieces.groups):
            raise SystemExit(f"{folder}: the pieces of {length} bases are not those of this code")
        viral, weights = (
            np.array([kingdom == VIRUS for kingdom, _ in groups]),
            equal_weights(groups),
        )
        rated = {
            one: float(auroc(scores[length], viral, weights)) for one, scores in theirs.items()
        }
        best = max(rated, key=lambda one: rated[one])
        resampled = resampled_weights(groups, RESAMPLES, SEED)
        gains = auroc(ours, viral, resampled) - auroc(theirs[best][length], viral, resampled)
        low, high = np.percentile(gains, [2.5, 97.5])
        mine = float(auroc(ours, viral, weights))
        print(
            f"{length:5} {len(ours):6} {mine:.4f}  {rated[best]:.4f} ({best:g})  "
            f"{mine - rated[best]:.4f}  [{low:.4f}, {high:.4f}]"
        )


def cross_validated(
    windows: TrainingWindows, folds: dict[str, int]
) -> dict[float, dict[int, FloatArray]]:
    """Return the mean log odds of each piece by a fit without its fold, by strength and length."""
    crops = windows.crops
    known = all_frequencies(crops.bases)
    of_crop = np.array([folds[name] for _, name in crops.groups])
    tiled = {length: windows.tiled[PieceKind(length)] for length in LENGTHS}
    unseen = {length: all_frequencies(one.windows) for length, one in tiled.items()}
    scores = {
        strength: {length: np.zeros(len(one.pieces.groups)) for length, one in tiled.items()}
        for strength in STRENGTHS
    }
    for fold in range(max(folds.values()) + 1):
        rows = np.flatnonzero(of_crop != fold)
        weights = draw_weights(
            [crops.groups[row] for row in rows], [crops.sources[row] for row in rows]
        ) * len(rows)
        x = known[rows]
        centre = np.average(x, axis=0, weights=weights).astype(np.float32)
        x -= centre
        scale = np.sqrt(np.average(x**2, axis=0, weights=weights)).astype(np.float32) + 1e-8
        x /= scale
        model = LogisticRegression(max_iter=200, warm_start=True)
        for strength in STRENGTHS:
            began = time.monotonic()
            model.C = strength / len(rows)
            model.fit(x, crops.viral[rows], sample_weight=weights)
            for length, one in tiled.items():
                odds = model.decision_function((unseen[length] - centre) / scale)
                means = np.add.reduceat(odds, one.first[:-1]) / np.diff(one.first)
                inside = np.array([folds[name] == fold for _, name in one.pieces.groups])
                scores[strength][length][inside] = means[inside]
            print(
                f"fold {fold + 1}, strength {strength:g}: {int(model.n_iter_[0])} iterations, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
    return scores


def all_frequencies(windows: Sequence[bytes]) -> Frequencies:
    """Return the frequencies of all k-mers of `SIZES`: (n, 2,772) float32."""
    return np.concatenate([frequencies(windows, k) for k in SIZES], axis=1)


def frequencies(windows: Sequence[bytes], k: int) -> Frequencies:
    """Count k-mers on both strands, each with its reverse complement as one: (n, kinds) float32."""
    counts = np.stack([_count(_LETTERS[np.frombuffer(w, np.uint8)], k) for w in windows])
    both = counts + counts[:, _reverse_complements(k)]
    kept = np.arange(4**k) <= _reverse_complements(k)
    shares: Frequencies = both[:, kept] / both[:, kept].sum(axis=1, keepdims=True)
    return shares


def _count(letters: NDArray[np.uint8], k: int) -> Frequencies:
    n = len(letters) - k + 1
    number = np.zeros(n, np.int64)
    known = np.ones(n, bool)
    for offset in range(k):
        part = letters[offset : offset + n]
        number = number * 4 + np.minimum(part, 3)
        known &= part < 4
    return np.bincount(number[known], minlength=4**k).astype(np.float32)


def _reverse_complements(k: int) -> NDArray[np.int64]:
    number, reverse = np.arange(4**k), np.zeros(4**k, np.int64)
    for _ in range(k):
        reverse = reverse * 4 + 3 - number % 4
        number = number // 4
    return reverse


def _folds(folder: Path) -> dict[str, int]:
    path = folder / "training" / "bundle" / "training_set.tsv"
    with path.open(newline="", encoding="utf-8") as stream:
        return {row["group"]: int(row["fold"]) for row in csv.DictReader(stream, delimiter="\t")}


def _held_out(folder: Path, length: int) -> tuple[list[Group], FloatArray]:
    with (folder / "training" / "cross_validation.tsv").open(
        newline="", encoding="utf-8"
    ) as stream:
        rows = [
            row for row in csv.DictReader(stream, delimiter="\t") if row["bases"] == str(length)
        ]
    groups = [(row["kingdom"], row["group"]) for row in rows]
    return groups, np.array([float(row["logit"]) for row in rows])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
