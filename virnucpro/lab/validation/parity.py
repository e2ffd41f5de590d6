"""Compare the results of a device and a precision with results at fp32 on the CPU.

The CPU encodes one sequence at a time.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from virnucpro.arrays import Float32Array, FloatArray, finite_rows
from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.head import load_head
from virnucpro.encoders.base import Encoder, EncoderSpec, Precision, View
from virnucpro.encoders.batching import BATCH_TOKENS, batches_by_length
from virnucpro.encoders.registry import load_encoder, shapes_of
from virnucpro.errors import InputError
from virnucpro.lab.validation.compute import choose_compute
from virnucpro.lab.validation.options import ParityOptions
from virnucpro.lab.validation.synthetic import synthetic_items
from virnucpro.run.embed_job import find_encoder
from virnucpro.sequences.index import build_index
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import KIND_OF_ITEMS, IndexSpec
from virnucpro.temporary import owned_prefix

_LARGEST_ERROR: Final = 1e-5
"""Maximum error of a number at fp32, relative to max(1, largest number of its channel)."""

_LEAST_COSINE: Final = {"fp16": 0.9999, "bf16": 0.999}
_MOST_SHIFT: Final = {"fp16": 0.05, "bf16": 0.25}
"""Minimum cosine and maximum shift of a vector; see `VectorAgreement`.

Measured shifts of ESM-2 8M with random weights: 0.0016 at fp16, 0.025 at bf16.
"""

_SCORES_APART: Final = {"fp32": 1e-4, "fp16": 0.01, "bf16": 0.05}
"""Maximum error of a score. Measured with the bundle `mini` at bf16: up to 0.0024."""

_QUIET_CHANNEL: Final = 1 / 8
"""Minimum spread of a channel in the shift, relative to the median size of all channels."""

_ROUNDING_QUANTILE: Final = 0.9
_ROUNDING_REACH: Final = 3.0
"""Limit for changes of log odds by rounding: three times the 0.9 quantile of all changes.

