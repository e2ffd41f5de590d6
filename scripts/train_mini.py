"""Train the embedded bundle `mini` and write it, with its card, into a folder.

One seed determines windows, vocabulary, initial values and order. The same command on the same
genomes, with the same versions, threads and kind of processor, gives the same bundle.

    python scripts/train_mini.py --genomes ../shared/genomes --out virnucpro/bundles/mini
"""

import argparse
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from mini.card import write_card
from mini.evaluation import Quality, consensus, rate_windows
from mini.genomes import HELD_OUT_FAMILY, Genome, Pool, draw_crops, draw_tiles, read_genomes
from mini.items import GENETIC_CODE, cut_items
from mini.kmers import fit_and_score
from mini.model import Mini, Sizes, item_scores, item_vectors, save_files
from mini.records import choose_thresholds, cut_fragments, rate_records, whole_genomes
from mini.training import Recipe, train, train_head
from mini.vocabulary import learn_vocabulary
from numpy.typing import NDArray

from virnucpro import __version__
from virnucpro.bundles.bundle import write_manifest
from virnucpro.bundles.manifest import Manifest
from virnucpro.encoders.dnabert_s.encoder import BpeTokeniser

LENGTHS = (300, 500)
"""Window lengths in bases, for training and evaluation."""

DEFAULT_WINDOW = 500
KMER, KMER_PENALTY = 6, 1.0
"""The best baseline on valid windows among 4- to 6-mers and penalties 0.01 to 1."""

VOCABULARY_WINDOWS = 6000
TILES_A_GROUP = 200
FRAGMENT, FRAGMENTS_A_GROUP = 3000, 20
WHOLE = 100_000
"""Maximum bases of a sequence in the evaluation of whole genomes."""

DEMONSTRATION = "NC_001422"
"""Accession of phiX174, a record of the demonstration."""

DESCRIPTION = "a small DNABERT-S and a small ESM-2 with their head, trained on public genomes"


