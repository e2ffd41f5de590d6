"""Parts that load encoders into this process: parity and throughput."""

import gc
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

import numpy as np
import torch
from gpu_check.library import (
    Batch,
    EncoderSpec,
    ParityOptions,
    TorchEncoder,
    VectorAgreement,
    batches_of,
    compare_vectors,
    dtype_of,
    load_encoder,
    measure_parity,
    operations,
    random_encoder,
    sequences,
)
from gpu_check.peers import Encode, peers_of
from gpu_check.recorder import Recorder
from gpu_check.sizes import Setting
from numpy.typing import NDArray

__all__ = ["check_parity", "check_throughput"]

_LENGTHS = ("six-frame", "20-400")

_CPU_ITEMS = 4
"""Sequences for fp32 on the CPU: the 3B model takes seconds per sequence."""

_LEAST_PEER_COSINE = 0.99
"""Of a peer's vectors with virnucpro's. fair-esm rounds its rotary tables in half precision."""


def check_parity(setting: Setting, recorder: Recorder) -> None:
    """Compare half precision with fp32: all of `mini-deep`, and encoders with random weights."""
    n = setting.sizes.parity_items
    for precision in ("fp32", "fp16", "bf16"):
        recorder.step(f"mini-deep, {precision}")
        options = ParityOptions(
            bundle="mini-deep", device=setting.device, precision=precision, n_sequences=n
        )
        parity = measure_parity(options)
        for agreement in parity.encoders:
            _record(recorder, agreement, f"{precision} against cpu fp32, one by one")
        recorder.require(parity.agrees, f"mini-deep, {precision}: {parity}")
    torch.set_num_threads(_threads(setting))
    names = (setting.sizes.nucleotide, *setting.sizes.proteins)
    specs = [random_encoder(setting.work, name) for name in names]
    texts = [sequences(n, f"1-{setting.sizes.longest}", spec.view) for spec in specs]
    for spec, many in zip(specs, texts, strict=True):
        for precision in ("fp16", "bf16"):
            _compare(setting, recorder, spec, many, (setting.device, precision), setting.device)
    for spec in specs:  # at the end: loading 3B at fp32 on the CPU takes longest
        few = sequences(_CPU_ITEMS, "20-100", spec.view)
        _compare(setting, recorder, spec, few, (setting.device, "fp32"), "cpu")


def _compare(
    setting: Setting,
    recorder: Recorder,
    spec: EncoderSpec,
    texts: Sequence[bytes],
    found_on: tuple[str, str],
    reference: str,
) -> None:
    """Compare a device and a precision with fp32 on the reference device."""
    vectors = []
    for device, precision in (found_on, (reference, "fp32")):
        recorder.step(f"{spec.name}: {len(texts)} sequences, {precision} on {device}")
        encoder = load_encoder(spec, device, precision)
        vectors.append(_encoded(encoder, texts, setting.sizes.batch_tokens))
        del encoder
        _release()
    what = f"{found_on[1]} against {reference} fp32"
    agreement = compare_vectors(spec.name, *vectors, found_on[1])
    _record(recorder, agreement, what)
    recorder.require(agreement.agrees, f"{what}: {agreement}")


def _record(recorder: Recorder, agreement: VectorAgreement, what: str) -> None:
    recorder.figure(
        f"{agreement.encoder} {what}",
        least_cosine=agreement.least_cosine,
        largest_shift=agreement.largest_shift,
        largest_error=agreement.largest_error,
        agrees=agreement.agrees,
    )


def _encoded(encoder: TorchEncoder, texts: Sequence[bytes], tokens: int) -> NDArray[np.float32]:
    """Encode in batches; (n, dim) in the order of `texts`."""
    vectors = np.empty((len(texts), encoder.dim), np.float32)
    for positions, batch in batches_of(encoder.tokenise(texts), tokens):
        vectors[positions] = encoder.vectors(batch)
    return vectors


