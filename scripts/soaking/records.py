"""Synthetic sequences of every kind that a run must handle, in a mixture drawn from a seed."""

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

_CODONS = ["".join(codon) for codon in product("ACGT", repeat=3)]
_OPEN = [codon for codon in _CODONS if codon not in {"TAA", "TAG", "TGA"}]
_STOPS = "TAGATAACTGATTAGCTAATCAGTTATCTA"
"""Has a stop codon in all six frames."""


def write_records(path: Path, dice: random.Random, n_records: int) -> None:
    """Write a FASTA file: four of five records are coding, the others are edge cases."""
    with path.open("w") as stream:
        for number, sequence in enumerate(_sequences(dice, n_records)):
            stream.write(f">r{number} of a soak\n{sequence}\n")


def _sequences(dice: random.Random, n_records: int) -> Iterator[str]:
    written: list[str] = []
    for _ in range(n_records):
        sequence = (
            _coding(dice) if not written or dice.random() < 0.8 else _edge_case(dice, written)
        )
        written.append(sequence)
        yield sequence


def _coding(dice: random.Random) -> str:
    longest = 700 if dice.random() < 0.02 else 110
    return "".join(dice.choices(_OPEN, k=dice.randint(30, longest)))


def _edge_case(dice: random.Random, written: list[str]) -> str:
    match dice.choice(
        ("duplicate", "duplicate", "stops", "short", "unknown", "some unknown", "random")
    ):
        case "duplicate":
            return dice.choice(written)
        case "stops":
            return _STOPS * dice.randint(1, 20)
        case "short":
            return "ACGT"[: dice.randrange(3)]
        case "unknown":
            return "N" * dice.randint(1, 700)
        case "some unknown":
            return "N".join(dice.choices(_OPEN, k=dice.randint(10, 60)))
        case _:
            return "".join(dice.choices("ACGT", k=dice.randint(20, 400)))
