"""Compare the throughput of ESM-2 on one thread with fair-esm and Hugging Face transformers.

Random peptides are sorted by length and cut into batches of up to 2,048 tokens; all sides encode
the same sample of these batches with the same random weights. The peers pad their batches, as the
published tool does; padding tokens are not counted. The vectors are compared before any figure is
printed. The sides alternate in one process; the minimum CPU time of the thread counts for each
batch. The ceilings are matrix products of the layers' shapes: torch.mm, and with prepacked weights.
--malloc rank gives all sides the memory settings of a rank; the default is that of the C library.

    python scripts/bench/encoders.py [--quick] [--model esm2_t12_35M_UR50D] [--turns 3]

fair-esm and transformers are part of the extra `bench`. A message reports a missing peer.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec

import numpy as np
import torch
from ceiling import LAID_OUT, TORCH_MM, GemmCeiling, work_of
from esm.model.esm2 import ESM2
from esm_peers import Peer, fair_esm, transformers

from virnucpro.arrays import IntArray
from virnucpro.encoders.batching import batches_by_length
from virnucpro.encoders.encoder import CPU_STEP, Pooled, pack
from virnucpro.encoders.esm2.config import Esm2Config, tokenise_residues
from virnucpro.encoders.esm2.model import Esm2
from virnucpro.encoders.pooling import Pooling, PoolingPlan
from virnucpro.encoders.registry import PUBLISHED
from virnucpro.lab.validation.synthetic import SIX_FRAME, synthetic_items
from virnucpro.runtime.child import keep_freed_memory

CPU = torch.device("cpu")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LEAST_COSINE = {"fp32": 0.999999, "bf16": 0.999}
"""Tolerance of our vectors. The difference of the peers at bf16 is printed only."""

Batch = Sequence[IntArray]
Side = Callable[[Batch], torch.Tensor]


def main() -> None:
    """Print one table per kind of lengths, with ratios to the peers."""
    arguments = _arguments()
    if arguments.malloc == "rank":
        keep_freed_memory()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    config = Esm2Config(2, 96, 4) if arguments.quick else PUBLISHED[arguments.model]
    if not find_spec("transformers"):
        print("transformers is not installed: the rows of HF's model are missing")
    sides = dict(_sides(config, arguments.precisions))
    for lengths in arguments.lengths:
        chosen = _batches(arguments, lengths)
        _check(sides, chosen, lengths)
        _print(arguments, config, lengths, chosen, _times(sides, chosen, config, arguments))


def _sides(config: Esm2Config, precisions: Sequence[str]) -> Iterator[tuple[tuple[str, str], Side]]:
    theirs = ESM2(config.num_layers, config.embed_dim, config.attention_heads)
    tensors = {
        name: tensor
        for name, tensor in theirs.state_dict().items()
        if not name.startswith(("lm_head", "contact_head"))
    }
    for precision in precisions:
        dtype = DTYPES[precision]
        plan = PoolingPlan(Pooling(), config.layout)
        own = Pooled(Esm2(config, tensors, CPU, dtype), plan)
        yield ("ours", precision), lambda batch, own=own: own(pack(batch, CPU_STEP))
        yield ("fair-esm", precision), Peer(fair_esm(config, tensors, "cpu", dtype), "cpu")
        if find_spec("transformers"):
            yield ("HF, sdpa", precision), Peer(transformers(config, tensors, "cpu", dtype), "cpu")


def _batches(arguments: argparse.Namespace, lengths: str) -> list[Batch]:
    """Cut all peptides into batches; return a sample spread evenly over the lengths."""
    ids = tokenise_residues(synthetic_items(arguments.peptides, lengths)["protein"])
    parts = batches_by_length([len(one) for one in ids], arguments.tokens)
    cut = [[ids[i] for i in part] for part in parts]
    middle = np.linspace(0, len(cut), arguments.batches, endpoint=False)
    return [cut[int(k + len(cut) / arguments.batches / 2)] for k in middle]


def _check(sides: Mapping[tuple[str, str], Side], chosen: Sequence[Batch], lengths: str) -> None:
    print(f"\nleast cosine with fair-esm at fp32, {lengths}, all batches")
    expected = [sides["fair-esm", "fp32"](batch) for batch in chosen]
    for (name, precision), side in sides.items():
        cosine = min(
            torch.cosine_similarity(side(batch), vectors).min().item()
            for batch, vectors in zip(chosen, expected, strict=True)
        )
        print(f"{name:14} {precision:5}{cosine:10.6f}")
        if name == "ours" or precision == "fp32":
            assert cosine > LEAST_COSINE[precision], (name, precision, cosine)


def _times(
    sides: Mapping[tuple[str, str], Side],
    chosen: Sequence[Batch],
    config: Esm2Config,
    arguments: argparse.Namespace,
) -> dict[tuple[str, str], float]:
    """Return minimum seconds of all batches, and of the ceilings for the same tokens."""
    work, rows = work_of(config), sum(len(ids) for ids in chosen[0])
    ceilings = {
        precision: GemmCeiling(work.products, rows, CPU, DTYPES[precision], time.thread_time)
        for precision in arguments.precisions
    }
    least = {(side, number): float("inf") for side in sides for number in range(len(chosen))}
    for _ in range(arguments.turns):
        for number, batch in enumerate(chosen):
            for side, encode in sides.items():
                started = time.thread_time()
                encode(batch)
                least[side, number] = min(least[side, number], time.thread_time() - started)
        for ceiling in ceilings.values():
            ceiling.measure(0.0)
    seconds = {side: sum(least[side, n] for n in range(len(chosen))) for side in sides}
    operations = work.linear * sum(len(ids) for batch in chosen for ids in batch)
    for precision, ceiling in ceilings.items():
        seconds |= {(way, precision): operations / rate for way, rate in ceiling.rates.items()}
    return seconds


def _print(
    arguments: argparse.Namespace,
    config: Esm2Config,
    lengths: str,
    chosen: Sequence[Batch],
    seconds: Mapping[tuple[str, str], float],
) -> None:
    tokens = sum(len(ids) for batch in chosen for ids in batch)
    padded = sum(len(batch) * max(len(ids) for ids in batch) for batch in chosen)
    print(
        f"\n{config.num_layers} layers of {config.embed_dim}, {lengths}: {len(chosen)} batches of "
        f"up to {arguments.tokens} tokens, {tokens} in all; peers pad by {1 - tokens / padded:.1%}"
    )
    print(f"{'':28}{'tokens/s':>10}{'of torch.mm':>13}{'of laid out':>13}{'ours over it':>14}")
    for precision in arguments.precisions:
        for side in (key for key in seconds if key[1] == precision):
            shares = (
                f"{seconds[way, precision] / seconds[side]:13.2f}"
                if (way, precision) in seconds
                else f"{'no kernels':>13}"
                for way in (TORCH_MM, LAID_OUT)
            )
            print(
                f"{side[0]:22} {precision:5}{tokens / seconds[side]:10.0f}{''.join(shares)}"
                f"{seconds[side] / seconds['ours', precision]:14.2f}"
            )
    if "bf16" in arguments.precisions:
        ratio = seconds["fair-esm", "fp32"] / seconds["ours", "bf16"]
        print(f"ours at bf16 over fair-esm at fp32: {ratio:.2f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test with a tiny model")
    models = [name for name in PUBLISHED if name.startswith("esm2")]
    parser.add_argument("--model", default="esm2_t12_35M_UR50D", choices=models)
    parser.add_argument("--lengths", nargs="+", default=[SIX_FRAME, "20-400"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=DTYPES)
    parser.add_argument("--peptides", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2048, help="maximum tokens of a batch")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--malloc", default="system", choices=["system", "rank"])
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.peptides, arguments.batches, arguments.turns = 200, 2, 1
    if "fp32" not in arguments.precisions:
        parser.error("fp32 is the reference of the other precisions: include it")
    return arguments


if __name__ == "__main__":
    main()
