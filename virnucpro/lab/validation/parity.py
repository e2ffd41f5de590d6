"""Compare the results of a device and a precision with results at fp32 on the CPU.

The CPU encodes one sequence at a time.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from virnucpro.arrays import Float32Array, FloatArray, finite_rows
from virnucpro.classifier.head import load_head
from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.encoders.batching import BATCH_TOKENS, batches_by_length
from virnucpro.encoders.registry import load_encoder, shapes_of
from virnucpro.lab.validation.compute import choose_compute, choose_model
from virnucpro.lab.validation.options import BenchOptions
from virnucpro.lab.validation.synthetic import synthetic_items

_LARGEST_ERROR: Final = 1e-5
"""Maximum error of a number at fp32, relative to max(1, largest number of its channel)."""

_LEAST_COSINE: Final = {"fp16": 0.9999, "bf16": 0.999}
_MOST_SHIFT: Final = {"fp16": 0.05, "bf16": 0.25}
"""Minimum cosine and maximum shift of a vector; see `Agreement`.

Measured shifts of ESM-2 8M with random weights: 0.0016 at fp16, 0.025 at bf16.
"""

_SCORES_APART: Final = {"fp32": 1e-4, "fp16": 0.01, "bf16": 0.05}
"""Maximum error of a score. Measured with the bundle `mini` at bf16: up to 0.0024."""

_QUIET_CHANNEL: Final = 1 / 8
"""Minimum spread of a channel in the shift, relative to the median size of all channels."""


class Agreement(NamedTuple):
    """Result of a comparison of vectors, or of classifier scores, with expected ones.

    Attributes
    ----------
    what
        Name of the encoder, or ``scores``.
    n, not_finite
        Number of items, and of items with NaN or infinite numbers. All other attributes ignore
        such items.
    least_cosine
        Lowest cosine between a vector and its expected vector; 0 if no vector is finite.
    largest_error
        Largest absolute difference between a number and its expected value.
    largest_shift
        Largest shift of a vector; 0 if there is only one vector. The error of each channel is
        divided by the standard deviation of this channel over the expected vectors. The shift is
        the root mean square of these ratios. All channels have the same weight; a cosine mainly
        depends on a few large channels.
    tolerance
        The tolerance of the precision, as text for reports.
    """

    what: str
    n: int
    not_finite: int
    least_cosine: float
    largest_error: float
    largest_shift: float
    tolerance: str
    agrees: bool


def compare_vectors(
    encoder: str, vectors: Float32Array, expected: Float32Array, precision: Precision
) -> Agreement:
    """Compare vectors with expected vectors, both (n, dim) with n >= 1.

    At fp32, every absolute error must be within the tolerance. At half precision, the lowest cosine
    and the largest shift must be within the tolerance. Vectors with NaN or infinite
    numbers never agree, although a run would recompute such a vector at fp32.
    """
    result = _compared(encoder, vectors, expected)
    if precision == "fp32":
        finite = finite_rows(vectors)
        bounds = _LARGEST_ERROR * np.maximum(1.0, np.abs(expected[finite]).max(0, initial=0.0))
        within = bool((np.abs(vectors[finite] - expected[finite]) <= bounds).all())
        return _judged(result, f"error <= {_LARGEST_ERROR:g}", within=within)
    least, most = _LEAST_COSINE[precision], _MOST_SHIFT[precision]
    within = result.least_cosine >= least and result.largest_shift <= most
    return _judged(result, f"cosine >= {least}, shift <= {most}", within=within)


def compare_scores(scores: Float32Array, expected: Float32Array, precision: Precision) -> Agreement:
    """Compare scores with expected scores, both (n, n_classes) with n >= 1."""
    result, most = _compared("scores", scores, expected), _SCORES_APART[precision]
    return _judged(result, f"error <= {most:g}", within=result.largest_error <= most)


def _compared(what: str, values: Float32Array, expected: Float32Array) -> Agreement:
    finite = finite_rows(values)
    ours, theirs = values[finite].astype(np.float64), expected[finite].astype(np.float64)
    return Agreement(
        what=what,
        n=len(finite),
        not_finite=int((~finite).sum()),
        least_cosine=float(cosines_of(ours, theirs).min()) if len(ours) else 0.0,
        largest_error=float(np.abs(ours - theirs).max(initial=0.0)),
        largest_shift=_largest_shift(ours, theirs),
        tolerance="",
        agrees=False,
    )


def _judged(result: Agreement, tolerance: str, *, within: bool) -> Agreement:
    return result._replace(tolerance=tolerance, agrees=within and not result.not_finite)


def _largest_shift(ours: FloatArray, theirs: FloatArray) -> float:
    if len(theirs) < 2:
        return 0.0
    sizes = np.sqrt((theirs**2).mean(0))
    usual = float(np.median(sizes)) or float(sizes.max()) or 1.0
    spreads = np.maximum(theirs.std(0), _QUIET_CHANNEL * usual)
    return float(np.sqrt((((ours - theirs) / spreads) ** 2).mean(1)).max())


def cosines_of(vectors: FloatArray, other: FloatArray) -> FloatArray:
    """Return (n,) cosines of rows with the same rows of `other`; 0 for zero rows."""
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


def measure_parity(options: BenchOptions) -> list[Agreement]:
    """Compare vectors and scores of a bundle, or vectors of one encoder, with fp32 on the CPU.

    Raises
    ------
    BundleError, DeviceError, UsageError
        If the model or the device cannot be used.
    """
    specs, head = choose_model(options)
    device, precision = choose_compute(options, shapes_of(*specs))
    n_long = -(-options.n_sequences // _LONG_SHARE)
    short = synthetic_items(options.n_sequences - n_long, _LENGTHS)
    long = synthetic_items(n_long, _LONG_LENGTHS)
    vectors, expected = zip(
        *(
            _encode_on_both(spec, short[spec.view] + long[spec.view], device, precision)
            for spec in specs
        ),
        strict=True,
    )
    agreements = [
        compare_vectors(spec.name, ours, theirs, precision)
        for spec, ours, theirs in zip(specs, vectors, expected, strict=True)
    ]
    if head is not None:
        ours, theirs = (
            load_head(head).scores(np.concatenate(side, 1))[:, :2] for side in (vectors, expected)
        )
        agreements.append(compare_scores(ours, theirs, precision))
    return agreements


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
