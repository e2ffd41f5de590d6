"""Throughput of an encoder on this machine, to size a job."""

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import numpy as np

from virnucpro.bundles.bundle import open_bundle
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.batching import BATCH_TOKENS, batches, longest_first
from virnucpro.encoders.ceiling import GemmCeiling
from virnucpro.encoders.device import dtype_of, free_bytes, open_device
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory import require_room
from virnucpro.encoders.registry import config_of, load_encoder, shapes_of, size_named
from virnucpro.encoders.weights.random_weights import write_random_encoder
from virnucpro.pipeline.jobs.job import PrecisionChoice
from virnucpro.pipeline.validation.compute import choose_compute
from virnucpro.pipeline.validation.synthetic import SIX_FRAME, synthetic_items

__all__ = ["BenchOptions", "EncoderFigures", "measure_bundle", "measure_model"]

_SEQUENCES: Final = 1_000
_BATCHES: Final = 8
"""Synthetic sequences, and the number of their batches that are measured."""

_REPEATS: Final = 3
_LONG_BATCH: Final = 60.0
"""Minimum measurements of a batch. A batch that takes longer, in seconds, is measured once."""

_CEILING_SHARE: Final = 0.1
"""Share of the time that only measures the ceiling."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Device, sequence lengths and duration of a measurement.

    Attributes
    ----------
    device, precision, threads
        As `choose_compute` takes them.
    lengths
        As `synthetic_items` takes them.
    seconds
        Duration for one encoder after it is loaded. At least one batch is measured.
    """

    device: str = "auto"
    precision: PrecisionChoice = "auto"
    threads: int = 1
    lengths: str = SIX_FRAME
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class EncoderFigures:
    """Results of one encoder.

    Attributes
    ----------
    batch_tokens
        Token budget of a batch, as at the start of a run.
    batches, sequences, tokens
        Totals of the measured batches, special tokens included.
    repeats
        Minimum measurements of a batch.
    seconds
        Sum of each batch's shortest time: tokenise, collate, encode, copy the vectors to the CPU.
    encoder_seconds
        Part of `seconds` after collating.
    operations_per_token
        Mean of matrix products and attention at these lengths; a multiplication and its addition
        are two.
    ceilings
        Operations per second of matrix products of a layer's shapes, by method; see `GemmCeiling`.
    """

    encoder: str
    device: str
    precision: str
    threads: int
    lengths: str
    batch_tokens: int
    batches: int
    sequences: int
    tokens: int
    repeats: int
    seconds: float
    encoder_seconds: float
    operations_per_token: float
    ceilings: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes and the figures derived from them, ready for JSON."""
        rate = self.operations_per_token * self.tokens / self.encoder_seconds
        ceiling = max(self.ceilings.values())
        return asdict(self) | {
            "tokens_per_second": self.tokens / self.seconds,
            "sequences_per_second": self.sequences / self.seconds,
            "rate": rate,
            "ceiling": ceiling,
            "share_of_ceiling": rate / ceiling,
        }


def measure_model(
    name: str, options: BenchOptions, log: Callable[[str], None] = lambda _: None
) -> list[EncoderFigures]:
    """Measure random weights of a published size, written to a temporary folder.

    Parameters
    ----------
    log
        Called with the name of each step.

    Raises
    ------
    UsageError
        If the size or the lengths are unknown.
    DeviceError
        If the device is missing or has too little free memory. Nothing has been written.
    """
    device, precision = _choose({name: list(size_named(name).tensor_shapes().values())}, options)
    with tempfile.TemporaryDirectory(prefix="virnucpro-bench-") as folder:
        log(f"writing random weights of {name}")
        spec = write_random_encoder(Path(folder), name)
        return [_measure(spec, options, device, precision, log)]


def measure_bundle(
    name: str, options: BenchOptions, log: Callable[[str], None] = lambda _: None
) -> list[EncoderFigures]:
    """Measure each encoder of a bundle; see `measure_model`.

    Raises
    ------
    BundleError
        If the bundle is missing or damaged.
    DeviceError
        If the device is missing or has too little free memory. Nothing has been loaded.
    """
    bundle = open_bundle(name)
    shapes = {spec.name: shapes_of(spec) for spec in bundle.encoders}
    device, precision = _choose(shapes, options, bundle.verified_precisions)
    return [_measure(spec, options, device, precision, log) for spec in bundle.encoders]


def _choose(
    encoders: Mapping[str, Sequence[tuple[int, ...]]],
    options: BenchOptions,
    verified: Collection[str] = (),
) -> tuple[str, Precision]:
    """Resolve device and precision; refuse an encoder that does not fit into free memory."""
    every = [shape for shapes in encoders.values() for shape in shapes]
    device, precision = choose_compute(
        options.device, options.precision, options.threads, every, verified
    )
    for name, shapes in encoders.items():
        require_room(name, shapes, precision, device, free_bytes(open_device(device)), free=True)
    return device, precision


def _measure(
    spec: EncoderSpec,
    options: BenchOptions,
    device: str,
    precision: Precision,
    log: Callable[[str], None],
) -> EncoderFigures:
    """Load an encoder and time batches of all lengths, in turn with matrix products.

    Other processes slow down single batches, so the shortest time of each batch counts.
    """
    work, torch_device = config_of(spec).work(), open_device(device)
    batch_tokens = BATCH_TOKENS["cpu" if torch_device.type == "cpu" else "cuda"]
    sequences = synthetic_items(_SEQUENCES, options.lengths)[spec.view]
    log(f"loading {spec.name} on {device}, {precision}")
    encoder = load_encoder(spec, device, precision)
    log(f"measuring {spec.name} for {options.seconds:g} s, at least one batch")
    sizes = np.array([len(ids) for ids in encoder.tokenise(sequences)], np.int64)
    order = longest_first(sizes)
    cut = [order[one.start : one.stop] for one in batches(sizes[order], lambda _: batch_tokens)]
    chosen = [cut[number] for number in np.random.default_rng(0).permutation(len(cut))[:_BATCHES]]
    until = time.perf_counter() + options.seconds
    ceiling = GemmCeiling(work.products, batch_tokens, torch_device, dtype_of(precision))
    ceiling.measure(_CEILING_SHARE * options.seconds)
    times: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for number in cycle(range(len(chosen))):
        texts, measured = [sequences[row] for row in chosen[number]], times[number]
        for repeat in range(_REPEATS):
            if repeat and measured[0][0] > _LONG_BATCH:
                break
            measured.append(_time_batch(encoder, texts))
            ceiling.turn()
        if time.perf_counter() > until:
            break
    shortest = [min(measured) for measured in times.values()]
    lengths = sizes[np.concatenate([chosen[number] for number in times])]
    return EncoderFigures(
        encoder=spec.name,
        device=device,
        precision=precision,
        threads=options.threads,
        lengths=options.lengths,
        batch_tokens=batch_tokens,
        batches=len(times),
        sequences=len(lengths),
        tokens=int(lengths.sum()),
        repeats=min(map(len, times.values())),
        seconds=sum(total for total, _ in shortest),
        encoder_seconds=sum(encode for _, encode in shortest),
        operations_per_token=work.operations(lengths) / int(lengths.sum()),
        ceilings=ceiling.rates,
    )


def _time_batch(encoder: Encoder, texts: Sequence[bytes]) -> tuple[float, float]:
    """Return the seconds of a batch, in all and after collating."""
    started = time.perf_counter()
    batch = encoder.collate(encoder.tokenise(texts))
    collated = time.perf_counter()
    encoder.encode(batch).cpu()  # waits for a GPU
    ended = time.perf_counter()
    return ended - started, ended - collated
