"""Accuracy of a bundle by length of the records: of groups left out in training, or of genomes.

    python scripts/bench/accuracy.py --held-out OUT/training/cross_validation.tsv [--relatives]
    python scripts/bench/accuracy.py --labels OUT/labels.tsv --exclude OUT/exclude.bed [--bundle B]
        [--split valid] [--viral-split known [--families]] [--lengths 100 150 ...]
        [--errors .01 .02 .05]

The first reads what a training wrote about the pieces of its cross-validations: of groups that
were left out, or with ``--relatives`` of species that were left out. The second draws pieces of the
genomes of one split, and classifies them with ``virnucpro.classify``: for a bundle that was not
trained on them. Both print for each length: AUROC in a metagenome, and with its 95 % interval by
bootstrap over groups if kingdoms count equally; recall where 1 % of the prokaryotes and where 1 %
of all others are called; precision and recall of the default preset in a metagenome of 5 % viruses.
Virus groups count equally. In a metagenome 85 % of the others are prokaryotes, whose genera count
equally, also for the recall at 1 % of them; at 1 % of all others, kingdoms count equally. Random
sequences of a training are left out.

The first also prints the stated and the realised share of false calls at this prevalence, and which
prevalence is estimated where 1, 5 and 50 % of the pieces are viral. The second also prints, at 5 %:
phages against prokaryotes in pieces of 2,048 bases; the groups of others of which most, and of
viruses of which fewest 10-kb pieces are called; the share of random sequences that is called; and
with ``--errors`` the same pieces with errors like those of Nanopore reads, and with a gap of 100 N.
"""

import argparse
import csv
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import virnucpro
from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.prevalence import estimate_prevalence, posterior
from virnucpro.errors import UsageError
from virnucpro.lab.evaluation.input_table import read_regions
from virnucpro.lab.evaluation.labels import read_labels
from virnucpro.lab.metrics import auroc
from virnucpro.lab.training.calibration import metagenome_weights
from virnucpro.lab.training.draw import Drawn, draw_pieces, with_errors
from virnucpro.lab.training.genomes import VIRUS, Genome, Group, read_genomes
from virnucpro.lab.training.weights import (
    PROKARYOTES,
    equal_weights,
    is_phage,
    resampled_weights,
)
from virnucpro.sequences.translation import reverse_complement

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LENGTHS = (300, 500, 1_000, 2_048, 3_000, 10_000)
NUMBERS, OF_LONG, LONG = (60, 600), (30, 300), 2_000
"""Pieces per virus group, and per kingdom of others; the same from `LONG` bases on."""
OF_BACTERIA = 1_500
"""Pieces of bacteria: about 30 of each genus. They have most of the weight of a metagenome."""
LEAST_LENGTH = 60
RESAMPLES, TAILS = 500, (2.5, 97.5)
FALSE, PREVALENCE = 0.01, 0.05
OF_PHAGES, BY_GROUP = 2_048, 10_000
"""Bases of the pieces for the two further tables."""
SHARES, SAMPLE = (0.01, 0.05, 0.5), 100_000
LEAST, WORST, MANY = 5, 10, 0.1
WITH_ERRORS, RANDOM = (3_000, 5_000, 10_000, 20_000), (1_000, 5_000)
"""Bases of the pieces with errors, and of random sequences."""
GAP = 100
PAIRS = ((150, 400), (250, 500))
"""Bases of a mate, and of the fragment of a pair."""
N_RANDOM, GC = 200, (0.35, 0.5, 0.65)
HEADER = (
    "| bases | pieces | AUROC | of equal kingdoms | recall at 1 % of prokaryotes | of all | "
    "precision, recall |\n|---|---|---|---|---|---|---|"
)
HEADER_OF_ERRORS = (
    "\n| errors | bases | AUROC | recall at 1 % | recall | of that without | others called |\n"
    "|---|---|---|---|---|---|---|"
)
INSTEAD = "Use --held-out with the cross_validation.tsv of the bundle's training."
SHUFFLED = "shuffled"
"""Kingdom of random sequences in the training of mini."""
Judge = Callable[[Sequence[bytes]], FloatArray]
"""Return the log odds of sequences at a prevalence of one half."""


def main() -> None:
    """Print the figures of one bundle."""
    options = _options()
    if options.held_out:
        print_held_out(options)
    else:
        print_genomes(options)


