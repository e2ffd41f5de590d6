"""Input files of the integration tests."""

import random
from pathlib import Path

import pytest
from samples import CODING


@pytest.fixture(scope="session")
def small_fasta(tmp_path_factory) -> Path:
    """A few dozen records: coding, repeated, short, ambiguous, with many stops."""
    dice = random.Random(20)
    records = [
        (f"open_{number}", "".join(dice.choices(CODING, k=dice.randint(40, 900)))[:1350])
        for number in range(48)
    ]
    records += [
        ("repeat", records[3][1]),
        ("repeat", records[3][1]),
        ("one_base", "A"),
        ("empty", ""),
        ("all_n", "N" * 700),
        ("stops", "TAGATAACTGATTAGCTAATCAGTTATCTA" * 30),
        ("some_n", "N".join(dice.choices(CODING, k=200))),
    ]
    path = tmp_path_factory.mktemp("input") / "small.fa"
    path.write_text("".join(f">{name} of a test\n{bases}\n" for name, bases in records))
    return path