def check_throughput(setting: Setting, recorder: Recorder) -> None:
    """Measure tokens a second beside torch.mm at the layers' shapes, fair-esm and transformers."""
    torch.set_num_threads(_threads(setting))
    torch.set_grad_enabled(False)
    for name in (*setting.sizes.proteins, setting.sizes.nucleotide):
        recorder.step(f"{name}: loading")
        spec = random_encoder(setting.work, name)
        encoder = load_encoder(spec, setting.device, setting.sizes.precision)
        ids = {
            lengths: encoder.tokenise(sequences(setting.sizes.items, lengths, spec.view))
            for lengths in _LENGTHS
        }
        _throughput_of(setting, recorder, spec, encoder, ids)
        del encoder
        _release()


def _throughput_of(
    setting: Setting,
    recorder: Recorder,
    spec: EncoderSpec,
    encoder: TorchEncoder,
    ids: dict[str, list[NDArray[np.int64]]],
) -> None:
    ceiling = _matrix_rate(setting, operations(spec, [])[0])
    own = ("virnucpro", lambda batch: encoder.encode(encoder.collate(batch)))
    ours: dict[str, tuple[float, torch.Tensor]] = {}
    for side, encode in chain([own], peers_of(spec, setting.device, setting.sizes.precision)):
        recorder.step(f"{spec.name}: {side}")
        for lengths in _LENGTHS:
            row, tokens = f"{spec.name} {lengths} {side}", sum(map(len, ids[lengths]))
            if isinstance(encode, str):
                recorder.figure(row, note=encode)
                continue
            cut = [batch for _, batch in batches_of(ids[lengths], setting.sizes.batch_tokens)]
            seconds, vectors = _timed(setting, encode, cut)
            rate = operations(spec, ids[lengths])[1] / seconds
            own_seconds, expected = ours.setdefault(lengths, (seconds, vectors))
            cosine = torch.cosine_similarity(vectors.float(), expected.float()).min().item()
            columns = {"tokens/s": tokens / seconds, "TFLOP/s": rate / 1e12}
            columns |= {"torch.mm TFLOP/s": ceiling / 1e12, "share of torch.mm": rate / ceiling}
            columns |= {"virnucpro's speed over it": seconds / own_seconds, "least cosine": cosine}
            recorder.figure(row, **columns)
            recorder.require(cosine >= _LEAST_PEER_COSINE, f"{row}: cosine {cosine:.4f}")
        _release()


def _timed(setting: Setting, encode: Encode, chosen: Sequence[Batch]) -> tuple[float, torch.Tensor]:
    """Return the least seconds of a pass over all batches, and its vectors.

    Batches follow each other without a wait, as in a run; the first pass is not counted.
    """
    vectors = [encode(batch) for batch in chosen]
    _wait(setting)
    least, until = float("inf"), time.perf_counter() + setting.sizes.seconds
    while least == float("inf") or time.perf_counter() < until:
        started = time.perf_counter()
        vectors = [encode(batch) for batch in chosen]
        _wait(setting)
        least = min(least, time.perf_counter() - started)
    return least, torch.cat(vectors)


def _matrix_rate(setting: Setting, products: Sequence[tuple[int, int]]) -> float:
    """Return the operations a second of torch.mm at a layer's shapes."""
    rows, dtype = setting.sizes.batch_tokens // 4, dtype_of(setting.sizes.precision)
    seconds = 0.0
    for inputs, outputs in products:
        x = torch.randn(rows, inputs, device=setting.device).to(dtype)
        weight = torch.randn(outputs, inputs, device=setting.device).to(dtype)
        seconds += _least_seconds(setting, partial(torch.mm, x, weight.T))
    return sum(2 * rows * inputs * outputs for inputs, outputs in products) / seconds


def _least_seconds(setting: Setting, work: Callable[[], torch.Tensor]) -> float:
    """Return the seconds of one call of ten in a row, the best of several turns."""
    least = float("inf")
    for _ in range(4):
        _wait(setting)
        started = time.perf_counter()
        for _ in range(10):
            work()
        _wait(setting)
        least = min(least, (time.perf_counter() - started) / 10)
    return least


def _wait(setting: Setting) -> None:
    if setting.gpu:
        torch.cuda.synchronize()


def _threads(setting: Setting) -> int:
    """Return the number of CPU threads: all beside a GPU, else one as in a worker."""
    return len(os.sched_getaffinity(0)) if setting.gpu else 1


def _release() -> None:
    """Return cached device memory to the driver."""
    gc.collect()
    torch.cuda.empty_cache()