The largest change is not used as the limit, because a wrong result can have any change.
"""

_LEAST_SCORE: Final = 1e-7
"""Lower scores are raised to this value before log odds are computed."""


@dataclass(frozen=True, slots=True)
class VectorAgreement:
    """Result of a comparison of vectors with expected vectors.

    Attributes
    ----------
    n, not_finite
        Number of vectors, and of vectors with NaN or infinite numbers. All other attributes
        ignore vectors with NaN or infinite numbers.
    least_cosine, median_cosine
        Lowest and median cosine between a vector and its expected vector; 0 if no vector is finite.
    largest_error
        Largest absolute difference between a number and its expected value.
    largest_shift
        Largest shift of a vector; 0 if there is only one vector. The error of each channel is
        divided by the standard deviation of this channel over the expected vectors. The shift is
        the root mean square of these ratios. All channels have the same weight; a cosine mainly
        depends on a few large channels.
    scale
        Largest absolute value in the expected vectors.
    tolerance
        The tolerance of the precision, as text for reports.
    """

    encoder: str
    n: int
    not_finite: int
    least_cosine: float
    median_cosine: float
    largest_error: float
    largest_shift: float
    scale: float
    tolerance: str
    agrees: bool


@dataclass(frozen=True, slots=True)
class ScoreAgreement:
    """Result of a comparison of classifier scores with expected scores.

    Attributes
    ----------
    n, not_finite
        Number of items, and of items with a NaN or infinite score.
    largest_error
        Largest absolute difference between a score and its expected value.
    tolerated
        Maximum `largest_error` for agreement.
    flips
        Number of items whose label differs from the expected label.
    explained
        Number of `flips` that rounding explains: the expected log odds are close to 0. The limit
        is three times the 0.9 quantile of the changes in items with an unchanged label.
    """

    n: int
    not_finite: int
    largest_error: float
    tolerated: float
    flips: int
    explained: int

    @property
    def agrees(self) -> bool:
        """Return whether all scores are within the tolerance and only rounding changed labels."""
        near = self.largest_error <= self.tolerated
        return near and self.flips == self.explained and not self.not_finite


def compare_vectors(
    encoder: str, found: Float32Array, wanted: Float32Array, precision: Precision
) -> VectorAgreement:
    """Compare vectors `found` with expected vectors `wanted`, both (n, dim) with n >= 1.

    At fp32, every absolute error must be within the tolerance. At half precision, the lowest cosine
    and the largest shift must be within the tolerance. Vectors with NaN or infinite
    numbers never agree, although a run would recompute such a vector at fp32.
    """
    finite = finite_rows(found)
    ours, theirs = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    cosines = cosines_of(ours, theirs) if len(ours) else np.zeros(1)
    errors, shift = np.abs(ours - theirs), _largest_shift(ours, theirs)
    if precision == "fp32":
        bounds = _LARGEST_ERROR * np.maximum(1.0, np.abs(theirs).max(0, initial=0.0))
        tolerance, within = f"error <= {_LARGEST_ERROR:g}", bool((errors <= bounds).all())
    else:
        least, most = _LEAST_COSINE[precision], _MOST_SHIFT[precision]
        tolerance = f"cosine >= {least}, shift <= {most}"
        within = bool(cosines.min() >= least) and shift <= most
    return VectorAgreement(
        encoder=encoder,
        n=len(finite),
        not_finite=int((~finite).sum()),
        least_cosine=float(cosines.min()),
        median_cosine=float(np.median(cosines)),
        largest_error=float(errors.max(initial=0.0)),
        largest_shift=shift,
        scale=float(np.abs(theirs).max(initial=0.0)),
        tolerance=tolerance,
        agrees=within and bool(finite.all()),
    )


def compare_scores(
    found: Float32Array, wanted: Float32Array, precision: Precision
) -> ScoreAgreement:
    """Compare scores `found` with expected scores `wanted`: (n, 2), one column per class, n >= 1.

    A changed label is an error, unless rounding explains the change; see `ScoreAgreement`. The
    size of the rounding is measured as the change of the log odds in items with an unchanged
    label, because rounding changes the log odds of all items by similar amounts.
    """
    finite = finite_rows(found)
    ours, theirs = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    flipped = ours.argmax(1) != theirs.argmax(1)
    margins = np.abs(_log_odds(theirs))
    moved = np.abs(_log_odds(ours) - _log_odds(theirs))[~flipped]
    quantile = np.quantile(moved, _ROUNDING_QUANTILE, method="lower") if len(moved) else 0.0
    return ScoreAgreement(
        n=len(finite),
        not_finite=int((~finite).sum()),
        largest_error=float(np.abs(ours - theirs).max(initial=0.0)),
        tolerated=_SCORES_APART[precision],
        flips=int(flipped.sum()),
        explained=int((flipped & (margins <= _ROUNDING_REACH * quantile)).sum()),
    )


def _log_odds(scores: FloatArray) -> FloatArray:
    logs = np.log(np.maximum(scores, _LEAST_SCORE))
    return logs[:, 1] - logs[:, 0]


def _largest_shift(ours: FloatArray, theirs: FloatArray) -> float:
    if len(theirs) < 2:
        return 0.0
    sizes = np.sqrt((theirs**2).mean(0))
    usual = float(np.median(sizes)) or float(sizes.max()) or 1.0
    spreads = np.maximum(theirs.std(0), _QUIET_CHANNEL * usual)
    return float(np.sqrt((((ours - theirs) / spreads) ** 2).mean(1)).max())


def cosines_of(vectors: FloatArray, other: FloatArray) -> FloatArray:
    """Return (n,) cosines of the rows of `one` with the same rows of `other`; 0 for zero rows."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(other, axis=1)
    cosines: FloatArray = (vectors * other).sum(1) / np.where(lengths > 0, lengths, 1.0)
    return cosines


_LENGTHS: Final = "1-400"
_LONG_LENGTHS: Final = "401-1022"
_LONG_SHARE: Final = 8
"""Lengths of synthetic items in residues.

Most lengths are those of frames of a window (`_LENGTHS`). One item in 8 has a length from
`_LONG_LENGTHS`, up to the longest training sequence of ESM-2.
"""


