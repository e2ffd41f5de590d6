"""Compute vectors of reference sequences on this device, and compare them with recorded values.

The recorded values of a vector are its projections onto a few fixed random directions (Johnson and
Lindenstrauss 1984). The projections need a hundredth of the space of the vector, and detect a
cosine below 0.999.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from virnucpro.arrays import Float32Array, FloatArray
from virnucpro.bundles.manifest import Bundle
from virnucpro.classifier.head import load_head
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.registry import load_encoder, shapes_of
from virnucpro.errors import BundleError
from virnucpro.lab.validation.compute import choose_compute
from virnucpro.lab.validation.options import ComputeOptions
from virnucpro.lab.validation.parity import cosines_of
from virnucpro.sequences.translation import genetic_code, peptide, reverse_complement

_LEAST_COSINE: Final = {"fp32": 0.9995, "fp16": 0.999, "bf16": 0.995}
_MOST_APART: Final = {"fp32": 0.01, "fp16": 0.02, "bf16": 0.05}
"""Maximum error of a score. The device that computed the published scores is unknown."""


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """Comparison of one computed value of a reference item with its recorded value.

    Attributes
    ----------
    what
        The compared quantity, such as ``protein vector`` or ``score``.
    item
        Name of the reference item.
    found, wanted
        The computed value and, as text, the expected range. The value is a score, or the cosine
        between computed and recorded projections.
    agrees
        Whether `found` is in the expected range.
    """

    what: str
    item: str
    found: float
    wanted: str
    agrees: bool


def golden_items() -> list[tuple[str, bytes, bytes]]:
    """Return a tuple of name, bases and peptide for each reference item.

    The items are the reading frames R1 and R2 of each reference record.
    """
    code = genetic_code(1)
    items = []
    for name, bases in RECORDS.items():
        for frame in (0, 1):
            strand = reverse_complement(bases)[frame:]
            residues = peptide(strand, code)
            items.append((f"{name}_R{frame + 1}", strand[: 3 * len(residues) + 1], residues))
    return items


def golden_vectors(spec: EncoderSpec, device: str, precision: Precision) -> Float32Array:
    """Return the vectors of the reference items, (items, dim) float32, computed on `device`.

    Raises
    ------
    BundleError, DeviceError
        As for `load_encoder`.
    """
    texts = [
        {"nucleotide": bases, "protein": residues}[spec.view]
        for _, bases, residues in golden_items()
    ]
    encoder = load_encoder(spec, device, precision)
    return encoder.vectors(encoder.tokenise(texts))


def project(vectors: Float32Array) -> FloatArray:
    """Return the projections of n vectors onto the fixed random directions.

    Input: (n, dim) float32. Result: (n, DIRECTIONS) float64.
    """
    dim = vectors.shape[1]
    drawn = hashlib.shake_256(b"virnucpro golden directions").digest(DIRECTIONS * dim // 8)
    signs = np.unpackbits(np.frombuffer(drawn, np.uint8)).reshape(DIRECTIONS, dim) * 2.0 - 1.0
    projected: FloatArray = vectors.astype(np.float64) @ signs.T / np.sqrt(dim)
    return projected


def compare_golden(bundle: Bundle, options: ComputeOptions) -> list[GoldenRow]:
    """Compute vectors and scores of the reference items, and compare them with recorded values.

    Parameters
    ----------
    bundle
        A bundle whose encoders have recorded values.
    options
        As for `choose_compute`.

    Raises
    ------
    BundleError
        If an encoder has no recorded values, or cannot be loaded.
    DeviceError, UsageError
        As for `choose_compute`.
    """
    figures = [_figures(spec) for spec in bundle.encoders]
    device, precision = choose_compute(options, shapes_of(*bundle.encoders))
    vectors = [golden_vectors(spec, device, precision) for spec in bundle.encoders]
    rows = []
    for spec, found, wanted in zip(bundle.encoders, vectors, figures, strict=True):
        rows += _cosines(spec, found, wanted, precision)
    known = SCORES.get(bundle.name)
    if bundle.head is not None and known is not None:
        scores = load_head(bundle.head).scores(np.concatenate(vectors, axis=1))[:, 1]
        rows += _scores(scores.tolist(), known, precision)
    return rows


def _figures(spec: EncoderSpec) -> FloatArray:
    key = (spec.name, spec.dim)
    if key not in PROJECTIONS:
        known = ", ".join(sorted(name for name, _ in PROJECTIONS))
        raise BundleError(
            f"{spec.folder}: no reference values are recorded for the encoder {spec.name!r} with "
            f"vectors of {spec.dim} numbers; known encoders: {known}. Rerun without --golden."
        )
    return np.array(PROJECTIONS[key].split(), dtype=np.float64).reshape(-1, DIRECTIONS)


def _cosines(
    spec: EncoderSpec, vectors: Float32Array, wanted: FloatArray, precision: Precision
) -> list[GoldenRow]:
    least, found = _LEAST_COSINE[precision], project(vectors)
    return [
        GoldenRow(f"{spec.view} vector", name, float(cosine), f">= {least}", bool(cosine >= least))
        for (name, _, _), cosine in zip(golden_items(), cosines_of(found, wanted), strict=True)
    ]


def _scores(
    found: Sequence[float], wanted: Sequence[float], precision: Precision
) -> list[GoldenRow]:
    most = _MOST_APART[precision]
    return [
        GoldenRow("score", name, score, f"{expected:.4f} +- {most}", abs(score - expected) <= most)
        for (name, _, _), score, expected in zip(golden_items(), found, wanted, strict=True)
    ]


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
    (entry["encoder"], entry["dim"]): entry["numbers"] for entry in _CONTENT["projections"]
}
"""Recorded projections by (encoder, vector length): `DIRECTIONS` numbers per reference item."""
