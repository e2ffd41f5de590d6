"""Accuracy of a bundle by length of the records: of groups left out in training, or of genomes.

    python scripts/bench/accuracy.py --held-out OUT/training/cross_validation.tsv
    python scripts/bench/accuracy.py --labels OUT/labels.tsv --exclude OUT/exclude.bed [--bundle B]
        [--split valid]

The first reads what a training wrote about the pieces of its cross-validation. The second draws
pieces of the genomes of one split, and classifies them with ``virnucpro.classify``. Both print for
each length: AUROC with its 95 % interval by bootstrap over groups, recall where 1 % of the
prokaryotes and where 1 % of all others are called, and precision and recall of the default preset
in a metagenome of 5 % viruses. The second also prints the host genera of which most, and the groups
of viruses of which fewest 10-kb pieces are called. Virus groups count equally, and so do the
kingdoms of others; for precision, 85 % of the others are prokaryotes.
"""

import argparse
import csv
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import virnucpro
from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.prevalence import posterior
from virnucpro.lab.evaluation.labels import read_labels
from virnucpro.lab.evaluation.regions import read_regions
from virnucpro.lab.metrics import auroc
from virnucpro.lab.training.draw import draw_pieces
from virnucpro.lab.training.genomes import VIRUS, Group, read_genomes
from virnucpro.lab.training.records.calibration import metagenome_weights
from virnucpro.lab.training.weights import PROKARYOTES, equal_weights, resampled_weights

FloatArray = NDArray[np.float64]

LENGTHS = {300: (60, 600), 500: (60, 600), 1_000: (60, 600), 3_000: (30, 300), 10_000: (30, 300)}
"""Bases of the pieces; pieces per virus group, and per kingdom of others."""
RESAMPLES, TAILS = 500, (2.5, 97.5)
FALSE, PREVALENCE = 0.01, 0.05
BY_GROUP, LEAST, WORST = 10_000, 5, 10
Judged = tuple[int, list[Group], FloatArray]
"""Length, groups, and log odds at a prevalence of one half."""


def main() -> None:
    """Print the figures of one bundle."""
    options = _options()
    if options.held_out:
        judged, threshold = _read(options.held_out), options.threshold
    else:
        calibration = open_bundle(options.bundle).calibration
        threshold = read_calibration(calibration, "").presets["default"].viral
        judged = _classified(options)
    print("| bases | pieces | AUROC | recall at 1 % of prokaryotes | of all | precision, recall |")
    print("|---|---|---|---|---|---|")
    for length, groups, log_odds in judged:
        print(row(length, groups, log_odds, threshold, options.seed), flush=True)
        if length == BY_GROUP and not options.held_out:
            last = (groups, log_odds)
    if not options.held_out:
        print("\n".join(extremes(*last, threshold)))


def row(
    length: int, groups: Sequence[Group], log_odds: FloatArray, threshold: float, seed: int
) -> str:
    """Return the figures of one length as a row of the table."""
    viral = np.array([kingdom == VIRUS for kingdom, _ in groups])
    cells = np.array([kingdom in PROKARYOTES for kingdom, _ in groups])
    weights = equal_weights(groups)
    low, high = np.percentile(
        auroc(log_odds, viral, resampled_weights(groups, RESAMPLES, seed)), TAILS
    )
    recalls = []
    for others in (cells, ~viral):
        limit = _above(log_odds[others], weights[others])
        recalls.append(weights[viral] @ (log_odds[viral] > limit) / weights[viral].sum())
    of_metagenome = metagenome_weights(groups)
    called = posterior(log_odds, PREVALENCE) >= threshold
    right, wrong = (
        share * (of_metagenome[side] @ called[side]) / of_metagenome[side].sum()
        for share, side in ((PREVALENCE, viral), (1 - PREVALENCE, ~viral))
    )
    precision = right / (right + wrong) if right + wrong else np.nan
    return (
        f"| {length:,} | {len(groups):,} | {auroc(log_odds, viral, weights):.3f} ({low:.3f} to "
        f"{high:.3f}) | {recalls[0]:.2f} | {recalls[1]:.2f} | {precision:.2f}, "
        f"{right / PREVALENCE:.2f} |"
    )


def extremes(groups: Sequence[Group], log_odds: FloatArray, threshold: float) -> Iterator[str]:
    """Yield the groups of others with most, and of viruses with fewest called pieces."""
    calls = defaultdict(list)
    for group, called in zip(groups, posterior(log_odds, PREVALENCE) >= threshold, strict=True):
        calls[group].append(called)
    shares = {group: (np.mean(one), len(one)) for group, one in calls.items() if len(one) >= LEAST}
    for title, viral in (("most called of others", False), ("least called viruses", True)):
        own = [one for one in shares.items() if (one[0][0] == VIRUS) == viral]
        own.sort(key=lambda one: one[1][0], reverse=not viral)
        found = [f"{name} ({kingdom}) {share:.0%} of {n}" for (kingdom, name), (share, n) in own]
        yield f"{title}: {'; '.join(found[:WORST])}"


def _above(values: FloatArray, weights: FloatArray) -> float:
    """Return the value above which lies a share of `FALSE` of the weight."""
    order = np.argsort(-values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(np.searchsorted(share, FALSE), len(order) - 1)])


def _read(path: Path) -> Iterator[Judged]:
    rows = defaultdict(list)
    with path.open(newline="") as stream:
        for one in csv.DictReader(stream, delimiter="\t"):
            rows[int(one["bases"])].append(((one["kingdom"], one["group"]), float(one["log_odds"])))
    for length, found in rows.items():
        groups, log_odds = zip(*found, strict=True)
        yield length, list(groups), np.array(log_odds)


def _classified(options: argparse.Namespace) -> Iterator[Judged]:
    excluded = read_regions(options.exclude) if options.exclude else {}
    genomes = read_genomes(read_labels(options.labels, options.split), excluded)
    with tempfile.TemporaryDirectory() as scratch:
        for length, numbers in LENGTHS.items():
            drawn = draw_pieces(genomes, length, *numbers, options.seed)
            path = Path(scratch) / f"pieces-{length}.fa"
            with path.open("wb") as stream:
                for number, bases in enumerate(drawn.bases):
                    stream.write(b">%d\n%s\n" % (number, bases))
            with virnucpro.classify(path, bundle=options.bundle) as result:
                values = np.asarray(result.predictions["calibrated_probability"], np.float64)
            shares = np.clip(np.nan_to_num(values), 1e-6, 1 - 1e-6)  # a record without a score: 0
            yield length, drawn.groups, np.log(shares) - np.log1p(-shares)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--held-out", type=Path, metavar="TSV")
    given.add_argument("--labels", type=Path, metavar="TSV")
    parser.add_argument("--exclude", type=Path)
    parser.add_argument("--split", default="valid", help="default: %(default)s")
    parser.add_argument("--bundle", default="mini", help="default: %(default)s")
    parser.add_argument("--threshold", type=float, default=0.8, help="with --held-out")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
