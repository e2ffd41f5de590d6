"""Reference vectors computed on this very device, held against recorded figures.

What is recorded of a vector is its projection onto a few fixed random directions (Johnson and
Lindenstrauss 1984): enough to see a cosine below 0.999, and a hundred times smaller than vectors.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.bundles.bundle import Bundle
from virnucpro.bundles.golden_figures import DIRECTIONS, PROJECTIONS, RECORDS, SCORES
from virnucpro.bundles.published import published_names, recipe_of, sources_of
from virnucpro.classify.head import load_head
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.registry import load_encoder
from virnucpro.errors import BundleError
from virnucpro.pipeline.jobs.job import PrecisionChoice
from virnucpro.pipeline.jobs.precision import precision_on, weight_bytes
from virnucpro.pipeline.validation.torch_device import device_of, kind_of
from virnucpro.sequences.translation import genetic_code, peptide, reverse_complement

__all__ = ["GoldenRow", "compare_golden", "golden_items", "golden_vectors", "project"]

FloatArray = npt.NDArray[np.float64]

_LEAST_COSINE: Final = {"fp32": 0.9995, "fp16": 0.999, "bf16": 0.995}
_MOST_APART: Final = {"fp32": 0.01, "fp16": 0.02, "bf16": 0.05}
"""Between a score and the recorded one. What the published figures were computed on is unknown."""


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """One comparison: what, of which item, the figure found, what it should be, the verdict."""

    what: str
    item: str
    found: float
    wanted: str
    agrees: bool


def golden_items() -> list[tuple[str, bytes, bytes]]:
    """Give name, bases and peptide of the reference items: R1 and R2 of each reference record."""
    code = genetic_code(1)
    items = []
    for name, bases in RECORDS.items():
        for frame in (0, 1):
            strand = reverse_complement(bases)[frame:]
            residues = peptide(strand, code)
            items.append((f"{name}_R{frame + 1}", strand[: 3 * len(residues) + 1], residues))
    return items


def golden_vectors(spec: EncoderSpec, device: str, precision: Precision) -> torch.Tensor:
    """Compute the reference items' vectors, (items, dim) float32, on `device`.

    Raises
    ------
    BundleError, DeviceError
        As `load_encoder`.
    """
    texts = [
        {"nucleotide": bases, "protein": residues}[spec.view]
        for _, bases, residues in golden_items()
    ]
    encoder = load_encoder(spec, device, precision)
    return encoder.encode(encoder.collate(encoder.tokenise(texts)))


def project(vectors: npt.NDArray[np.float32]) -> FloatArray:
    """Project vectors, (n, dim), onto the fixed directions: (n, DIRECTIONS)."""
    dim = vectors.shape[1]
    drawn = hashlib.shake_256(b"virnucpro golden directions").digest(DIRECTIONS * dim // 8)
    signs = np.unpackbits(np.frombuffer(drawn, np.uint8)).reshape(DIRECTIONS, dim) * 2.0 - 1.0
    projected: FloatArray = vectors.astype(np.float64) @ signs.T / np.sqrt(dim)
    return projected


def compare_golden(
    bundle: Bundle, device: str = "auto", precision: PrecisionChoice = "auto", threads: int = 1
) -> list[GoldenRow]:
    """Compute a bundle's reference vectors and scores, and compare them with the record.

    Parameters
    ----------
    bundle
        Whose encoders' figures are recorded.
    device, precision
        As `load_encoder` takes them, or ``auto``.
    threads
        Of the CPU.

    Raises
    ------
    BundleError
        When no figures are recorded of one of its encoders; as `load_encoder`.
    DeviceError, UsageError
        When there is no such device.
    """
    torch.set_num_threads(threads)
    figures = [_figures(spec, _published_name(bundle, spec)) for spec in bundle.encoders]
    torch_device = device_of(device)
    precise = precision_on(
        precision, kind_of(torch_device), weight_bytes(bundle.encoders), bundle.verified_precisions
    )
    vectors = [golden_vectors(spec, torch_device, precise) for spec in bundle.encoders]
    rows = []
    for spec, found, wanted in zip(bundle.encoders, vectors, figures, strict=True):
        rows += _cosines(spec, found, wanted, precise)
    known = SCORES.get(_published_head(bundle))
    if bundle.head is not None and known is not None:
        scores = load_head(bundle.head, torch_device).scores(torch.cat(vectors, dim=1))[:, 1]
        rows += _scores(scores.tolist(), known, precise)
    return rows


def _published_name(bundle: Bundle, spec: EncoderSpec) -> str:
    """Recognise an encoder by what it was made from, whatever it is called here."""
    digests = _sources(bundle, spec.view)
    for name in published_names():
        for encoder in recipe_of(name).encoders:
            if digests == set(sources_of(encoder.files).values()):
                return encoder.name
    return spec.name


def _published_head(bundle: Bundle) -> str:
    digests = _sources(bundle, "head")
    for name in published_names():
        head = recipe_of(name).head
        if head is not None and digests == set(sources_of((head,)).values()):
            return name
    return bundle.name


def _sources(bundle: Bundle, part: str) -> set[object]:
    """Read what a part was made from out of the provenance, which is free in its form."""
    match bundle.provenance.get("sources"):
        case dict(parts) if isinstance(parts.get(part), dict):
            return {value for value in parts[part].values() if isinstance(value, str)}
    return set()


def _figures(spec: EncoderSpec, published: str) -> FloatArray:
    key = (published, spec.dim)
    if key not in PROJECTIONS:
        known = ", ".join(sorted(name for name, _ in PROJECTIONS))
        raise BundleError(
            f"{spec.folder}: no reference figures are recorded of the encoder {spec.name!r} of "
            f"{spec.dim} numbers; there are some of {known}. Verify without --golden."
        )
    return np.array(PROJECTIONS[key].split(), dtype=np.float64).reshape(-1, DIRECTIONS)


def _cosines(
    spec: EncoderSpec, vectors: torch.Tensor, wanted: FloatArray, precision: Precision
) -> list[GoldenRow]:
    least, found = _LEAST_COSINE[precision], project(vectors.float().cpu().numpy())
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
    cosines = (found * wanted).sum(axis=1) / lengths
    return [
        GoldenRow(f"{spec.view} vector", name, float(cosine), f">= {least}", bool(cosine >= least))
        for (name, _, _), cosine in zip(golden_items(), cosines, strict=True)
    ]


def _scores(
    found: Sequence[float], wanted: Sequence[float], precision: Precision
) -> list[GoldenRow]:
    most = _MOST_APART[precision]
    return [
        GoldenRow("score", name, one, f"{two:.4f} +- {most}", abs(one - two) <= most)
        for (name, _, _), one, two in zip(golden_items(), found, wanted, strict=True)
    ]
