"""The baseline: logistic regression on the frequencies of 3- to 6-mers of whole windows."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

FloatArray = NDArray[np.float32]

LENGTHS = (3, 4, 5, 6)
PENALTY = 1.0

_LETTERS = np.full(256, 4, np.uint8)
_LETTERS[np.frombuffer(b"ACGT", np.uint8)] = np.arange(4)


def frequencies(windows: Sequence[bytes], k: int) -> FloatArray:
    """Count k-mers on both strands, each with its reverse complement as one: (n, kinds) float32."""
    counts = np.stack([_count(_LETTERS[np.frombuffer(w, np.uint8)], k) for w in windows])
    both = counts + counts[:, _reverse_complements(k)]
    kept = np.arange(4**k) <= _reverse_complements(k)
    shares: FloatArray = both[:, kept] / both[:, kept].sum(axis=1, keepdims=True)
    return shares


def fit_and_score(
    windows: Sequence[bytes],
    viral: NDArray[np.bool_],
    others: Sequence[bytes],
) -> FloatArray:
    """Fit on `windows` and return the log odds of `others`: (n_others,) float32.

    Frequencies are standardised; the loss is the mean cross-entropy plus `PENALTY` times the sum of
    squared weights, minimised by L-BFGS.
    """
    known = all_frequencies(windows)
    centre, scale = known.mean(axis=0), known.std(axis=0) + 1e-8
    x = torch.from_numpy((known - centre) / scale)
    y = torch.from_numpy(viral.astype(np.float32))
    weights = torch.zeros(x.shape[1], requires_grad=True)
    offset = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights, offset], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = binary_cross_entropy_with_logits(x @ weights + offset, y)
        loss = loss + PENALTY * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    unseen = torch.from_numpy((all_frequencies(others) - centre) / scale)
    with torch.no_grad():
        scores: FloatArray = (unseen @ weights + offset).numpy()
    return scores


def all_frequencies(windows: Sequence[bytes]) -> FloatArray:
    """Return the frequencies of all k-mers of `LENGTHS`: (n, 2,772) float32."""
    return np.concatenate([frequencies(windows, k) for k in LENGTHS], axis=1)


def _count(letters: NDArray[np.uint8], k: int) -> FloatArray:
    n = len(letters) - k + 1
    number = np.zeros(n, np.int64)
    known = np.ones(n, bool)
    for offset in range(k):
        part = letters[offset : offset + n]
        number = number * 4 + np.minimum(part, 3)
        known &= part < 4
    return np.bincount(number[known], minlength=4**k).astype(np.float32)


def _reverse_complements(k: int) -> NDArray[np.int64]:
    number, reverse = np.arange(4**k), np.zeros(4**k, np.int64)
    for _ in range(k):
        reverse = reverse * 4 + 3 - number % 4
        number = number // 4
    return reverse
