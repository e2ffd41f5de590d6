"""Expected results of reference sequences, for `virnucpro bundle verify --golden`.

The results are in golden_figures.json; scripts/golden_figures.py prints them. The results of
DNABERT-S, ESM-2 3B and virnucpro-500 are output of the published tool. This program computed the
results of the bundle ``mini`` at fp32 on a CPU.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["DIRECTIONS", "PROJECTIONS", "RECORDS", "SCORES"]

_CONTENT: Final = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="ascii"))

DIRECTIONS: Final = 32
"""Number of directions on which each vector is projected; one number is recorded per direction."""

RECORDS: Final[Mapping[str, bytes]] = {
    name: bases.encode() for name, bases in _CONTENT["records"].items()
}
"""Reference sequences (bases) by name."""

SCORES: Final[Mapping[str, tuple[float, ...]]] = {
    name: tuple(scores) for name, scores in _CONTENT["scores"].items()
}
"""Recorded virus scores (class 1) by bundle."""

PROJECTIONS: Final[Mapping[tuple[str, int], str]] = {
    (one["encoder"], one["dim"]): one["numbers"] for one in _CONTENT["projections"]
}
"""Recorded projections by (encoder, vector length): `DIRECTIONS` numbers per reference item."""
