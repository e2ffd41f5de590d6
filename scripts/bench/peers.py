"""Accuracy and speed of mini, geNomad's network and Jaeger on the same pieces of genomes.

    python scripts/bench/peers.py --out OUT [--lengths 1250 3000 10000] [--pieces N]
        [--genomad DIR] [--jaeger DIR]

OUT is the folder of ``scripts/train_mini.py``. The pieces are those of the cross-validations of the
training, and the scores of mini are those of networks that had not seen the group of a piece, or
its near relatives. The others may have seen these genomes. For each length and tool: AUROC and
recall where 1 % of the others are called, for phages against prokaryotes and for all viruses
against all others; the shares of phages, other viruses, and others that the tool calls; and
megabases per CPU second of the whole command on one core. Weights are those of a metagenome. Random
sequences are left out.

The environments DIR are made if they do not exist (some 2 GB each, many minutes, need a network):
geNomad's network (``genomad nn-classification``, without a database) is judged by the log odds of
virus_score, and calls where this score is the highest of three. Jaeger is judged by the log odds of
its class phage, among phages and prokaryotes only, and calls what is in its own table of phages.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import commands
import numpy as np
from accuracy import SHUFFLED, BoolArray, FloatArray, recall_at_few

from virnucpro.classifier.prevalence import posterior
from virnucpro.lab.evaluation.input_table import read_regions
from virnucpro.lab.evaluation.labels import read_labels
from virnucpro.lab.metrics import auroc
from virnucpro.lab.training.calibration import metagenome_weights
from virnucpro.lab.training.draw import Crops, Drawn, PieceKind
from virnucpro.lab.training.genomes import read_genomes
from virnucpro.lab.training.weights import PROKARYOTES, is_phage
from virnucpro.lab.training.windows_file import draw_training_windows

JAEGER, GENOMAD = ["jaeger-bio[cpu]==1.26.5"], ["genomad==1.13.0"]
PHAGE, CLASSES = "phage", ("bacteria", "phage", "eukarya", "archaea")
CALLED_AT, LOWEST = 0.05, -1e3
"""Share of viruses at which mini calls; log odds of a piece without an answer."""
NO_CROPS = Crops((300, 1250), share=0)
JAEGER_BASES = 2048
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")
HEADER = (
    "| bases | tool | phages: AUROC, recall at 1 % | all viruses | called: phages, other viruses, "
    "others | Mb/CPU s |\n|---|---|---|---|---|---|"
)


class Answers(NamedTuple):
    """Log odds and calls of all pieces, ``(n,)``."""

    log_odds: FloatArray
    called: BoolArray


def main() -> None:
    """Print the table."""
    options = _options()
    excluded = read_regions(options.out / "exclude.bed")
    genomes = read_genomes(read_labels(options.out / "labels.tsv", "train"), excluded)
    held_out = list(_rows(options.out / "training/cross_validation.tsv"))
    tiled = draw_training_windows(genomes, options.seed, NO_CROPS).tiled
    print(HEADER)
    for bases in options.lengths:
        pieces = tiled[PieceKind(bases)].pieces
        _compare(options, bases, pieces, [row for row in held_out if int(row["bases"]) == bases])


def _compare(
    options: argparse.Namespace, bases: int, drawn: Drawn, rows: list[dict[str, str]]
) -> None:
    """Print the rows of pieces of one length; `rows` are those of the cross-validation."""
    if [row["group"] for row in rows] != [group for _, group in drawn.groups]:
        raise SystemExit(
            f"{options.out}: the pieces of {bases} bases are not those of the training"
        )
    known = np.array([kingdom != SHUFFLED for kingdom, _ in drawn.groups])
    chosen = np.random.default_rng(options.seed).permutation(np.flatnonzero(known))
    chosen = np.sort(chosen[: options.pieces])
    drawn = drawn.select(np.isin(np.arange(len(known)), chosen))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pieces = folder / "pieces.fa"
        with pieces.open("wb") as stream:
            for number, sequence in enumerate(drawn.bases):
                stream.write(b">%d\n%s\n" % (number, sequence))
        command = [sys.executable, "-m", "virnucpro", "predict", pieces, "-o", folder / "ours"]
        spent = commands.run([*command, "--devices", "cpu:1", "--threads", 1, "-q"])
        for column, name in (("log_odds", "unseen groups"), ("relatives", "unseen species")):
            log_odds = np.array([float(rows[row][column]) for row in chosen])
            called = posterior(log_odds, CALLED_AT) >= options.threshold
            print(_row(f"mini, {name}", Answers(log_odds, called), drawn, spent), flush=True)
        if options.genomad:
            program = _installed(options.genomad, "genomad", GENOMAD)
            command = [program, "nn-classification", pieces, folder / "genomad", "--threads", 1]
            spent = commands.run(command, **ONE_THREAD)
            answers = _genomad(folder / "genomad", len(drawn.bases))
            print(_row("geNomad's network", answers, drawn, spent), flush=True)
        if options.jaeger:
            program = _installed(options.jaeger, "jaeger", JAEGER)
            size = min(bases, JAEGER_BASES)
            command = [program, "predict", "-i", pieces, "-o", folder / "jaeger", "-m", "default"]
            command += ["--fsize", size, "--stride", size, "--cpu", "--workers", 1]
            spent = commands.run(command)
            print(_row("Jaeger", _jaeger(folder / "jaeger", len(drawn.bases)), drawn, spent))


def _row(name: str, answers: Answers, drawn: Drawn, spent: commands.Spent) -> str:
    groups, viral = drawn.groups, drawn.viral
    phage = np.array([*map(is_phage, drawn.sources)], np.bool_) & viral
    prokaryote = np.array([kingdom in PROKARYOTES for kingdom, _ in groups])
    cells = [name]
    for chosen in (phage | prokaryote, viral | ~viral):
        weights = metagenome_weights([g for g, use in zip(groups, chosen, strict=True) if use])
        odds, side = answers.log_odds[chosen], viral[chosen]
        few = recall_at_few(odds, side, ~side, weights)
        cells.append(f"{auroc(odds, side, weights):.3f}, {few:.2f}")
    weights = metagenome_weights(groups)
    sides = phage, viral & ~phage, ~viral
    shares = [weights[side] @ answers.called[side] / weights[side].sum() for side in sides]
    cells.append(", ".join(f"{share:.1%}" for share in shares))
    cells.append(f"{sum(map(len, drawn.bases)) / 1e6 / spent.cpu:.2f}")
    return f"| {len(drawn.bases[0]):,} | {' | '.join(cells)} |"


def _genomad(folder: Path, n_pieces: int) -> Answers:
    answers = _none(n_pieces)
    (table,) = folder.rglob("pieces_nn_classification.tsv")
    for row in _rows(table):
        scores = {name: float(row[f"{name}_score"]) for name in ("chromosome", "plasmid", "virus")}
        share = np.clip(scores["virus"], 1e-9, 1 - 1e-9)
        answers.log_odds[int(row["seq_name"])] = np.log(share) - np.log1p(-share)
        answers.called[int(row["seq_name"])] = max(scores, key=lambda name: scores[name]) == "virus"
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


def _installed(folder: Path, name: str, requirements: list[str]) -> Path:
    """Return a program of an environment, which is made if need be."""
    program = folder / "bin" / name
    if not program.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin/pip", "install", "-q", *requirements], check=True)
    return program


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of scripts/train_mini.py")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1250, 3000, 10_000])
    text = "at most, of each length, at random; default: %(default)s"
    parser.add_argument("--pieces", type=int, default=3000, help=text)
    parser.add_argument("--genomad", type=Path, metavar="DIR", help="environment of geNomad")
    parser.add_argument("--jaeger", type=Path, metavar="DIR", help="environment of Jaeger")
    parser.add_argument("--seed", type=int, default=1, help="that of the training")
    options = parser.parse_args()
    calibration = json.loads((options.out / "training/bundle/bundle.json").read_text())
    options.threshold = calibration["calibration"]["presets"]["default"]["viral"]
    return options


if __name__ == "__main__":
    main()
