"""Measure the throughput of an encoder on this machine, to estimate the time of a job."""

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
from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.encoders.batching import BATCH_TOKENS, batches_by_length
from virnucpro.encoders.device import free_bytes, open_device
from virnucpro.encoders.memory import require_memory
from virnucpro.encoders.registry import load_encoder, shapes_of, size_named
from virnucpro.encoders.weights.random_weights import write_random_encoder
from virnucpro.lab.validation.compute import choose_compute
from virnucpro.lab.validation.options import BenchOptions
from virnucpro.lab.validation.synthetic import synthetic_items
from virnucpro.temporary import owned_prefix

_SEQUENCES: Final = 1_000
_BATCHES: Final = 8
"""Number of synthetic sequences, and maximum number of their batches that are measured."""

_REPEATS: Final = 3
_LONG_BATCH: Final = 60.0
"""Each batch is measured `_REPEATS` times in a row, or once if it takes over `_LONG_BATCH` seconds.
"""


@dataclass(frozen=True, slots=True)
class EncoderFigures:
    """Measured throughput of one encoder.

    Attributes
    ----------
    batch_tokens
        Token budget of a batch, as at the start of a run.
    batches, sequences, tokens
        Number of measured batches, and of their sequences and tokens (with special tokens).
    repeats
        Number of times that each batch was measured; the lowest number if the numbers differ.
    seconds
        Time to compute all batches once: the sum of the shortest time of each batch. The time
        includes tokenising, collating, encoding, and the copy of the vectors to the CPU.
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

    def as_dict(self) -> dict[str, Any]:
        """Return all figures, with tokens and sequences per second, as plain data for JSON."""
        return asdict(self) | {
            "tokens_per_second": self.tokens / self.seconds,
            "sequences_per_second": self.sequences / self.seconds,
        }


def measure_model(
    name: str, options: BenchOptions, log: Callable[[str], None] = lambda _: None
) -> list[EncoderFigures]:
    """Measure the throughput of the published encoder size `name`, with random weights.

    The weights are written to a temporary folder. The result is a list with one entry.

    Parameters
    ----------
    log
        Called with a text before each step.

    Raises
    ------
    UsageError
        If the size or the lengths are unknown.
    DeviceError
        If the device is missing or has too little free memory. Nothing has been written.
    """
    device, precision = _choose({name: list(size_named(name).tensor_shapes().values())}, options)
    with tempfile.TemporaryDirectory(prefix=owned_prefix("bench")) as folder:
        log(f"writing random weights of {name}")
        spec = write_random_encoder(Path(folder), name)
        return [_measure(spec, options, device, precision, log)]


def measure_bundle(
    name: str, options: BenchOptions, log: Callable[[str], None] = lambda _: None
) -> list[EncoderFigures]:
    """Measure the throughput of each encoder of a bundle; see `measure_model`.

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
    """Return device and precision for `options`; raise DeviceError if free memory is too small.

    `encoders` contains the shapes of all weights of each encoder.
    """
    every = [shape for shapes in encoders.values() for shape in shapes]
    device, precision = choose_compute(options, every, verified)
    for name, shapes in encoders.items():
        require_memory(name, shapes, precision, device, free_bytes(open_device(device)), free=True)
    return device, precision


def _measure(
    spec: EncoderSpec,
    options: BenchOptions,
    device: str,
    precision: Precision,
    log: Callable[[str], None],
) -> EncoderFigures:
    """Load an encoder, and measure its throughput with random batches of synthetic sequences.

    Other processes can slow down a measurement, so the shortest time of each batch is used.
    """
    batch_tokens = BATCH_TOKENS["cpu" if device == "cpu" else "cuda"]
    sequences = synthetic_items(_SEQUENCES, options.lengths)[spec.view]
    log(f"loading {spec.name} on {device}, {precision}")
    encoder = load_encoder(spec, device, precision)
    log(f"measuring {spec.name} for {options.seconds:g} s, at least one batch")
    sizes = np.array([len(ids) for ids in encoder.tokenise(sequences)], np.int64)
    cut = batches_by_length(sizes, batch_tokens)
    chosen = [cut[number] for number in np.random.default_rng(0).permutation(len(cut))[:_BATCHES]]
    until = time.perf_counter() + options.seconds
    times: defaultdict[int, list[float]] = defaultdict(list)
    for number in cycle(range(len(chosen))):
        texts, measured = [sequences[row] for row in chosen[number]], times[number]
        for repeat in range(_REPEATS):
            if not repeat or measured[0] <= _LONG_BATCH:
                measured.append(_time_batch(encoder, texts))
        if time.perf_counter() > until:
            break
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
        seconds=sum(map(min, times.values())),
    )


def _time_batch(encoder: Encoder, texts: Sequence[bytes]) -> float:
    """Encode the batch `texts` with `encoder`; return the time in seconds."""
    started = time.perf_counter()
    encoder.vectors(encoder.tokenise(texts))
    return time.perf_counter() - started
