"""Accuracy of a bundle of whole windows on labelled genomes, beside a k-mer regression.

Draws pieces of the genomes of one split, scores their windows with the bundle, and prints for each
length the AUROC over all pieces, its 95 % interval by bootstrap over groups, and up to 1,000 bases
the AUROC of a logistic regression on 3- to 6-mers, trained on crops of the training split, with the
interval of the paired difference. Virus groups count equally, and so do the kingdoms of others.

    python scripts/train_mini.py ... --out OUT     # writes OUT/labels.tsv and OUT/exclude.bed
    python scripts/bench/accuracy.py --labels OUT/labels.tsv --exclude OUT/exclude.bed [--bundle B]
        [--folder ../shared/genomes]               # only files below this folder

The last lines are shares of whole records that the default preset calls viral. The intervals of a
small split are wide; kmer_cross_validation.py compares both classifiers on all training groups.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from kmers import fit_and_score
from numpy.typing import NDArray

from virnucpro.bundles.bundle import Bundle, open_bundle
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.head import load_head
from virnucpro.classifier.quality import is_complex
from virnucpro.encoders.registry import load_encoder
from virnucpro.evaluation.labels import Source, read_labels
from virnucpro.evaluation.regions import read_regions
from virnucpro.pipeline.training.genomes import read_genomes
from virnucpro.training.draw import WINDOW, draw_crops, draw_pieces, tile_pieces
from virnucpro.training.groups import Genome, Group
from virnucpro.training.weights import auroc, equal_weights

FloatArray = NDArray[np.float64]

LENGTHS = {300: (100, 1000), 500: (100, 1000), 1000: (100, 1000), 3000: (30, 200),
           10_000: (30, 200)}  # fmt: skip
"""Bases of the pieces; pieces per virus group, and per kingdom of others."""
BASELINE = 20_000
RESAMPLES = 500
AT_ONCE = 4_096
HOSTS = ("plant", "vertebrate", "fungi", "invertebrate")
HOST_BASES, VIRUS_BASES, WHOLE = 5_000, 3_000, 200_000


def main() -> None:
    """Print the figures of one bundle."""
    options = _options()
    bundle = open_bundle(options.bundle)
    scorer = Scorer(bundle)
    sources = read_labels(options.labels, options.split)
    if options.folder is not None:
        inside = options.folder.resolve()
        sources = [one for one in sources if one.path.resolve().is_relative_to(inside)]
    genomes = _genomes(sources, options.exclude)
    print("bases pieces AUROC  95 % interval   k-mers  gain   95 % interval")
    baseline = None if options.no_baseline else _baseline(options)
    for length, numbers in LENGTHS.items():
        drawn = draw_pieces(genomes, length, *numbers, options.seed)
        tiles = tile_pieces(drawn.bases)
        logits = _means(scorer.logits(tiles.windows), tiles.first)
        line = f"{length:6} {len(logits):6} {_rated(logits, drawn.groups, options.seed)}"
        if baseline is not None and length <= 2 * WINDOW:
            theirs = fit_and_score(*baseline, drawn.bases).astype(np.float64)
            line += f"  {_auroc(theirs, drawn.groups):.4f}"
            line += f"  {_rated(logits, drawn.groups, options.seed, theirs)}"
        print(line, flush=True)
    _whole_records(genomes, bundle, scorer)


class Scorer:
    """Scores windows with the encoder and the head of a bundle, in this process."""

    def __init__(self, bundle: Bundle) -> None:
        assert bundle.head is not None
        (spec,) = bundle.encoders
        self._encoder, self._head = load_encoder(spec), load_head(bundle.head)

    def logits(self, windows: Sequence[bytes]) -> FloatArray:
        """Return the logit of each window."""
        found = []
        for start in range(0, len(windows), AT_ONCE):
            tokens = self._encoder.tokenise(windows[start : start + AT_ONCE])
            scores = self._head.scores(self._encoder.encode(self._encoder.collate(tokens)))
            pair = scores[:, :2].double().log()
            found.append((pair[:, 1] - pair[:, 0]).numpy())
        return np.concatenate(found)


def _genomes(sources: Sequence[Source], exclude: Path | None) -> list[Genome]:
    excluded = read_regions(exclude) if exclude else {}
    return read_genomes(sources, excluded)


def _baseline(options: argparse.Namespace) -> tuple[list[bytes], NDArray[np.bool_]]:
    """Return windows of the training split and their labels; groups of a class count equally."""
    genomes = _genomes(read_labels(options.labels, "train"), options.exclude)
    drawn = draw_crops(genomes, options.seed)
    dice, counts = np.random.default_rng(options.seed), dict[Group, int]()
    for group in drawn.groups:
        counts[group] = counts.get(group, 0) + 1
    weights = np.array([1 / counts[group] for group in drawn.groups])
    halves = []
    for side in (False, True):
        rows = np.flatnonzero(drawn.viral == side)
        size = min(len(rows), BASELINE // 2)
        halves.append(dice.choice(rows, size, replace=False, p=weights[rows] / weights[rows].sum()))
    chosen = np.sort(np.concatenate(halves))
    return [drawn.bases[row] for row in chosen], drawn.viral[chosen]


def _means(logits: FloatArray, first: NDArray[np.int64]) -> FloatArray:
    found: FloatArray = np.add.reduceat(logits, first[:-1]) / np.diff(first)
    return found


def _auroc(scores: FloatArray, groups: Sequence[Group], weights: FloatArray | None = None) -> float:
    viral = np.array([kingdom == "virus" for kingdom, _ in groups])
    return auroc(scores, viral, equal_weights(groups) if weights is None else weights)


def _rated(
    scores: FloatArray, groups: Sequence[Group], seed: int, theirs: FloatArray | None = None
) -> str:
    """Return the AUROC, or the paired difference of two, with its interval over groups."""
    dice, weights = np.random.default_rng(seed), equal_weights(groups)
    names, number = np.unique(["\t".join(group) for group in groups], return_inverse=True)
    of_virus = np.array([name.startswith("virus\t") for name in names])

    def figure(resampled: FloatArray) -> float:
        ours = _auroc(scores, groups, resampled)
        return ours if theirs is None else ours - _auroc(theirs, groups, resampled)

    found = []
    for _ in range(RESAMPLES):
        times = np.zeros(len(names))
        for chosen in (np.flatnonzero(of_virus), np.flatnonzero(~of_virus)):
            np.add.at(times, dice.choice(chosen, len(chosen)), 1)
        found.append(figure(weights * times[number]))
    low, high = np.percentile(found, [2.5, 97.5])
    return f"{figure(weights):.4f} [{low:.4f}, {high:.4f}]"


def _whole_records(genomes: Sequence[Genome], bundle: Bundle, scorer: Scorer) -> None:
    """Print the share of whole records of hosts and viruses that are called viral."""
    if bundle.calibration is None:
        return
    calibration = read_calibration(bundle.calibration, bundle.path)
    called: dict[str, list[bool]] = {}
    for genome in genomes:
        least = VIRUS_BASES if genome.viral else HOST_BASES
        for sequence in genome.sequences:
            if len(sequence) >= least and (genome.viral or genome.kingdom in HOSTS):
                windows = tile_pieces([sequence[:WHOLE]]).windows
                logit = scorer.logits(windows).mean(keepdims=True)
                n_bases = np.array([sum(map(len, windows))])
                probability = calibration.probability(
                    logit, np.array([len(windows)]), n_bases, calibration.prevalence
                )
                viral = probability[0] >= calibration.presets["default"].viral
                viral &= is_complex(sequence[:WHOLE])
                called.setdefault(genome.kingdom, []).append(bool(viral))
    for kingdom, calls in sorted(called.items()):
        print(f"whole records, {kingdom}: {np.mean(calls):.3f} of {len(calls)} called viral")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--exclude", type=Path)
    parser.add_argument("--split", default="valid", help="default: %(default)s")
    parser.add_argument("--folder", type=Path, help="only files below this folder")
    parser.add_argument("--bundle", default="mini", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-baseline", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
