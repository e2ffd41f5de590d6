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
import numpy.typing as npt
import torch

from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.head import load_head
from virnucpro.encoders.base import EncoderSpec, Precision, View
from virnucpro.encoders.batching import BATCH_TOKENS, batches, longest_first
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.registry import load_encoder, shapes_of
from virnucpro.errors import InputError, UsageError
from virnucpro.pipeline.jobs.embed_job import find_encoder
from virnucpro.pipeline.jobs.job import PrecisionChoice
from virnucpro.pipeline.validation.agreement import (
    ScoreAgreement,
    VectorAgreement,
    compare_scores,
    compare_vectors,
)
from virnucpro.pipeline.validation.compute import choose_compute
from virnucpro.pipeline.validation.synthetic import synthetic_items
from virnucpro.sequences.index import build_index
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import KIND_OF_ITEMS, IndexSpec

__all__ = ["Parity", "measure_parity"]

_LENGTHS: Final = "1-400"
_LONG_LENGTHS: Final = "401-1022"
_LONG_SHARE: Final = 8
"""Lengths of synthetic items in residues.

Most lengths are those of frames of a window (`_LENGTHS`). One item in 8 has a length from
`_LONG_LENGTHS`, up to the longest training sequence of ESM-2.
"""

_MOST: Final = 100_000
"""Maximum number of items.

The vectors of both devices are kept in memory, and the CPU encodes the items one by one.
"""

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Parity:
    """Result of `measure_parity`.

    Attributes
    ----------
    model
        Name of the bundle, or the `encoder` argument of `measure_parity`.
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
        return all(one.agrees for one in (*self.encoders, *heads))

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes and the result of `agrees` as plain data for JSON."""
        content = asdict(self) | {"agrees": self.agrees}
        if self.head is not None:
            content["head"]["agrees"] = self.head.agrees
        return content


def measure_parity(
    bundle: str | os.PathLike[str] = "mini",
    *,
    encoder: str | os.PathLike[str] | None = None,
    device: str = "auto",
    precision: PrecisionChoice = "auto",
    fasta: str | os.PathLike[str] | None = None,
    n_sequences: int = 64,
    threads: int = 1,
) -> Parity:
    """Compare vectors and scores of a bundle, or vectors of one encoder, with fp32 on the CPU.

    Parameters
    ----------
    bundle
        Name or folder of the bundle, as for `open_bundle`; ignored if `encoder` is set.
    encoder
        Name or path of the encoder, as for `find_encoder`.
    device, precision, threads
        As for `choose_compute`. A small encoder is slower with more than one thread.
    fasta
        Sequence file, processed as in a run. With `encoder`, sequences are not cut into windows.
        None for synthetic items of 1 to 1,022 residues.
    n_sequences
        Number of items, at most 100,000. Items from `fasta` are chosen evenly over all lengths.

    Raises
    ------
    BundleError, DeviceError, InputError
        If the model, the device or `fasta` cannot be used, or `fasta` has no usable sequence.
    UsageError
        If the model is unknown, or the number of items is out of range.
    """
    if not 1 <= n_sequences <= _MOST:
        raise UsageError(f"cannot compare {n_sequences:,} sequences: give 1 to {_MOST:,}")
    head: Path | None = None
    verified: tuple[str, ...] = ()
    if encoder is None:
        opened = open_bundle(os.fspath(bundle))
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
        spec = find_encoder(encoder).spec
        model, encoders = os.fspath(encoder), (spec,)
        index_spec = IndexSpec(kind="whole", alphabet=Alphabet[spec.view.upper()])
    name, precise = choose_compute(device, precision, threads, shapes_of(*encoders), verified)
    views = [spec.view for spec in encoders]
    items = _items(fasta, index_spec, views, n_sequences)
    found, wanted = zip(
        *(_encode_on_both(spec, items[spec.view], name, precise) for spec in encoders), strict=True
    )
    compared = [
        compare_vectors(spec.name, ours, theirs, precise)
        for spec, ours, theirs in zip(encoders, found, wanted, strict=True)
    ]
    scores = None
    if head is not None:
        scores = compare_scores(_scores(head, found, name), _scores(head, wanted, "cpu"), precise)
    return Parity(model, name, precise, tuple(compared), scores)


def _items(
    fasta: str | os.PathLike[str] | None, spec: IndexSpec, views: Sequence[View], n: int
) -> Mapping[View, Sequence[bytes]]:
    """Return for each view at most `n` items of `fasta`; without `fasta`, `n` synthetic items."""
    if fasta is None:
        n_long = -(-n // _LONG_SHARE)
        short, long = synthetic_items(n - n_long, _LENGTHS), synthetic_items(n_long, _LONG_LENGTHS)
        return {view: short[view] + long[view] for view in views}
    with tempfile.TemporaryDirectory(prefix="virnucpro-parity-") as folder:
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
) -> tuple[FloatArray, FloatArray]:
    """Encode sequences in batches on the device, and one by one on the CPU at fp32.

    Return the vectors of the device and the vectors of the CPU, each (n, dim) float32. Only one
    encoder is in memory at a time.
    """
    kind = "cpu" if device == "cpu" else "cuda"
    found = _in_batches(load_encoder(spec, device, precision), texts, BATCH_TOKENS[kind])
    return found, _in_batches(load_encoder(spec, "cpu", "fp32"), texts, 1)


def _in_batches(encoder: Encoder, texts: Sequence[bytes], batch_tokens: int) -> FloatArray:
    ids = encoder.tokenise(texts)
    lengths = np.array([len(one) for one in ids], np.int64)
    order = longest_first(lengths)
    vectors = np.empty((len(ids), encoder.dim), np.float32)
    for batch in batches(lengths[order], lambda _: batch_tokens):
        rows = order[batch.start : batch.stop]
        packed = encoder.collate([ids[row] for row in rows])
        vectors[rows] = encoder.encode(packed).cpu().numpy()
    return vectors


def _scores(head: Path, vectors: Sequence[FloatArray], device: str) -> FloatArray:
    joined = torch.from_numpy(np.concatenate(vectors, 1)).to(device)
    scores: FloatArray = load_head(head, device).scores(joined)[:, :2].cpu().numpy()
    return scores
