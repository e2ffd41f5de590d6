"""Sets of one organism: false calls at the default, and the prevalence that is assumed.

Users give isolates, transcriptomes and sets of genes. None of them is like the mixture that a
prevalence is estimated for. Each set is predicted alone, by the rule ``default``:

    python scripts/bench/oddities.py --labels OUT/labels.tsv [--split valid] [--bundle B]
        [FASTA ...]
    python scripts/bench/oddities.py --held-out OUT/training/cross_validation.tsv [--bundle B]

The first takes each genome of the table of labels that is not viral: of long records contigs of 1
to 30 kb as in metagenome.py, of transcripts, genes and others the records. Files of the command
line are further sets without viruses, except prophages of isolates. The second takes the pieces of
each group of a cross-validation, by classifiers that had not seen it; whether they are single genes
is not known there.

Prints the sets with most calls, then totals: stated and true false calls, sets with many calls,
sets with a high estimate. With labels of viruses, too, mixtures of equal parts of phages,
chromosomes and plasmids, and of viruses and transcripts.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from metagenome import CONTIGS, MEDIAN, PHAGES, PROKARYOTES, SHUFFLED, SPREAD

import virnucpro
from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.prevalence import (
    LEAST_BASES,
    Expectation,
    Prevalence,
    estimate_prevalence,
    posterior,
)
from virnucpro.lab.evaluation.input_table import read_regions
from virnucpro.lab.evaluation.labels import read_labels
from virnucpro.lab.training.draw import draw_pieces
from virnucpro.lab.training.genomes import VIRUS, Genome, read_genomes
from virnucpro.sequences.records import read_records

RECORDS, LONG, MOST = 300, 5_000, 600
"""Contigs of a genome; median of long records; records of a set of others."""
LARGE, MANY, HIGH = 200, 0.02, 0.05
"""Records of a large set, and the aims: share of them that is called, and estimate."""
MIXED, BASES = 100, 3_000
SHORTEST = 200
COLUMNS = "| set | kind | records | assumed viral (interval) | called | stated false |"


class Found(NamedTuple):
    """Answer for one set: number of records, and what is expected of the calls."""

    name: str
    kind: str
    records: int
    expected: Expectation


def main() -> None:
    """Print the figures of one bundle."""
    options = _options()
    if options.held_out:
        report([*of_cross_validation(options.held_out, options.bundle)], options.worst)
        return
    excluded = read_regions(options.exclude)
    genomes = read_genomes(read_labels(options.labels, options.split), excluded)
    model = virnucpro.load(options.bundle)
    dice = np.random.default_rng(options.seed)
    sets = [(g.name, g.kingdom, drawn(g.sequences, dice)) for g in genomes if not g.viral]
    sets += [(p.name, "file", [one.sequence for one in read_records(p)]) for p in options.files]
    report([*predicted(model, sets)], options.worst)
    for line in mixtures(model, genomes, options.seed):
        print(line, flush=True)


def drawn(sequences: Sequence[bytes], dice: np.random.Generator) -> list[bytes]:
    """Return contigs of long sequences, or the sequences themselves."""
    lengths = np.array([len(one) for one in sequences])
    if np.median(lengths) < LONG:
        kept = [one for one in sequences if len(one) >= SHORTEST]
        return [kept[row] for row in dice.permutation(len(kept))[:MOST]]
    found = []
    for _ in range(min(RECORDS, int(lengths.sum()) // MEDIAN)):
        bases = sequences[int(dice.choice(len(lengths), p=lengths / lengths.sum()))]
        length = min(int(np.clip(dice.lognormal(np.log(MEDIAN), SPREAD), *CONTIGS)), len(bases))
        start = int(dice.integers(len(bases) - length + 1))
        found.append(bases[start : start + length])
    return found


def predicted(
    model: virnucpro.Model, sets: Sequence[tuple[str, str, Sequence[bytes]]]
) -> Iterator[Found]:
    """Yield the answer for each set."""
    for name, kind, sequences in sets:
        with model.classify([(str(n), one.decode()) for n, one in enumerate(sequences)]) as result:
            if result.expectation:
                yield Found(name, kind, len(sequences), result.expectation)


def of_cross_validation(path: Path, bundle: str) -> Iterator[Found]:
    """Yield the answer for the pieces of each group that is not viral."""
    calibration = read_calibration(open_bundle(bundle).calibration, "")
    rows: Mapping[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            if row["kingdom"] not in (VIRUS, SHUFFLED) and int(row["bases"]) >= LEAST_BASES:
                rows[row["kingdom"], row["group"]].append(
                    (int(row["bases"]), float(row["log_odds"]))
                )
    for (kingdom, group), pieces in rows.items():
        length, log_odds = map(np.array, zip(*pieces, strict=True))
        assumed = estimate_prevalence(log_odds, calibration.tails, length)
        probability = posterior(log_odds, assumed.value)
        called = probability[probability >= calibration.presets["default"].viral]
        expected = Expectation(assumed, len(called), float((1 - called).sum()))
        yield Found(group, kingdom, len(pieces), expected)


def report(found: Sequence[Found], worst: int) -> None:
    """Print the sets with most calls, and the totals."""
    print(COLUMNS + "\n|---|---|---|---|---|---|")
    for one in sorted(found, key=lambda one: -one.expected.called / one.records)[:worst]:
        assumed = one.expected.prevalence
        print(
            f"| {one.name} | {one.kind} | {one.records:,} | {_interval(assumed)} | "
            f"{one.expected.called:,} | {one.expected.false:.1f} |"
        )
    for name, sets in (
        (f"of at least {LARGE} records", [one for one in found if one.records >= LARGE]),
        ("smaller", [one for one in found if one.records < LARGE]),
    ):
        called = sum(one.expected.called for one in sets)
        stated = sum(one.expected.false for one in sets)
        many = sum(one.expected.called > MANY * one.records for one in sets)
        high = sum(one.expected.prevalence.value > HIGH for one in sets)
        print(
            f"sets {name}: {len(sets):,} of {sum(one.records for one in sets):,} records; "
            f"{called:,} called, stated false {stated:.0f}; {many} with more than {MANY:.0%} "
            f"called, {high} with an estimate above {HIGH:.0%}"
        )


def mixtures(model: virnucpro.Model, genomes: Sequence[Genome], seed: int) -> Iterator[str]:
    """Yield stated and realised false calls of mixtures of equal parts."""
    yield "\n| mixture | assumed viral (interval) | called of each | false stated | realised |"
    yield "|---|---|---|---|---|"
    kinds = {
        "phages": [one for one in genomes if one.viral and one.source in PHAGES],
        "viruses": [one for one in genomes if one.viral and one.source not in PHAGES],
        "chromosomes": [one for one in genomes if one.kingdom in PROKARYOTES],
        "plasmids": [one for one in genomes if one.kingdom == "plasmid"],
        "transcripts": [one for one in genomes if one.kingdom == "transcript"],
    }
    dice = np.random.default_rng(seed)
    for names in (("phages", "chromosomes", "plasmids"), ("viruses", "transcripts")):
        parts = [
            draw_pieces(kinds[name], BASES, MIXED, MIXED, seed, of_bacteria=MIXED).bases
            for name in names
        ]
        parts = [[own[n] for n in dice.permutation(len(own))[:MIXED]] for own in parts]
        flat = [one for own in parts for one in own]
        if not all(parts):
            continue
        with model.classify([(str(n), one.decode()) for n, one in enumerate(flat)]) as result:
            called = np.asarray(result.predictions["call"], object) == "viral"
            expected = result.expectation
        of_each = [int(one.sum()) for one in np.split(called, np.cumsum([*map(len, parts)])[:-1])]
        n = max(1, int(called.sum()))
        yield (
            f"| {', '.join(names)} | {_interval(expected.prevalence)} | "
            f"{', '.join(map(str, of_each))} | {expected.false / n:.2f} | "
            f"{sum(of_each[1:]) / n:.2f} |"
        )


def _interval(assumed: Prevalence) -> str:
    doubt = ", doubtful" if assumed.doubtful else ""
    return f"{assumed.value:.3f} ({assumed.low:.3f} to {assumed.high:.3f}{doubt})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--labels", type=Path, metavar="TSV")
    given.add_argument("--held-out", type=Path, metavar="TSV")
    parser.add_argument("--exclude", type=Path)
    parser.add_argument("--split", default="valid", help="default: %(default)s")
    parser.add_argument("--bundle", default="mini", help="default: %(default)s")
    parser.add_argument("--worst", type=int, default=30, help="sets to show; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("files", type=Path, nargs="*", metavar="FASTA")
    return parser.parse_args()


if __name__ == "__main__":
    main()
