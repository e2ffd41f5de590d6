"""Compare the throughput of DNABERT-S on one thread with the published tool's way of calling it.

Windows of 500 random bases pass the published shape (12 layers, 768 channels) with random weights.
The reference encodes one window at a time, with tables of scores and bias of all pairs, as the
published code does. Our side encodes batches. The vectors of both are compared before any figure is
printed. The sides alternate in one process; the minimum CPU time of each piece of work counts. The
ceilings are matrix products of the layers' shapes: torch.mm, and with prepacked weights.

    python scripts/bench/dnabert.py [--quick] [--windows 36] [--turns 5] [--tokens 2048]
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from ceiling import GemmCeiling, work_of
from torch.nn.functional import gelu, layer_norm, linear

from virnucpro.arrays import IntArray
from virnucpro.encoders.batching import batches_by_length
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.dnabert_s.encoder import BpeTokeniser
from virnucpro.encoders.dnabert_s.model import DnabertS, head_slopes
from virnucpro.encoders.encoder import Pooled, TorchEncoder
from virnucpro.encoders.pooling import Pooling, PoolingPlan

TOKENIZER = Path(__file__).parents[3] / "shared" / "reference" / "dnabert-s" / "tokenizer.json"
CPU = torch.device("cpu")
PUBLISHED = DnabertSConfig(4096, 768, 12, 12, 3072)
QUICK = DnabertSConfig(4096, 96, 2, 12, 192)
ALIBI_STARTING_SIZE = 512
"""Maximum number of tokens in the published code's bias table."""

Work = Callable[[], torch.Tensor]


