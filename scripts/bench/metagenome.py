"""Calls of a bundle in simulated metagenomes, whose viral records are known.

Draws contigs from the genomes of one split, predicts them with ``virnucpro.classify``, and prints
for each share of viral contigs: the estimated prevalence, and for several rules of the calls the
number of viral calls, precision, recall, and the stated and the realised rate of false calls. Each
figure is the median of several metagenomes, with the least and the largest one.

    python scripts/train_mini.py ... --out OUT     # writes OUT/labels.tsv and OUT/exclude.bed
    python scripts/bench/metagenome.py --labels OUT/labels.tsv --exclude OUT/exclude.bed
        [--bundle B] [--contigs 3000] [--viral .01 .05 .5] [--draws 10] [--keep DIR]
    python scripts/bench/metagenome.py --held-out OUT/training/cross_validation.tsv [--relatives]
        [--bundle B] [--viral ...]

Lengths are log-normal with a median of 2 kb, from 1 to 30 kb. Of the viral contigs, 80 % are of
phages; of the others, 85 % are of bacteria and archaea. The groups of each of the four kinds are
equally likely.

The second command prints what the choice of groups does by itself. From the pieces of a
cross-validation it draws as many groups of each kind as the split `valid` has, and contigs of these
groups, again and again. It prints median, 5 % and 95 % of the estimate, and for each preset of the
bundle those of precision, recall, and the stated and realised share of false calls. The networks
had not seen the group of a piece, or with ``--relatives`` its near relatives. Random sequences of a
training are left out.
"""

import argparse
import csv
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import virnucpro
from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.call_options import PRESETS
from virnucpro.classifier.prevalence import estimate_prevalence, posterior
from virnucpro.lab.evaluation.input_table import read_regions
from virnucpro.lab.evaluation.labels import read_labels
from virnucpro.lab.training.genomes import VIRUS, Genome, read_genomes

MEDIAN, SPREAD, CONTIGS = 2_000, 0.9, (1_000, 30_000)
PHAGES, PROKARYOTES = ("small_phage", "tailed_phage"), ("bacteria", "archaea")
PHAGE_SHARE, PROKARYOTE_SHARE = 0.8, 0.85
LEAST_KNOWN = 0.9
FDR = 0.05
N_GROUPS = {(True, True): 23, (True, False): 19, (False, True): 50, (False, False): 79}
"""Groups of the split `valid` by kind."""
SAMPLES, TAILS = 200, (5, 50, 95)
DIGITS = (3, 3, 0, 2, 2, 2, 2)
"""Decimals of the figures of a rule."""
SHUFFLED = "shuffled"
"""Kingdom of random sequences in the training of mini."""

BoolArray = NDArray[np.bool_]
Kinds = Mapping[tuple[bool, bool], Sequence[Sequence[Genome]]]
"""Groups of genomes by kind: whether viral, and whether of phages or prokaryotes."""


def main() -> None:
    """Print the figures of one bundle."""
    options = _options()
    if options.held_out:
        print_samples(options)
    else:
        print_genomes(options)


