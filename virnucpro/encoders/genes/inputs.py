"""Inputs of the record head: shares and ratios of the sums of a piece, and `FACTS`."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from virnucpro.arrays import Float32Array, FloatArray, IntegerArray, slices
from virnucpro.encoders.composition.features import AMINO_ACIDS, NAMES_OF_4
from virnucpro.encoders.genes.evidence import DIM, LEVELS, PARTS, SIDES, WORD_NAMES
from virnucpro.encoders.genes.genes import CODE

WIDTH: Final = DIM + len(WORD_NAMES)
"""Sums of a piece: evidence of spans, then protein words."""
N_INPUTS: Final = 824
"""Inputs of the record head."""
FACTS: Final = (
    "genes",
    "complete genes",
    "gene codons",
    "known bases",
    "strand switches",
    "words of genes",
    "known viral words",
    "known host words",
    "path codons",
    "frame shifts",
)
"""Numbers of a piece that explain its score; the last columns of its vector."""

_PRIOR: Final = {"words": 60.0, "codons": 40.0, "dipeptides": 80.0, "path": 40.0}
"""Observations at the mean composition that are added to a part's own."""
_FEW: Final = 2.0
_BLOCK_ROWS: Final = 256
"""Rows that are computed together; their numbers stay in the cache of a core."""
_SHARES: Final = ("lengths", "starts", "stops", "gaps", "motifs", "spacers")


@lru_cache
def _sums_of_parts() -> dict[str, Float32Array]:
    """Return for each large part a matrix from its sums to coarser ones."""
    residues = np.zeros((64, len(AMINO_ACIDS)), np.float32)
    for codon in range(64):
        if (residue := AMINO_ACIDS.find(bytes([CODE[codon]]))) >= 0:
            residues[codon, residue] = 1
    third = np.tile(np.eye(4, dtype=np.float32), (16, 1))
    pairs = sorted({name[1:3] for name in NAMES_OF_4})
    middle = np.array([[name[1:3] == pair for pair in pairs] for name in NAMES_OF_4], np.float32)
    coding = np.concatenate((residues, third), axis=1)
    return {"words": middle, "codons": coding, "path": coding}


def vectors_of(sums: IntegerArray, means: Float32Array) -> Float32Array:
    """Return the vectors of pieces, ``(n, N_INPUTS + len(FACTS))`` float32.

    A vector depends on the sums of its piece alone: sums of floats are sums of whole numbers, thus
    exact, and logarithms are computed in float64.

    Parameters
    ----------
    sums
        ``(n, WIDTH)``, sums over the spans of each piece.
    means
        ``(WIDTH,)``, mean composition: the shares of each sum in its part.
    """
    found = np.empty((len(sums), N_INPUTS + len(FACTS)), np.float32)
    for rows in slices(len(sums), _BLOCK_ROWS):
        _write_vectors(sums[rows].astype(np.float32), means, found[rows])
    return found


def _write_vectors(x: Float32Array, means: Float32Array, found: Float32Array) -> None:
    part = {name: x[:, where] for name, where in PARTS.items()}
    columns = []
    for name, prior in _PRIOR.items():
        own, mean = part[name], means[PARTS[name]]
        total = own.sum(axis=1, keepdims=True) + np.float32(prior)
        columns.append(np.sqrt((own + prior * mean) / total))
        if (matrix := _sums_of_parts().get(name)) is not None:
            columns.append(np.sqrt((own @ matrix + prior * (mean @ matrix)) / total))
    for name in _SHARES:
        own, mean = part[name], means[PARTS[name]]
        columns.append((own + _FEW * mean) / (own.sum(axis=1, keepdims=True) + _FEW))
    zones = (part["upstream"].reshape(len(x), 3, 4) + _FEW / 4).transpose(2, 1, 0)
    columns.append((zones / zones.sum(axis=0)).reshape(12, len(x)).T)
    columns.append(_ratios(part))
    columns.append(_word_inputs(x[:, DIM:]))
    columns.append(_facts(part, x[:, DIM:]))
    np.concatenate(columns, axis=1, out=found, casting="same_kind")


def _ratios(part: Mapping[str, Float32Array]) -> Float32Array:
    known = part["bases"][:, 0]
    genes, complete, _, _, codons, score = part["genes"].T
    bases, some = np.maximum(known, 1), np.maximum(genes, 1)
    path, forward, *steps, path_score = part["steps"].T
    on_path = path + 1
    spread = part["spreads"].reshape(len(known), 3, 2) / np.maximum(codons, 1)[:, None, None]
    deviation = np.sqrt(np.maximum(64 * spread[:, :, 1] - spread[:, :, 0] ** 2, 0))
    columns = [
        _log(bases),
        # Instead of the share of unknown bases. The training of the heads had almost none: a gap of
        # 100 N in a scaffold would be far outside of what they know.
        np.zeros_like(bases),
        _log(codons + 1),
        _log(genes + 1),
        3 * codons / bases,
        1000 * genes / bases,
        _log(codons / some + 1),
        complete / some,
        score / np.maximum(codons, 1),
        score / bases,
        part["strand"].max(axis=1) / np.maximum(codons, 1),
        _log(on_path),
        3 * path / bases,
        np.maximum(forward, path - forward) / on_path,
        *(step / on_path for step in steps),
        path_score / on_path,
        path_score / bases,
        *spread[:, :, 0].T,
        *deviation.T,
        *(part["small"] / some[:, None]).T,
    ]
    return np.column_stack(columns)


def _word_inputs(words: Float32Array) -> Float32Array:
    total, kinds = words[:, :1], words[:, 1:]
    by_side = kinds.reshape(len(words), len(SIDES), LEVELS).sum(axis=2)
    shares = np.sqrt(np.concatenate((kinds, by_side), axis=1) / (total + 30))
    own = (by_side + 0.5) / (by_side.sum(axis=1, keepdims=True) + 0.5 * len(SIDES))
    return np.concatenate((shares, _log(by_side + 1), own), axis=1)


def _facts(part: Mapping[str, Float32Array], words: Float32Array) -> Float32Array:
    genes, complete, _, _, codons, _ = part["genes"].T
    switches = part["gaps"][:, len(part["gaps"].T) // 2 :].sum(axis=1)
    by_side = words[:, 1:].reshape(len(words), len(SIDES), LEVELS).sum(axis=2)
    viral, host = by_side[:, :2].sum(axis=1), by_side[:, 2:].sum(axis=1)
    path, _, shifts, *_ = part["steps"].T
    of_genes = (genes, complete, codons, part["bases"][:, 0], switches)
    return np.column_stack((*of_genes, words[:, 0], viral, host, path, shifts))


def _log(values: Float32Array) -> FloatArray:
    return np.log(values.astype(np.float64))