def print_held_out(options: argparse.Namespace) -> None:
    """Print the figures of the pieces of a cross-validation."""
    column = "relatives" if options.relatives else "log_odds"
    pieces = list(_read(options.held_out, column))
    threshold = _threshold(options.bundle) if options.threshold is None else options.threshold
    print(HEADER)
    for length, groups, log_odds in pieces:
        print(row(length, groups, log_odds, threshold, options.seed))
    print("\n| bases | calls at 5 %: false stated, realised | prevalence found at 1, 5, 50 % |")
    print("|---|---|---|")
    for length, groups, log_odds in pieces:
        print(honesty_row(length, groups, log_odds, threshold, options.seed))


def print_genomes(options: argparse.Namespace) -> None:
    """Print the figures of pieces of genomes, classified here."""
    threshold = _threshold(options.bundle)
    judge = partial(_classified, options.bundle)
    excluded = read_regions(options.exclude)
    try:
        sources = read_labels(options.labels, options.split)
    except UsageError as error:
        raise SystemExit(f"{error}. {INSTEAD}") from error
    if options.viral_split:
        related = read_labels(options.labels, options.viral_split, one_class=True)
        wanted = _is_family if options.families else bool
        sources = [source for source in sources if not source.viral]
        sources += [source for source in related if source.viral and wanted(source.group)]
    genomes = read_genomes(sources, excluded)
    require_judges(options, genomes)
    last: list[str] = []
    clean: dict[int, FloatArray] = {}
    print(HEADER)
    for length in options.lengths:
        drawn = _draw(genomes, length, options.seed)
        log_odds = clean[length] = judge(drawn.bases)
        print(row(length, drawn.groups, log_odds, threshold, options.seed), flush=True)
        if length == OF_PHAGES:
            last += ["", *phages(drawn, log_odds, threshold, options.seed)]
        if length == BY_GROUP:
            last += ["", *extremes(drawn.groups, log_odds, threshold)]
    print("\n".join(last))
    print("\n".join(random_sequences(judge, threshold, options.seed)), flush=True)
    print("\n".join(pairs(genomes, options.bundle, options.seed)), flush=True)
    if options.errors:
        print(HEADER_OF_ERRORS)
    for length in WITH_ERRORS if options.errors else ():
        drawn = _draw(genomes, length, options.seed)
        without = clean[length] if length in clean else judge(drawn.bases)
        found = {"none": without, "100 N": judge([*map(with_gap, drawn.bases)])}
        for rate in options.errors:
            dice = np.random.default_rng(options.seed)
            found[f"{rate:.1%}"] = judge([with_errors(one, rate, dice) for one in drawn.bases])
        for name, values in found.items():
            print(error_row(name, length, drawn.groups, values, without, threshold), flush=True)


def require_judges(options: argparse.Namespace, genomes: Sequence[Genome]) -> None:
    """Say so if the bundle was trained on genomes that are to judge it."""
    table = open_bundle(options.bundle).path / "training_set.tsv"
    names = {line.partition("\t")[0] for line in table.open()} if table.exists() else set()
    if known := sum(genome.name in names for genome in genomes):
        print(
            f"{options.bundle} was trained on {known} of these {len(genomes)} genomes: the figures "
            f"do not judge it. {INSTEAD}",
            file=sys.stderr,
        )