class Reference:
    """The published rule, one window at a time, from tensors under their published names."""

    def __init__(self, tensors: dict[str, torch.Tensor], config: DnabertSConfig) -> None:
        self.tensors, self.config = tensors, config
        place = torch.arange(ALIBI_STARTING_SIZE)
        slopes = torch.tensor(head_slopes(config.num_attention_heads))
        distance = (place[:, None] - place).abs()
        dtype = tensors["embeddings.word_embeddings.weight"].dtype
        self.alibi = (-slopes[:, None, None] * distance).to(dtype)[None]

    def __call__(self, ids: IntArray) -> torch.Tensor:
        """Return the mean over all tokens: (1, dim) float32."""
        tokens = torch.from_numpy(ids)[None]
        x = self.tensors["embeddings.word_embeddings.weight"][tokens]
        x = x + self.tensors["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x, "embeddings.LayerNorm")
        width = tokens.shape[1]
        bias = torch.zeros(1, 1, 1, width, dtype=x.dtype) + self.alibi[:, :, :width, :width]
        for number in range(self.config.num_hidden_layers):
            x = self._layer(x, f"encoder.layer.{number}", bias)
        return x.float().mean(dim=1)

    def _layer(self, x: torch.Tensor, name: str, bias: torch.Tensor) -> torch.Tensor:
        heads = self.config.num_attention_heads
        joined = self._linear(x, f"{name}.attention.self.Wqkv").unflatten(2, (3, heads, -1))
        q, k, v = joined.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + bias
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        mixed = self._linear(mixed, f"{name}.attention.output.dense")
        x = self._norm(mixed + x, f"{name}.attention.output.LayerNorm")
        gate, value = linear(x, self.tensors[f"{name}.mlp.gated_layers.weight"]).chunk(2, dim=-1)
        return self._norm(
            self._linear(gelu(gate) * value, f"{name}.mlp.wo") + x, f"{name}.mlp.layernorm"
        )

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return linear(x, self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return layer_norm(x, weight.shape, weight, bias, self.config.layer_norm_eps)


def main() -> None:
    """Print windows per second of each side, and its share of the ceiling."""
    arguments = _arguments()
    torch.set_num_threads(1)
    config = QUICK if arguments.quick else PUBLISHED
    batch = windows(arguments.windows, arguments.tokenizer)
    tokens = sum(len(ids) for ids in batch)
    print(f"{len(batch)} windows of 500 bases, {tokens / len(batch):.1f} tokens each")
    sides: dict[str, list[Work]] = {}
    ceilings: dict[str, GemmCeiling] = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        tensors = random_tensors(config)
        reference = Reference({key: tensor.to(dtype) for key, tensor in tensors.items()}, config)
        products = work_of(config).products
        ceilings[name] = GemmCeiling(products, arguments.tokens, CPU, dtype, time.thread_time)
        sides[f"reference, one by one, {name}"] = [_bound(reference, ids) for ids in batch]
        model = DnabertS(config, tensors, CPU, dtype)
        pooled = Pooled(model, PoolingPlan(Pooling(), config.layout))
        encode = encoding(TorchEncoder("ours", config.hidden_size, "nucleotide", list, pooled, CPU))
        sides[f"virnucpro, {name}"] = [
            _bound(encode, [batch[i] for i in part])
            for part in batches_by_length([len(ids) for ids in batch], arguments.tokens)
        ]
    with torch.inference_mode():
        check(sides, batch)
        report(config, batch, sides, ceilings, arguments)


def windows(n: int, tokenizer: Path) -> list[IntArray]:
    """Tokenise windows of random bases; return the longest first."""
    letters = np.random.default_rng(0).choice(np.frombuffer(b"ACGT", np.uint8), (n, 500))
    tokenised = BpeTokeniser(tokenizer)([row.tobytes() for row in letters])
    return sorted(tokenised, key=len, reverse=True)


def random_tensors(config: DnabertSConfig) -> dict[str, torch.Tensor]:
    """Draw the same weights each time."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator) * 0.02 + name.endswith("orm.weight")
        for name, shape in config.tensor_shapes().items()
    }


def encoding(encoder: TorchEncoder) -> Callable[[list[IntArray]], torch.Tensor]:
    """Collate and encode, as a rank does."""
    return lambda batch: encoder.encode(encoder.collate(batch))


def check(sides: dict[str, list[Work]], batch: list[IntArray]) -> None:
    """Exit unless all sides return the same vectors; this also warms them up."""
    expected, *others = (torch.cat([work() for work in works]) for works in sides.values())
    assert len(expected) == len(batch)
    for name, vectors in zip(list(sides)[1:], others, strict=True):
        cosine = torch.cosine_similarity(vectors, expected).min()
        print(f"  {name:28} against the first: cosine {cosine:.6f} at least")
        assert cosine > (0.99999 if "fp32" in name else 0.999)


def report(
    config: DnabertSConfig,
    batch: list[IntArray],
    sides: dict[str, list[Work]],
    ceilings: dict[str, GemmCeiling],
    arguments: argparse.Namespace,
) -> None:
    """Run all sides alternately, then print throughputs."""
    least = take_turns(sides, ceilings, arguments.turns)
    operations = work_of(config).linear * sum(len(ids) for ids in batch)
    slowest = least["reference, one by one, fp32"]
    for name, seconds in least.items():
        shares = ", ".join(
            f"{operations / seconds / rate:.2f} of {way} ({rate / 1e9:.0f} GFLOP/s)"
            for way, rate in ceilings[name[-4:]].rates.items()
        )
        faster = slowest / seconds
        print(f"  {name:28} {len(batch) / seconds:7.2f} windows/s  {faster:5.2f}x  {shares}")


def take_turns(
    sides: dict[str, list[Work]], ceilings: dict[str, GemmCeiling], turns: int
) -> dict[str, float]:
    """Return the seconds of each side: the sum of the minimum time of each piece."""
    least = {name: [math.inf] * len(pieces) for name, pieces in sides.items()}
    for _ in range(turns):
        for name, pieces in sides.items():
            for place, piece in enumerate(pieces):
                started = time.thread_time()
                piece()
                least[name][place] = min(least[name][place], time.thread_time() - started)
        for ceiling in ceilings.values():
            ceiling.measure(0.0)
    return {name: sum(seconds) for name, seconds in least.items()}


def _bound(call: Callable[..., torch.Tensor], *given: torch.Tensor | Sequence[IntArray]) -> Work:
    return lambda: call(*given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZER, help="a tokenizer.json")
    parser.add_argument("--windows", type=int, default=36)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=2048, help="maximum tokens of a batch")
    parser.add_argument("--quick", action="store_true", help="a small model, as a smoke test")
    return parser.parse_args()


if __name__ == "__main__":
    main()