def print_genomes(options: argparse.Namespace) -> None:
    """Print the figures of contigs of genomes, classified here."""
    excluded = read_regions(options.exclude)
    genomes = read_genomes(read_labels(options.labels, options.split), excluded)
    kinds = _kinds(genomes)
    print("| true | estimate | rule | called | precision | recall | FDR stated | realised |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for share in options.viral:
            drawn = []
            for seed in range(options.seed, options.seed + options.draws):
                path = folder / f"metagenome-{share:g}-{seed}.fa"
                viral = write_contigs(path, draw_contigs(kinds, options.contigs, share, seed))
                drawn.append(figures(path, viral, options.bundle))
            for rule in drawn[0]:
                low, middle, high = np.nanquantile(
                    [one[rule] for one in drawn], (0, 0.5, 1), axis=0
                )
                cells = [
                    f"{b:.{digits}f} ({a:.{digits}f} to {c:.{digits}f})"
                    for a, b, c, digits in zip(low, middle, high, DIGITS, strict=True)
                ]
                print("| " + " | ".join([*cells[:2], rule, *cells[2:]]) + " |", flush=True)


def print_samples(options: argparse.Namespace) -> None:
    """Print the figures of samples of the groups of a cross-validation."""
    with options.held_out.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    rows = [row for row in rows if int(row["bases"]) >= CONTIGS[0] and row["kingdom"] != SHUFFLED]
    calibration = open_bundle(options.bundle).calibration
    assert calibration is not None
    fitted = read_calibration(calibration, "")
    of_pieces = [_kind(row["kingdom"], row["class"]) for row in rows]
    kinds = {kind: np.array([one == kind for one in of_pieces]) for kind in N_GROUPS}
    _, groups = np.unique([f"{row['kingdom']} {row['group']}" for row in rows], return_inverse=True)
    column = "relatives" if options.relatives else "log_odds"
    log_odds = np.array([float(row[column]) for row in rows])
    bases = np.array([int(row["bases"]) for row in rows])
    lengths = np.unique(bases)
    print("| true | estimate | preset | precision | recall | FDR stated | realised |")
    print("|---|---|---|---|---|---|---|")
    for share in options.viral:
        dice = np.random.default_rng([options.seed, round(1e4 * share)])
        found = []
        for _ in range(SAMPLES):
            viral = dice.random(options.contigs) < share
            usual = dice.random(len(viral)) < np.where(viral, PHAGE_SHARE, PROKARYOTE_SHARE)
            long = np.clip(dice.lognormal(np.log(MEDIAN), SPREAD, len(viral)), *CONTIGS)
            near = np.abs(np.log(long[:, None] / lengths)).argmin(axis=1)
            values = np.full(len(viral), np.nan)  # of a kind without a piece
            for kind, own in kinds.items():
                names = dice.permutation(np.unique(groups[own]))[: N_GROUPS[kind]]
                chosen = own & np.isin(groups, names)
                for number, length in enumerate(lengths):
                    same = bases == length
                    pieces = np.flatnonzero((chosen if chosen[same].any() else own) & same)
                    wanted = (viral == kind[0]) & (usual == kind[1]) & (near == number)
                    if not len(pieces):
                        continue
                    _, group, counts = np.unique(
                        groups[pieces], return_inverse=True, return_counts=True
                    )
                    odds = 1 / (counts[group] * len(counts))
                    values[wanted] = log_odds[dice.choice(pieces, int(wanted.sum()), p=odds)]
            known_bases = np.rint(long).astype(np.int64)
            assumed = estimate_prevalence(values, fitted.tails, known_bases).value
            probability = posterior(values, assumed)
            of_presets = []
            for name in PRESETS:
                called = probability >= fitted.presets[name].viral
                n, right = max(1, int(called.sum())), int((called & viral).sum())
                stated = (1 - probability[called]).sum() / n
                calls = right / n, right / max(1, viral.sum()), stated, 1 - right / n
                of_presets.append((assumed, *calls))
            found.append(of_presets)
        low, middle, high = np.percentile(found, TAILS, axis=0)
        for number, name in enumerate(PRESETS):
            bounds = zip(low[number], middle[number], high[number], strict=True)
            estimate, *cells = [f"{b:.3f} ({a:.3f} to {c:.3f})" for a, b, c in bounds]
            print(f"| {share:.3f} | {estimate} | {name} | {' | '.join(cells)} |", flush=True)


def _kind(kingdom: str, source: str) -> tuple[bool, bool]:
    viral = kingdom == VIRUS
    return viral, source in PHAGES if viral else kingdom in PROKARYOTES


def _kinds(genomes: Sequence[Genome]) -> Kinds:
    groups: dict[tuple[str, str], list[Genome]] = defaultdict(list)
    for genome in genomes:
        groups[genome.key].append(genome)
    kinds = defaultdict(list)
    for (kingdom, _), members in groups.items():
        kinds[_kind(kingdom, members[0].source)].append(members)
    return kinds


def draw_contigs(
    kinds: Kinds, n_contigs: int, share: float, seed: int
) -> Iterator[tuple[Genome, int, bytes]]:
    """Yield genome, first base and bases of contigs; a kind without a group gives its turn away."""
    dice = np.random.default_rng([seed, round(1e4 * share)])
    count = 0
    while count < n_contigs:
        viral = bool(dice.random() < share)
        usual = bool(dice.random() < (PHAGE_SHARE if viral else PROKARYOTE_SHARE))
        groups = kinds.get((viral, usual)) or kinds[viral, not usual]
        length = int(np.clip(dice.lognormal(np.log(MEDIAN), SPREAD), *CONTIGS))
        members = groups[int(dice.integers(len(groups)))]
        long = [(one, bases) for one in members for bases in one.sequences if len(bases) >= length]
        if not long:
            continue
        genome, sequence = long[int(dice.integers(len(long)))]
        start = int(dice.integers(len(sequence) - length + 1))
        bases = sequence[start : start + length]
        if len(bases.translate(None, b"ACGT")) <= (1 - LEAST_KNOWN) * length:
            count += 1
            yield genome, start, bases


def write_contigs(path: Path, drawn: Iterator[tuple[Genome, int, bytes]]) -> BoolArray:
    """Write contigs, whose names tell viral ones from others; return which are viral."""
    viral = []
    with path.open("wb") as stream:
        for number, (genome, start, bases) in enumerate(drawn):
            viral.append(genome.viral)
            name = f"{'virus' if genome.viral else 'other'}_{number:06d}"
            stream.write(f">{name} {genome.name} {start}\n".encode() + bases + b"\n")
    return np.array(viral)


def figures(path: Path, viral: BoolArray, bundle: str) -> dict[str, list[float]]:
    """Return for each rule: share of viral contigs, its estimate, and the figures of the calls."""
    with virnucpro.classify(path, bundle=bundle) as result:
        table, expected = result.predictions, result.expectation
        probability, fdr = (np.asarray(table[name], float) for name in ("probability", "fdr"))
        call, tier = (np.asarray(table[name], object) for name in ("call", "tier"))
    assert expected is not None
    rules = {f"fdr {FDR:g}": np.nan_to_num(fdr, nan=1) <= FDR}
    for number, name in enumerate(PRESETS):
        rules[name] = np.isin(tier, PRESETS[number:])
    assert (rules["default"] == (call == "viral")).all()
    found = {}
    for name, called in rules.items():
        n, right = int(called.sum()), int((called & viral).sum())
        precision = right / n if n else np.nan
        stated = float((1 - probability[called]).mean()) if n else np.nan
        calls = [n, precision, right / max(1, viral.sum()), stated, 1 - precision]
        found[name] = [viral.mean(), expected.prevalence.value, *calls]
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--labels", type=Path, metavar="TSV")
    given.add_argument("--held-out", type=Path, metavar="TSV")
    text = "judge by networks without the near relatives of a piece"
    parser.add_argument("--relatives", action="store_true", help=text)
    parser.add_argument("--exclude", type=Path)
    parser.add_argument("--split", default="valid", help="default: %(default)s")
    parser.add_argument("--bundle", default="mini", help="default: %(default)s")
    parser.add_argument("--contigs", type=int, default=3_000, help="default: %(default)s")
    parser.add_argument("--viral", type=float, nargs="+", default=[0.01, 0.05, 0.5], metavar="P")
    parser.add_argument("--draws", type=int, default=10, help="metagenomes; default: %(default)s")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder for the contigs")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    main()
