"""Recorded results of reference sequences, for `virnucpro bundle verify --golden`.

They are in golden_figures.json, whose entries scripts/golden_figures.py prints. DNABERT-S, ESM-2 3B
and the scores of virnucpro-500: from the published tool's own output. mini: fp32 on a CPU.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["DIRECTIONS", "PROJECTIONS", "RECORDS", "SCORES"]

_CONTENT: Final = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="ascii"))

DIRECTIONS: Final = 32
"""Recorded numbers of a vector."""

RECORDS: Final[Mapping[str, bytes]] = {
    name: bases.encode() for name, bases in _CONTENT["records"].items()
}
"""Bases of the reference sequences by name."""

SCORES: Final[Mapping[str, tuple[float, ...]]] = {
    name: tuple(scores) for name, scores in _CONTENT["scores"].items()
}
"""Scores of class 1, virus, by bundle."""

PROJECTIONS: Final[Mapping[tuple[str, int], str]] = {
    (one["encoder"], one["dim"]): one["numbers"] for one in _CONTENT["projections"]
}
"""`DIRECTIONS` numbers for each reference item, by encoder and length of its vectors."""