@dataclass(frozen=True, slots=True)
class Parity:
    """Result of `measure_parity`.

    Attributes
    ----------
    model
        Name of the bundle, or the given encoder.
    encoders
        Agreement of the vectors of each encoder.
    head
        Agreement of the classifier's scores; None if there is no classifier.
    """

    model: str
    device: str
    precision: Precision
    encoders: tuple[VectorAgreement, ...]
    head: ScoreAgreement | None

    @property
    def agrees(self) -> bool:
        """Return True if all vectors and all scores are within the tolerances."""
        heads = () if self.head is None else (self.head,)
        return all(agreement.agrees for agreement in (*self.encoders, *heads))

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes and the result of `agrees` as plain data for JSON."""
        content = asdict(self) | {"agrees": self.agrees}
        if self.head is not None:
            content["head"]["agrees"] = self.head.agrees
        return content


def measure_parity(options: ParityOptions) -> Parity:
    """Compare vectors and scores of a bundle, or vectors of one encoder, with fp32 on the CPU.

    Raises
    ------
    BundleError, DeviceError, InputError
        If the model, the device or the file cannot be used, or the file has no usable sequence.
    UsageError
        If the model is unknown.
    """
    head: Path | None = None
    verified: tuple[str, ...] = ()
    if options.encoder is None:
        opened = open_bundle(os.fspath(options.bundle))
        model, encoders, head = opened.name, opened.encoders, opened.head
        verified = opened.verified_precisions
        index_spec = IndexSpec(
            kind=KIND_OF_ITEMS[opened.items],
            alphabet=Alphabet.NUCLEOTIDE,
            window=opened.window,
            tiling=opened.tiling,
            genetic_code=opened.genetic_code,
        )
    else:
        spec = find_encoder(options.encoder).spec
        model, encoders = os.fspath(options.encoder), (spec,)
        index_spec = IndexSpec(kind="whole", alphabet=Alphabet[spec.view.upper()])
    device, precision = choose_compute(options, shapes_of(*encoders), verified)
    views = [spec.view for spec in encoders]
    items = _items(options.fasta, index_spec, views, options.n_sequences)
    found, wanted = zip(
        *(_encode_on_both(spec, items[spec.view], device, precision) for spec in encoders),
        strict=True,
    )
    compared = [
        compare_vectors(spec.name, ours, theirs, precision)
        for spec, ours, theirs in zip(encoders, found, wanted, strict=True)
    ]
    scores = None
    if head is not None:
        ours, theirs = (load_head(head).scores(np.concatenate(part, 1)) for part in (found, wanted))
        scores = compare_scores(ours[:, :2], theirs[:, :2], precision)
    return Parity(model, device, precision, tuple(compared), scores)


def _items(
    fasta: str | os.PathLike[str] | None, spec: IndexSpec, views: Sequence[View], n: int
) -> Mapping[View, Sequence[bytes]]:
    """Return for each view at most `n` items of `fasta`; without `fasta`, `n` synthetic items."""
    if fasta is None:
        n_long = -(-n // _LONG_SHARE)
        short, long = synthetic_items(n - n_long, _LENGTHS), synthetic_items(n_long, _LONG_LENGTHS)
        return {view: short[view] + long[view] for view in views}
    with tempfile.TemporaryDirectory(prefix=owned_prefix("parity")) as folder:
        index = build_index(
            Path(folder) / "index", [os.fspath(fasta)], spec, rules=InputRules(strict=True)
        )
        if not index.n_rows:
            raise InputError(
                f"{fasta}: contains no sequence for an encoder. Each sequence is empty or has a "
                "stop codon in every frame. Give another file, or omit --fasta."
            )
        rows = np.unique(np.linspace(0, index.n_rows - 1, n).astype(np.int64))
        return {view: index.sequences(rows, view) for view in views}


def _encode_on_both(
    spec: EncoderSpec, texts: Sequence[bytes], device: str, precision: Precision
) -> tuple[Float32Array, Float32Array]:
    """Encode sequences in batches on the device, and one by one on the CPU at fp32.

    Return the vectors of the device and the vectors of the CPU, each (n, dim) float32. Only one
    encoder is in memory at a time.
    """
    kind = "cpu" if device == "cpu" else "cuda"
    found = encode_all(load_encoder(spec, device, precision), texts, BATCH_TOKENS[kind])
    return found, encode_all(load_encoder(spec, "cpu", "fp32"), texts, 1)


def encode_all(encoder: Encoder, texts: Sequence[bytes], batch_tokens: int) -> Float32Array:
    """Encode sequences in batches of up to `batch_tokens` tokens; (n, dim) in their order."""
    ids = encoder.tokenise(texts)
    vectors = np.empty((len(ids), encoder.dim), np.float32)
    for rows in batches_by_length([len(item) for item in ids], batch_tokens):
        vectors[rows] = encoder.vectors([ids[row] for row in rows])
    return vectors
