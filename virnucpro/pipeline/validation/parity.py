"""A device and a precision against fp32 on the CPU, one sequence at a time."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.bundles.bundle import Bundle, open_bundle
from virnucpro.classify.head import load_head
from virnucpro.encoders.base import EncoderSpec, Precision, View
from virnucpro.encoders.batching import batches, longest_first
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory.token_budget import BATCH_TOKENS
from virnucpro.encoders.registry import load_encoder
from virnucpro.errors import InputError, UsageError
from virnucpro.pipeline.jobs.job import PrecisionChoice
from virnucpro.pipeline.jobs.named_encoder import find_encoder
from virnucpro.pipeline.jobs.precision import precision_on, weight_bytes
from virnucpro.pipeline.validation.agreement import (
    ScoreAgreement,
    VectorAgreement,
    compare_scores,
    compare_vectors,
)
from virnucpro.pipeline.validation.synthetic import synthetic_items
from virnucpro.pipeline.validation.torch_device import device_of, kind_of
from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

__all__ = ["Parity", "parity_of_bundle", "parity_of_encoder"]

_LENGTHS: Final = "1-400"
"""Residues of most items that are made up: those of the frames of a window."""

_LONG_LENGTHS: Final = "401-1022"
"""Residues of the others, up to what ESM-2 was trained on."""

_LONG_SHARE: Final = 8
"""One item of so many is long."""

_MOST: Final = 100_000
"""Items. All vectors lie in memory, twice, and the CPU takes them one by one."""

FloatArray = npt.NDArray[np.float32]
Texts = Mapping[View, Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Parity:
    """What was compared, and how it agrees.

    Attributes
    ----------
    model
        The bundle, or the encoder as it was asked for.
    head
        Of the classifier's scores; None where there is no classifier.
    """

    model: str
    device: str
    precision: Precision
    encoders: tuple[VectorAgreement, ...]
    head: ScoreAgreement | None

    @property
    def agrees(self) -> bool:
        """Everything is within its tolerance."""
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """What does not agree, a text each."""
        heads = () if self.head is None else (self.head,)
        return tuple(one.problem for one in (*self.encoders, *heads) if not one.agrees)

    def as_dict(self) -> dict[str, Any]:
        """Give plain data for JSON."""
        content = asdict(self) | {"agrees": self.agrees}
        if self.head is not None:
            content["head"]["agrees"] = self.head.agrees
        return content


def parity_of_bundle(
    name: str | os.PathLike[str] = "mini",
    *,
    device: str = "auto",
    precision: PrecisionChoice = "auto",
    fasta: str | os.PathLike[str] | None = None,
    n_sequences: int = 64,
    threads: int = 1,
) -> Parity:
    """Compare the vectors and scores of a bundle.

    Parameters
    ----------
    name
        As `open_bundle` takes it.
    device, precision
        As `load_encoder` takes them, or ``auto``.
    fasta
        Bases, cut and translated as a run does it; None for made-up items of 1 to 1,022 residues.
    n_sequences
        How many items, of those in `fasta` some of every length; at most 100,000.
    threads
        Of the CPU. One sequence of a small encoder is slower with more than one.

    Raises
    ------
    BundleError, DeviceError, InputError
        When bundle, device or `fasta` cannot be used, or no frame in it is open.
    UsageError
        When there is no such bundle, or so many items are not compared.
    """
    _require_few(n_sequences)
    torch.set_num_threads(threads)
    bundle = open_bundle(os.fspath(name))
    torch_device = device_of(device)
    precise = precision_on(
        precision, kind_of(torch_device), weight_bytes(bundle.encoders), bundle.verified_precisions
    )
    texts = _texts(fasta, _frames_of(bundle), n_sequences)
    return _parity(bundle.name, bundle.encoders, bundle.head, texts, torch_device, precise)


def parity_of_encoder(
    name: str | os.PathLike[str],
    *,
    device: str = "auto",
    precision: PrecisionChoice = "auto",
    fasta: str | os.PathLike[str] | None = None,
    n_sequences: int = 64,
    threads: int = 1,
) -> Parity:
    """Compare the vectors of one encoder, as `find_encoder` takes it; see `parity_of_bundle`.

    Sequences of `fasta` are taken whole, bases or residues as the encoder reads them.

    Raises
    ------
    BundleError, DeviceError, InputError
        When encoder, device or `fasta` cannot be used, when a file bears a published name and has
        other content, or no sequence has a letter.
    UsageError
        When there is no such encoder, or so many items are not compared.
    """
    _require_few(n_sequences)
    torch.set_num_threads(threads)
    spec, torch_device = find_encoder(name).spec, device_of(device)
    precise = precision_on(precision, kind_of(torch_device), weight_bytes([spec]))
    alphabet = Alphabet.PROTEIN if spec.view == "protein" else Alphabet.NUCLEOTIDE
    texts = _texts(fasta, IndexSpec(kind="whole", alphabet=alphabet), n_sequences)
    return _parity(os.fspath(name), [spec], None, texts, torch_device, precise)


def _parity(
    model: str,
    encoders: Sequence[EncoderSpec],
    head: Path | None,
    texts: Texts,
    device: str,
    precision: Precision,
) -> Parity:
    pairs = [_both(spec, texts[spec.view], device, precision) for spec in encoders]
    return Parity(
        model,
        device,
        precision,
        tuple(
            compare_vectors(spec.name, found, wanted, precision)
            for spec, (found, wanted) in zip(encoders, pairs, strict=True)
        ),
        None if head is None else _scores(head, pairs, device, precision),
    )


def _require_few(n: int) -> None:
    if not 1 <= n <= _MOST:
        raise UsageError(f"{n:,} sequences are not compared: give from 1 to {_MOST:,}")


def _frames_of(bundle: Bundle) -> IndexSpec:
    return IndexSpec(
        kind="frames",
        alphabet=Alphabet.NUCLEOTIDE,
        window=bundle.window,
        tiling=bundle.tiling,
        genetic_code=bundle.genetic_code,
    )


def _texts(fasta: str | os.PathLike[str] | None, spec: IndexSpec, n: int) -> Texts:
    """Find `n` items of all lengths, as each kind of encoder reads them."""
    if fasta is None:
        return _of_all_lengths(n)
    with tempfile.TemporaryDirectory(prefix="virnucpro-parity-") as folder:
        index = build_index(Path(folder) / "index", [os.fspath(fasta)], spec)
        if not index.n_rows:
            raise InputError(
                f"{fasta}: holds no sequence that an encoder could read (no letter, or a stop in "
                "every frame). Give another file, or none: sequences are made up then."
            )
        rows = np.unique(np.linspace(0, index.n_rows - 1, n).astype(np.int64))
        return _views(index, rows)


def _of_all_lengths(n: int) -> Texts:
    n_long = -(-n // _LONG_SHARE)
    kinds = (n - n_long, _LENGTHS), (n_long, _LONG_LENGTHS)
    items = [synthetic_items(count, lengths) for count, lengths in kinds]
    return {
        "nucleotide": [text for one in items for text in one.bases],
        "protein": [text for one in items for text in one.residues],
    }


def _views(index: SequenceIndex, rows: npt.NDArray[np.int64]) -> Texts:
    if index.spec.kind == "whole":
        view: View = "protein" if index.spec.alphabet is Alphabet.PROTEIN else "nucleotide"
        return {view: index.sequences(rows, view)}
    return {
        "nucleotide": index.sequences(rows, "nucleotide"),
        "protein": index.sequences(rows, "protein"),
    }


def _both(
    spec: EncoderSpec,
    texts: Sequence[bytes],
    device: str,
    precision: Precision,
) -> tuple[FloatArray, FloatArray]:
    """Encode on the device as a run does, and on the CPU at fp32 one by one; (n, dim) both.

    One encoder is in memory at a time.
    """
    found = _in_batches(load_encoder(spec, device, precision), texts, BATCH_TOKENS[kind_of(device)])
    return found, _one_by_one(load_encoder(spec, "cpu", "fp32"), texts)


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


def _one_by_one(encoder: Encoder, texts: Sequence[bytes]) -> FloatArray:
    vectors = [encoder.encode(encoder.collate([ids])) for ids in encoder.tokenise(texts)]
    joined: FloatArray = torch.cat(vectors).numpy()
    return joined


def _scores(
    head: Path,
    pairs: Sequence[tuple[FloatArray, FloatArray]],
    device: str,
    precision: Precision,
) -> ScoreAgreement:
    found, wanted = (
        load_head(head, on)
        .scores(torch.from_numpy(np.concatenate(vectors, 1)).to(on))
        .cpu()
        .numpy()
        for vectors, on in zip(zip(*pairs, strict=True), (device, "cpu"), strict=True)
    )
    return compare_scores(found, wanted, precision)
