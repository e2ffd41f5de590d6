"""Compare the throughput of the tokenisers with those of the published tool.

Peptides: fair-esm's batch converter, with the published tool's batches. Bases: the `tokenizers`
library, one window at a time and in plain batches. One thread, no padding. The ids are compared
before any figure is printed. The sides alternate; the minimum time of each counts.

    python scripts/bench/tokenisers.py [--tokenizer ../shared/reference/dnabert-s/tokenizer.json]
"""

import argparse
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
from esm.data import Alphabet
from tokenizers import Encoding, Tokenizer

from virnucpro.arrays import IntArray
from virnucpro.encoders.dnabert_s.encoder import BpeTokeniser
from virnucpro.encoders.esm2.config import tokenise_residues

Side = Callable[[Sequence[bytes]], list[IntArray]]

TOKENIZER = Path(__file__).parents[3] / "shared" / "reference" / "dnabert-s" / "tokenizer.json"
CONVERTED_AT_ONCE = 32
"""Number of peptides per batch; small, so padding costs the converter little."""


def main() -> None:
    """Print sequences per second of each side, and the ratios."""
    arguments = _arguments()
    dice = np.random.default_rng(0)
    lengths = dice.integers(20, 167, arguments.sequences)
    peptides = _draw(dice, b"LAGVSERTIDPKQNFYMHWC", lengths.tolist())
    windows = _draw(dice, b"ACGT", [500] * arguments.sequences)
    compare(
        "peptides of 20 to 166",
        peptides,
        {"virnucpro": tokenise_residues, "fair-esm's converter": converted},
        arguments.turns,
    )
    library = Tokenizer.from_file(str(arguments.tokenizer))
    library.no_truncation()
    library.no_padding()
    sides = {
        "virnucpro": BpeTokeniser(arguments.tokenizer),
        "tokenizers, one by one": lambda texts: _ids(library.encode(t.decode()) for t in texts),
        "tokenizers, encode_batch": lambda texts: _ids(
            library.encode_batch([t.decode() for t in texts])
        ),
    }
    compare("windows of 500 bases", windows, sides, arguments.turns)


def compare(what: str, sequences: list[bytes], sides: dict[str, Side], turns: int) -> None:
    """Run all sides alternately on the same sequences; the first side is ours."""
    took: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        answers = []
        for name, side in sides.items():
            started = time.process_time()
            answers.append(side(sequences))
            took[name].append(time.process_time() - started)
        for answer in answers[1:]:
            assert all(np.array_equal(a, b) for a, b in zip(answers[0], answer, strict=True))
    least = {name: min(seconds) for name, seconds in took.items()}
    ours = least["virnucpro"]
    print(f"{len(sequences):,} {what}, {turns} turns, CPU time of one thread")
    for name, seconds in least.items():
        print(f"  {name:26} {len(sequences) / seconds:12,.0f}/s   {seconds / ours:8.2f}x our time")


def converted(sequences: Sequence[bytes]) -> list[IntArray]:
    """Tokenise with fair-esm's batch converter."""
    converter = Alphabet.from_architecture("ESM-1b").get_batch_converter()
    ids = []
    for start in range(0, len(sequences), CONVERTED_AT_ONCE):
        some = sequences[start : start + CONVERTED_AT_ONCE]
        _, _, padded = converter([("", sequence.decode()) for sequence in some])
        ids += [
            row[: len(sequence) + 2].numpy() for row, sequence in zip(padded, some, strict=True)
        ]
    return ids


def _ids(encodings: Iterable[Encoding]) -> list[IntArray]:
    return [np.array(encoding.ids, np.int64) for encoding in encodings]


def _draw(dice: np.random.Generator, letters: bytes, lengths: list[int]) -> list[bytes]:
    alphabet = np.frombuffer(letters, np.uint8)
    return [dice.choice(alphabet, length).tobytes() for length in lengths]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZER, help="a tokenizer.json")
    parser.add_argument("--sequences", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
