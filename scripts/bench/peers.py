"""Accuracy and speed of a bundle and of Jaeger on the same pieces: phages against prokaryotes.

    python scripts/bench/peers.py --labels OUT/labels.tsv --exclude OUT/exclude.bed
        [--jaeger DIR] [--bundle mini] [--split valid]

Draws pieces of 2,048 bases from the genomes of one split, and prints for each tool: AUROC, recall
where 1 % of the prokaryotes are called, the share of phages and of prokaryotes that it calls, wall
time, and megabases per CPU second of the whole command. Genera and virus groups count equally.

With ``--jaeger`` the peer is Jaeger with its published model (PyPI: jaeger-bio). It is installed in
the environment DIR if that does not exist (about 2 GB, many minutes, needs a network). Its score is
the log odds of the class phage in the softmax of its four class scores; its calls are its own table
of phages.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import commands
import numpy as np
from accuracy import OF_BACTERIA, BoolArray, FloatArray, recall_at_few

from virnucpro.lab.evaluation.input_table import read_regions
from virnucpro.lab.evaluation.labels import read_labels
from virnucpro.lab.metrics import auroc
from virnucpro.lab.training.calibration import metagenome_weights
from virnucpro.lab.training.draw import Drawn, draw_pieces
from virnucpro.lab.training.genomes import read_genomes
from virnucpro.lab.training.weights import PROKARYOTES, is_phage

BASES = 2_048
REQUIREMENT = "jaeger-bio[cpu]==1.26.5"
PHAGE, CLASSES = "phage", ("bacteria", "phage", "eukarya", "archaea")
LOWEST = -1e3
"""Log odds of a piece without an answer."""


class Answers(NamedTuple):
    """Log odds and calls of all pieces, ``(n,)``."""

    log_odds: FloatArray
    called: BoolArray


def main() -> None:
    """Print the table."""
    options = _options()
    excluded = read_regions(options.exclude)
    genomes = read_genomes(read_labels(options.labels, options.split), excluded)
    drawn = draw_pieces(genomes, BASES, *options.pieces, options.seed, of_bacteria=options.bacteria)
    kinds = zip(drawn.groups, drawn.sources, strict=True)
    drawn = drawn.select(np.array([is_phage(s) or g[0] in PROKARYOTES for g, s in kinds]))
    print("| tool | pieces | AUROC | recall at 1 % | phages, prokaryotes called | s | Mb/CPU s |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pieces = folder / "pieces.fa"
        with pieces.open("wb") as stream:
            for number, bases in enumerate(drawn.bases):
                stream.write(b">%d\n%s\n" % (number, bases))
        command = [sys.executable, "-m", "virnucpro", "predict", pieces, "-o", folder / "ours"]
        command += ["--bundle", options.bundle, "--devices", "cpu:1", "--threads", 1, "-q"]
        spent = commands.run(command)
        print(_row(options.bundle, _ours(folder / "ours", len(drawn.bases)), drawn, spent))
        if options.jaeger:
            command = [_installed(options.jaeger), "predict", "-i", pieces, "-o", folder / "peer"]
            command += ["-m", "default", "--fsize", BASES, "--stride", BASES, "--cpu"]
            spent = commands.run([*command, "--workers", 1])
            print(_row(REQUIREMENT, _jaeger(folder / "peer", len(drawn.bases)), drawn, spent))


def _row(name: str, answers: Answers, drawn: Drawn, spent: commands.Spent) -> str:
    viral, weights = drawn.viral, metagenome_weights(drawn.groups)
    recall = recall_at_few(answers.log_odds, viral, ~viral, weights)
    called = [
        weights[side] @ answers.called[side] / weights[side].sum() for side in (viral, ~viral)
    ]
    megabases = sum(map(len, drawn.bases)) / 1e6
    return (
        f"| {name} | {int(viral.sum()):,} + {int((~viral).sum()):,} | "
        f"{auroc(answers.log_odds, viral, weights):.3f} | {recall:.2f} | "
        f"{called[0]:.1%}, {called[1]:.1%} | {spent.wall:.0f} | {megabases / spent.cpu:.3f} |"
    )


def _ours(run: Path, n_pieces: int) -> Answers:
    answers = _none(n_pieces)
    for row in _rows(run / "predictions.tsv"):
        if row["calibrated_probability"] != "NA":
            share = np.clip(float(row["calibrated_probability"]), 1e-9, 1 - 1e-9)
            answers.log_odds[int(row["seq_name"])] = np.log(share) - np.log1p(-share)
        answers.called[int(row["seq_name"])] = row["call"] == "viral"
    return answers


def _jaeger(folder: Path, n_pieces: int) -> Answers:
    answers = _none(n_pieces)
    (table,) = folder.rglob("pieces_jaeger.tsv")
    for row in _rows(table):
        scores = {name: float(row[f"{name}_score"]) for name in CLASSES}
        others = [score for name, score in scores.items() if name != PHAGE]
        answers.log_odds[int(row["contig_id"])] = scores[PHAGE] - np.logaddexp.reduce(others)
    for row in _rows(table.with_name("pieces_phages_jaeger.tsv")):
        answers.called[int(row["contig_id"])] = True
    return answers


def _none(n_pieces: int) -> Answers:
    return Answers(np.full(n_pieces, LOWEST), np.zeros(n_pieces, np.bool_))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as stream:
        yield from csv.DictReader(stream, delimiter="\t")


def _installed(folder: Path) -> Path:
    """Return the program `jaeger` of an environment, which is made if need be."""
    program = folder / "bin/jaeger"
    if not program.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin/pip", "install", "-q", REQUIREMENT], check=True)
    return program


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--exclude", type=Path)
    parser.add_argument("--split", default="valid", help="default: %(default)s")
    parser.add_argument("--bundle", default="mini", help="default: %(default)s")
    parser.add_argument("--jaeger", type=Path, metavar="DIR", help="environment of the peer")
    text = "per virus group, and per kingdom of others; default: %(default)s"
    parser.add_argument("--pieces", type=int, nargs=2, default=(30, 300), help=text)
    parser.add_argument("--bacteria", type=int, default=OF_BACTERIA, help="pieces of bacteria")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
