"""Parts that load encoders into this process: parity and throughput."""

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain

import torch
from bench.ceiling import TORCH_MM, GemmCeiling, Work, work_of
from bench.esm_peers import Peer, fair_esm, transformers
from gpu_check.recorder import Recorder
from gpu_check.sizes import Setting
from gpu_check.weights import random_encoder
from safetensors.torch import load_file

from virnucpro.arrays import IntArray
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.batching import batches_by_length
from virnucpro.encoders.device import dtype_of
from virnucpro.encoders.encoder import TorchEncoder
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.registry import config_of, load_encoder
from virnucpro.lab.validation.options import BenchOptions
from virnucpro.lab.validation.parity import (
    Agreement,
    compare_vectors,
    encode_all,
    measure_parity,
)
from virnucpro.lab.validation.synthetic import synthetic_items

Batch = Sequence[IntArray]
Encode = Callable[[Batch], torch.Tensor]
"""Token ids of a batch -> (n, dim) float32 on the device."""

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
        options = BenchOptions(
            bundle="mini-deep", device=setting.device, precision=precision, n_sequences=n
        )
        for agreement in measure_parity(options):
            _record(recorder, agreement, f"{precision} against cpu fp32, one by one")
            recorder.require(agreement.agrees, f"mini-deep, {precision}: {agreement}")
    torch.set_num_threads(_threads(setting))
    names = (setting.sizes.nucleotide, *setting.sizes.proteins)
    specs = [random_encoder(setting.work, name) for name in names]
    items = synthetic_items(n, f"1-{setting.sizes.longest}")
    for spec in specs:
        for precision in ("fp16", "bf16"):
            found_on = (setting.device, precision)
            _compare(setting, recorder, spec, items[spec.view], found_on, setting.device)
    for spec in specs:  # at the end: loading 3B at fp32 on the CPU takes longest
        few = synthetic_items(_CPU_ITEMS, "20-100")[spec.view]
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
        vectors.append(encode_all(encoder, texts, setting.sizes.batch_tokens))
        del encoder
        _release()
    what = f"{found_on[1]} against {reference} fp32"
    agreement = compare_vectors(spec.name, *vectors, found_on[1])
    _record(recorder, agreement, what)
    recorder.require(agreement.agrees, f"{what}: {agreement}")


def _record(recorder: Recorder, agreement: Agreement, what: str) -> None:
    recorder.figure(
        f"{agreement.what} {what}",
        least_cosine=agreement.least_cosine,
        largest_shift=agreement.largest_shift,
        largest_error=agreement.largest_error,
        agrees=agreement.agrees,
    )


def check_throughput(setting: Setting, recorder: Recorder) -> None:
    """Measure tokens a second beside torch.mm at the layers' shapes, fair-esm and transformers."""
    torch.set_num_threads(_threads(setting))
    torch.set_grad_enabled(False)
    for name in (*setting.sizes.proteins, setting.sizes.nucleotide):
        recorder.step(f"{name}: loading")
        spec = random_encoder(setting.work, name)
        encoder = load_encoder(spec, setting.device, setting.sizes.precision)
        sizes = setting.sizes
        n = sizes.proteins_timed if spec.view == "protein" else sizes.bases_timed
        ids = {
            lengths: encoder.tokenise(synthetic_items(n, lengths)[spec.view])
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
    ids: dict[str, list[IntArray]],
) -> None:
    work = work_of(config_of(spec))
    ceiling = _matrix_rate(setting, work)
    own = ("virnucpro", lambda batch: encoder.encode(encoder.collate(batch)))
    ours: dict[str, tuple[float, torch.Tensor]] = {}
    for side, encode in chain([own], _peers_of(spec, setting.device, setting.sizes.precision)):
        recorder.step(f"{spec.name}: {side}")
        for lengths in _LENGTHS:
            row, n_tokens = f"{spec.name} {lengths} {side}", [len(one) for one in ids[lengths]]
            if isinstance(encode, str):
                recorder.figure(row, note=encode)
                continue
            parts = batches_by_length(n_tokens, setting.sizes.batch_tokens)
            cut = [[ids[lengths][i] for i in part] for part in parts]
            seconds, vectors = _timed(setting, encode, cut)
            rate = work.operations(n_tokens) / seconds
            own_seconds, expected = ours.setdefault(lengths, (seconds, vectors))
            cosine = torch.cosine_similarity(vectors.float(), expected.float()).min().item()
            columns = {"tokens/s": sum(n_tokens) / seconds, "TFLOP/s": rate / 1e12}
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


def _peers_of(spec: EncoderSpec, device: str, precision: str) -> Iterator[tuple[str, Encode | str]]:
    """Yield each peer's name with its encode function, or with the reason why it is missing."""
    config = config_of(spec)
    if not isinstance(config, Esm2Config):
        return
    builders = {"fair-esm": ("esm", fair_esm), "transformers": ("transformers", transformers)}
    for name, (module, build) in builders.items():
        if find_spec(module) is None:
            yield name, "missing"
            continue
        try:
            tensors = load_file(spec.file("weights"), device)
            yield name, Peer(build(config, tensors, device, dtype_of(precision)), device)
        except Exception as error:  # noqa: BLE001 - a missing peer is not a failure
            yield name, f"cannot be built: {type(error).__name__}: {error}"


def _matrix_rate(setting: Setting, work: Work) -> float:
    """Return the operations a second of torch.mm at a layer's shapes."""
    device, dtype = torch.device(setting.device), dtype_of(setting.sizes.precision)
    ceiling = GemmCeiling(work.products, setting.sizes.batch_tokens // 4, device, dtype)
    ceiling.measure(setting.sizes.seconds / 4)
    return ceiling.rates[TORCH_MM]


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