def with_gap(bases: bytes) -> bytes:
    """Return the bases with a gap in their middle, as a scaffolder writes it."""
    middle = len(bases) // 2
    return bases[: middle - GAP // 2] + b"N" * GAP + bases[middle + GAP // 2 :]


def honesty_row(
    length: int, groups: Sequence[Group], log_odds: FloatArray, threshold: float, seed: int
) -> str:
    """Return stated and realised false calls, and the prevalence found in samples of pieces."""
    viral = np.array([kingdom == VIRUS for kingdom, _ in groups])
    weights = metagenome_weights(groups)
    shares = np.where(viral, PREVALENCE, 1 - PREVALENCE) * weights
    probability = posterior(log_odds, PREVALENCE)
    called = probability >= threshold
    total = shares[called].sum() or np.nan
    stated = shares[called] @ (1 - probability[called]) / total
    realised = shares[called & ~viral].sum() / total
    found = []
    for share in SHARES:
        dice = np.random.default_rng(seed)
        odds = np.where(viral, share, 1 - share) * weights
        sample = dice.choice(len(groups), SAMPLE, p=odds / odds.sum())
        found.append(f"{estimate_prevalence(log_odds[sample]).value:.1%}")
    return f"| {length:,} | {stated:.0%}, {realised:.0%} | {', '.join(found)} |"


def phages(drawn: Drawn, log_odds: FloatArray, threshold: float, seed: int) -> Iterator[str]:
    """Yield the figures of phages against prokaryotes."""
    phage = np.array([is_phage(one) for one in drawn.sources]) & drawn.viral
    cells = np.array([kingdom in PROKARYOTES for kingdom, _ in drawn.groups])
    chosen = phage | cells
    if phage.any() and cells.any():
        groups = list(compress(drawn.groups, chosen))
        yield "phages against prokaryotes:"
        yield HEADER
        yield row(OF_PHAGES, groups, log_odds[chosen], threshold, seed)
        weights, values, viral = metagenome_weights(groups), log_odds[chosen], drawn.viral[chosen]
        for prevalence in (PREVALENCE, 0.5):
            called = posterior(values, prevalence) >= threshold
            shares = [weights[side] @ called[side] for side in (viral, ~viral)]
            yield (
                f"called at a prevalence of {prevalence:.0%}: {shares[0]:.1%} of the phages, "
                f"{shares[1]:.1%} of the prokaryotes"
            )


def random_sequences(judge: Judge, threshold: float, seed: int) -> Iterator[str]:
    """Yield which share of random sequences is called, by length and GC content.

    At three prevalences: `PREVALENCE`, one half, and that which is estimated from them alone.
    """
    dice = np.random.default_rng(seed)
    yield "\n| random bases | " + " | ".join(f"GC {share:.0%}" for share in GC) + " |"
    yield "|---" * (1 + len(GC)) + "|"
    for length in RANDOM:
        cells = []
        for share in GC:
            odds = ((1 - share) / 2, share / 2, share / 2, (1 - share) / 2)
            codes = dice.choice(np.frombuffer(b"ACGT", np.uint8), (N_RANDOM, length), p=odds)
            log_odds = judge([one.tobytes() for one in codes])
            own = estimate_prevalence(log_odds).value
            shares = [
                f"{(posterior(log_odds, one) >= threshold).mean():.1%} at {one:.1%}"
                for one in (PREVALENCE, 0.5, own)
            ]
            cells.append(", ".join(shares))
        yield f"| {length:,} | " + " | ".join(cells) + " |"


def pairs(genomes: Sequence[Genome], bundle: str, seed: int) -> Iterator[str]:
    """Yield the AUROC of first mates, and of pairs, of fragments."""
    yield "\n| reads | AUROC of one | AUROC of the pair |\n|---|---|---|"
    for mate, fragment in PAIRS:
        drawn = _draw(genomes, fragment, seed)
        mates = [(one[:mate], reverse_complement(one)[:mate]) for one in drawn.bases]
        found = (
            _classified(bundle, [first for first, _ in mates]),
            _classified(bundle, [read for pair in mates for read in pair], mates=2),
        )
        weights = metagenome_weights(drawn.groups)
        one, both = (auroc(log_odds, drawn.viral, weights) for log_odds in found)
        yield f"| 2 x {mate} | {one:.3f} | {both:.3f} |"


def error_row(
    name: str,
    length: int,
    groups: Sequence[Group],
    log_odds: FloatArray,
    clean: FloatArray,
    threshold: float,
) -> str:
    """Return the figures of pieces with errors, beside those without; 1 % is of the others."""
    viral = np.array([kingdom == VIRUS for kingdom, _ in groups])
    weights = metagenome_weights(groups)
    recall, without, wrong = (
        weights[side] @ (posterior(values, PREVALENCE) >= threshold)[side] / weights[side].sum()
        for side, values in ((viral, log_odds), (viral, clean), (~viral, log_odds))
    )
    kept = recall / without if without else np.nan
    few = recall_at_few(log_odds, viral, ~viral, weights)
    return (
        f"| {name} | {length:,} | {auroc(log_odds, viral, weights):.3f} | {few:.2f} | "
        f"{recall:.2f} | {kept:.0%} | {wrong:.1%} |"
    )


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
    of_metagenome = metagenome_weights(groups)
    recalls = [
        recall_at_few(log_odds, viral, others, of_others)
        for others, of_others in ((cells, of_metagenome), (~viral, weights))
    ]
    called = posterior(log_odds, PREVALENCE) >= threshold
    right, wrong = (
        share * (of_metagenome[side] @ called[side]) / of_metagenome[side].sum()
        for share, side in ((PREVALENCE, viral), (1 - PREVALENCE, ~viral))
    )
    precision = right / (right + wrong) if right + wrong else np.nan
    return (
        f"| {length:,} | {len(groups):,} | {auroc(log_odds, viral, of_metagenome):.3f} | "
        f"{auroc(log_odds, viral, weights):.3f} ({low:.3f} to {high:.3f}) | {recalls[0]:.2f} | "
        f"{recalls[1]:.2f} | {precision:.2f}, {right / PREVALENCE:.2f} |"
    )


def extremes(groups: Sequence[Group], log_odds: FloatArray, threshold: float) -> Iterator[str]:
    """Yield the groups of others with most, and of viruses with fewest called pieces."""
    calls = defaultdict(list)
    for group, called in zip(groups, posterior(log_odds, PREVALENCE) >= threshold, strict=True):
        calls[group].append(called)
    shares = {group: (np.mean(one), len(one)) for group, one in calls.items() if len(one) >= LEAST}
    for title, viral in (("others", False), ("viruses", True)):
        own = [one for one in shares.items() if (one[0][0] == VIRUS) == viral]
        own.sort(key=lambda one: one[1][0], reverse=not viral)
        wrong = sum(share > MANY for _, (share, _) in own)
        of_all = "" if viral else f"; {wrong} of {len(own)} groups with more than {MANY:.0%}"
        yield f"{BY_GROUP:,} bases, {'fewest' if viral else 'most'} called of {title}{of_all}:"
        for (kingdom, name), (share, n) in own[: WORST if viral else max(WORST, wrong)]:
            yield f"| {name} | {kingdom} | {share:.0%} of {n} |"


def recall_at_few(
    log_odds: FloatArray, viral: BoolArray, others: BoolArray, weights: FloatArray
) -> float:
    """Return the recall at the threshold above which lies a share of `FALSE` of the others."""
    values, shares = log_odds[others], weights[others]
    order = np.argsort(-values, kind="stable")
    place = np.searchsorted(np.cumsum(shares[order]) / shares.sum(), FALSE)
    limit = values[order][min(place, len(order) - 1)]
    return float(weights[viral] @ (log_odds[viral] > limit) / weights[viral].sum())


def _read(path: Path, column: str) -> Iterator[tuple[int, list[Group], FloatArray]]:
    """Yield length, groups, and log odds at a prevalence of one half."""
    rows = defaultdict(list)
    with path.open(newline="") as stream:
        for piece in csv.DictReader(stream, delimiter="\t"):
            group = piece["kingdom"], piece["group"]
            if group[0] != SHUFFLED:
                rows[int(piece["bases"])].append((group, float(piece[column])))
    for length, found in rows.items():
        groups, log_odds = zip(*found, strict=True)
        yield length, list(groups), np.array(log_odds)


def _threshold(bundle: str) -> float:
    return read_calibration(open_bundle(bundle).calibration, "").presets["default"].viral


def _draw(genomes: Sequence[Genome], length: int, seed: int) -> Drawn:
    numbers = OF_LONG if length > LONG else NUMBERS
    return draw_pieces(genomes, length, *numbers, seed, of_bacteria=OF_BACTERIA)


def _classified(bundle: str, bases: Sequence[bytes], mates: int = 1) -> FloatArray:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "pieces.fa"
        with path.open("wb") as stream:
            for number, one in enumerate(bases):
                stream.write(b">%d\n%s\n" % (number // mates, one))
        with virnucpro.classify(
            path, bundle=bundle, min_length=LEAST_LENGTH, interleaved=mates == 2
        ) as result:
            values = np.asarray(result.predictions["calibrated_probability"], np.float64)
    shares = np.clip(np.nan_to_num(values), 1e-6, 1 - 1e-6)  # a record without a score: 0
    odds: FloatArray = np.log(shares) - np.log1p(-shares)
    return odds


def _is_family(group: str | None) -> bool:
    return str(group).endswith("viridae")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--held-out", type=Path, metavar="TSV")
    given.add_argument("--labels", type=Path, metavar="TSV")
    text = "with --held-out: judge species that were left out instead of groups"
    parser.add_argument("--relatives", action="store_true", help=text)
    parser.add_argument("--exclude", type=Path)
    parser.add_argument("--split", default="valid", help="default: %(default)s")
    parser.add_argument("--bundle", default="mini", help="default: %(default)s")
    text = "split of the viruses, such as known (of groups that were trained on); default: --split"
    parser.add_argument("--viral-split", metavar="NAME", help=text)
    text = "with --viral-split: leave out groups of phages of one host, which have no family"
    parser.add_argument("--families", action="store_true", help=text)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="BASES")
    text = "rates of errors of reads, such as .05"
    parser.add_argument("--errors", type=float, nargs="+", metavar="RATE", help=text)
    text = "of viral calls, with --held-out; default: that of the bundle's preset default"
    parser.add_argument("--threshold", type=float, metavar="P", help=text)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