def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate and write the bundle."""
    arguments = _arguments(argv)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    genomes = read_genomes(arguments.genomes)
    training = [g for g in genomes if g.split == "train" and g.family != HELD_OUT_FAMILY]
    valid = [g for g in genomes if g.split == "valid"]
    held_out = [g for g in genomes if g.family == HELD_OUT_FAMILY]
    pools = [draw_crops(training, n, arguments.windows, arguments.seed) for n in LENGTHS]

    sizes, recipe = Sizes(), Recipe(steps=arguments.steps)
    started = time.monotonic()
    model, tokeniser, n_items = _train(pools, sizes, recipe, arguments)
    minutes = (time.monotonic() - started) / 60

    rater = _Rater(model, tokeniser, arguments.seed)
    windows = {n: rater.windows(valid, n, pool) for n, pool in zip(LENGTHS, pools, strict=True)}
    thresholds, records = rater.records(valid, held_out)
    metrics = {
        "windows": {str(n): quality.rounded() for n, quality in windows.items()},
        "records": records,
    }
    provenance = {
        "command": _command(arguments),
        "seed": arguments.seed,
        "split": "column `split` of genomes.tsv; no family or genus is in both splits",
        "held_out_family": HELD_OUT_FAMILY,
        "counts": {**_counts(training, valid, pools), "training_items": n_items},
        "yardstick": f"logistic regression on {KMER}-mer frequencies, penalty {KMER_PENALTY}",
        "sizes": asdict(sizes),
        "recipe": asdict(recipe),
        "training_minutes": round(minutes, 1),
        "machine": f"{arguments.threads} thread(s) of {_processor()}",
        "versions": {"virnucpro": __version__, "torch": str(torch.__version__)},
    }
    _write(arguments, model, sizes, thresholds, metrics, provenance)


def _train(
    pools: list[Pool], sizes: Sizes, recipe: Recipe, arguments: argparse.Namespace
) -> tuple[Mini, BpeTokeniser, int]:
    """Learn the vocabulary, then encoders and head together, then the head alone."""
    tokenizer = arguments.out / "tokenizer.json"
    sample = [window for pool in pools for window in pool.windows[:: _stride(pool)]]
    vocabulary = learn_vocabulary(sample, sizes.vocabulary, tokenizer)
    tokeniser = BpeTokeniser(tokenizer)
    items = [cut_items(pool.windows, tokeniser) for pool in pools]
    known = list(zip(pools, items, strict=True))
    model = train(Mini(sizes, vocabulary), known, recipe, arguments.seed, _report)
    vectors = torch.cat([item_vectors(model, one) for one in items])
    viral = np.concatenate([pool.viral[one.window] for pool, one in known])
    model.head = train_head(vectors, viral, sizes, recipe, arguments.seed)
    return model, tokeniser, len(viral)


def _write(
    arguments: argparse.Namespace,
    model: Mini,
    sizes: Sizes,
    thresholds: dict[str, float],
    metrics: dict[str, object],
    provenance: dict[str, object],
) -> None:
    encoders, head = save_files(model, sizes, arguments.out)
    card = arguments.out / "CARD.md"
    write_card(card, metrics, thresholds, provenance)
    bundle = write_manifest(
        arguments.out,
        Manifest(
            name="mini",
            version=arguments.version,
            description=DESCRIPTION,
            encoders=encoders,
            head=head,
            window=DEFAULT_WINDOW,
            tiling="even",
            genetic_code=GENETIC_CODE,
            labels=("others", "virus"),
            thresholds=thresholds,
            metrics=metrics,
            provenance=provenance,
        ),
    )
    print(card.read_text())
    print(f"{bundle.path}: {bundle.fingerprint}")


class _Rater:
    """Evaluate a trained model on unseen genomes."""

    def __init__(self, model: Mini, tokeniser: BpeTokeniser, seed: int) -> None:
        self._model = model
        self._tokeniser = tokeniser
        self._seed = seed

    def score(self, windows: Sequence[bytes]) -> NDArray[np.float64]:
        """Return the scores of windows; NaN for windows without an open frame."""
        items = cut_items(windows, self._tokeniser)
        return consensus(items, item_scores(self._model, items))

    def windows(self, genomes: list[Genome], length: int, known: Pool) -> Quality:
        """Evaluate windows, and the k-mer regression fitted on the same training windows."""
        pool = draw_tiles(genomes, length, TILES_A_GROUP, self._seed)
        kmers = fit_and_score(known.windows, known.viral, pool.windows, KMER, KMER_PENALTY)
        return rate_windows(pool, self.score(pool.windows), kmers)

    def records(
        self, genomes: list[Genome], held_out: list[Genome]
    ) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Choose thresholds on fragments; evaluate fragments, genomes and the held-out family."""
        sets = {
            f"fragments_{FRAGMENT}": cut_fragments(
                genomes, FRAGMENT, FRAGMENTS_A_GROUP, self._seed
            ),
            "whole_genomes": whole_genomes(genomes, WHOLE),
            HELD_OUT_FAMILY: whole_genomes(held_out, WHOLE),
            "phiX174": whole_genomes([g for g in held_out if DEMONSTRATION in g.name], WHOLE),
        }
        sets = {name: one for name, one in sets.items() if one.names}
        scores = {name: one.scores(DEFAULT_WINDOW, self.score) for name, one in sets.items()}
        chosen_on = f"fragments_{FRAGMENT}"
        thresholds = choose_thresholds(scores[chosen_on], sets[chosen_on].viral)
        rated = {
            name: rate_records(scores[name], one.viral, thresholds) for name, one in sets.items()
        }
        return thresholds, rated


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the embedded bundle.")
    parser.add_argument("--genomes", type=Path, required=True, help="folder with genomes.tsv")
    parser.add_argument("--out", type=Path, required=True, help="output folder of the bundle")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=Recipe().steps)
    parser.add_argument("--windows", type=int, default=20_000, help="training windows per length")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--version", default="1.0.0", help="version of the bundle")
    return parser.parse_args(argv)


def _command(arguments: argparse.Namespace) -> str:
    options = {**vars(arguments), "genomes": "GENOMES", "out": "OUT"}
    return " ".join(
        ["python scripts/train_mini.py", *(f"--{name} {value}" for name, value in options.items())]
    )


def _stride(pool: Pool) -> int:
    return max(1, len(pool.windows) * len(LENGTHS) // VOCABULARY_WINDOWS)


def _counts(training: list[Genome], valid: list[Genome], pools: list[Pool]) -> dict[str, int]:
    return {
        "training_genomes_viral": sum(g.viral for g in training),
        "training_genomes_others": sum(not g.viral for g in training),
        "training_groups": len({g.key for g in training}),
        "training_windows": sum(len(pool.windows) for pool in pools),
        "valid_genomes_viral": sum(g.viral for g in valid),
        "valid_genomes_others": sum(not g.viral for g in valid),
        "valid_groups": len({g.key for g in valid}),
    }


def _processor() -> str:
    level = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} ({level}), {os.cpu_count()} cores"


def _report(step: int, loss: float, seconds: float) -> None:
    if step % 20 == 0:
        print(f"step {step}: loss {loss:.4f}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
