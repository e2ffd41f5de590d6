"""Measure the throughput of encoders on this machine, to estimate the time of a job."""

import time
from collections import defaultdict
from itertools import cycle
from typing import Final, NamedTuple

import numpy as np

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.batching import BATCH_TOKENS, batches_by_length
from virnucpro.encoders.registry import load_encoder, shapes_of
from virnucpro.lab.validation.compute import choose_compute, choose_model
from virnucpro.lab.validation.options import BenchOptions
from virnucpro.lab.validation.synthetic import synthetic_items

_SEQUENCES: Final = 1_000
_BATCHES: Final = 8
"""Number of synthetic sequences, and maximum number of their batches that are measured."""


class Throughput(NamedTuple):
    """Measured throughput of one encoder.

    Attributes
    ----------
    sequences, tokens
        Number of measured sequences, and of their tokens with special tokens.
    seconds
        Time to compute all batches once: the sum of the shortest time of each batch. The time
        includes tokenising, collating, encoding, and the copy of the vectors to the CPU.
    """

    encoder: str
    device: str
    precision: str
    threads: int
    lengths: str
    sequences: int
    tokens: int
    seconds: float
    tokens_per_second: float
    sequences_per_second: float


def measure_throughput(options: BenchOptions) -> list[Throughput]:
    """Measure the throughput of each encoder of a bundle, or of one encoder.

    Raises
    ------
    BundleError, DeviceError, UsageError
        If the model, the device or the lengths cannot be used.
    """
    specs, _ = choose_model(options)
    device, precision = choose_compute(options, shapes_of(*specs))
    return [_measure(spec, options, device, precision) for spec in specs]


def _measure(
    spec: EncoderSpec, options: BenchOptions, device: str, precision: Precision
) -> Throughput:
    """Load an encoder, and measure its throughput with random batches of synthetic sequences.

    Other processes can slow down a measurement, so the shortest time of each batch is used.
    """
    sequences = synthetic_items(_SEQUENCES, options.lengths)[spec.view]
    encoder = load_encoder(spec, device, precision)
    sizes = np.array([len(ids) for ids in encoder.tokenise(sequences)], np.int64)
    batches = batches_by_length(sizes, BATCH_TOKENS["cpu" if device == "cpu" else "cuda"])
    order = np.random.default_rng(0).permutation(len(batches))[:_BATCHES].tolist()
    until = time.perf_counter() + options.seconds
    shortest: defaultdict[int, float] = defaultdict(lambda: np.inf)
    for number in cycle(order):
        started = time.perf_counter()
        encoder.vectors(encoder.tokenise([sequences[row] for row in batches[number]]))
        ended = time.perf_counter()
        shortest[number] = min(shortest[number], ended - started)
        if ended > until:
            break
    lengths = sizes[np.concatenate([batches[number] for number in shortest])]
    tokens, seconds = int(lengths.sum()), sum(shortest.values())
    return Throughput(
        *(spec.name, device, precision, options.threads, options.lengths),
        *(len(lengths), tokens, seconds, tokens / seconds, len(lengths) / seconds),
    )
