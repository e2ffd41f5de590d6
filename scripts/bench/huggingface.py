"""Compare the engine for Hugging Face folders with a plain loop over transformers.

A BERT with random weights is saved as a folder, and opened as users' models are. The plain loop
pads batches of windows, sorted by length, and takes means in fp32. The sides alternate in one
process of one thread; the minimum CPU time of each counts. The vectors are compared before any
figure is printed.

    python scripts/bench/huggingface.py [--quick] [--windows 128] [--turns 3]
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
import transformers

from virnucpro.arrays import Float32Array
from virnucpro.encoders.batching import BATCH_TOKENS, batches_by_length
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.registry import load_encoder, open_spec

TOKENIZER: Final = Path(__file__).parents[2] / "virnucpro/bundles/mini-deep/tokenizer.json"
LENGTHS: Final = (60, 500)
"""Bases of the shortest and of the longest window."""
BATCH: Final = 16
"""Windows of a batch of the plain loop: about as many tokens as in ours."""

Side = Callable[[], Float32Array]


def main() -> None:
    """Print windows per second of each side."""
    arguments = _arguments()
    torch.set_num_threads(1)
    size = (2, 48) if arguments.quick else (6, 480)
    dice = np.random.default_rng(0)
    letters = np.frombuffer(b"ACGT", np.uint8)
    windows = [
        dice.choice(letters, n).tobytes() for n in dice.integers(*LENGTHS, arguments.windows)
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save_bert(folder, *size)
        spec = open_spec(folder)
        sides: dict[str, Side] = {"plain loop, fp32": lambda: plain(folder, model, windows)}
        for precision in ("fp32", "bf16"):
            encoder = load_encoder(spec, precision=precision)
            sides[f"virnucpro, {precision}"] = lambda e=encoder: ours(e, windows)  # type: ignore[misc]
        with torch.inference_mode():
            report(sides, arguments.turns)


def save_bert(folder: Path, n_layers: int, width: int) -> transformers.BertModel:
    """Save tokenizer, settings and weights of a BERT in a folder; return the model."""
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep")}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), **special)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=n_layers,
        num_attention_heads=width // 24,
        intermediate_size=4 * width,
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    return model


def plain(folder: Path, model: transformers.BertModel, windows: Sequence[bytes]) -> Float32Array:
    """Return the mean of each window's states, without first and last token, ``(n, width)``."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    vectors = np.empty((len(windows), model.config.hidden_size), np.float32)
    order = np.argsort([len(window) for window in windows])
    for rows in (order[first : first + BATCH] for first in range(0, len(order), BATCH)):
        texts = [windows[row].decode() for row in rows]
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        states = model(batch["input_ids"], batch["attention_mask"]).last_hidden_state
        counted = batch["attention_mask"].clone()
        counted[:, 0] = 0
        counted[torch.arange(len(rows)), batch["attention_mask"].sum(1) - 1] = 0
        sums = (states * counted[:, :, None]).sum(1)
        vectors[rows] = (sums / counted.sum(1, keepdim=True)).numpy()
    return vectors


def ours(encoder: Encoder, windows: Sequence[bytes]) -> Float32Array:
    """Return the same vectors, as a rank computes them."""
    ids = encoder.tokenise(windows)
    vectors = np.empty((len(ids), encoder.dim), np.float32)
    for rows in batches_by_length([len(row) for row in ids], BATCH_TOKENS["cpu"]):
        vectors[rows] = encoder.vectors([ids[row] for row in rows])
    return vectors


def report(sides: dict[str, Side], turns: int) -> None:
    """Compare the vectors of all sides, then time them in turns."""
    expected, *others = (side() for side in sides.values())
    for name, vectors in zip(list(sides)[1:], others, strict=True):
        error = np.linalg.norm(vectors - expected) / np.linalg.norm(expected)
        print(f"  {name:18} relative error {error:.1e}")
        assert error < (1e-4 if "fp32" in name else 0.02)
    least = dict.fromkeys(sides, float("inf"))
    for _ in range(turns):
        for name, side in sides.items():
            started = time.thread_time()
            side()
            least[name] = min(least[name], time.thread_time() - started)
    slowest = least["plain loop, fp32"]
    for name, seconds in least.items():
        rate = len(expected) / seconds
        print(f"  {name:18} {rate:8.1f} windows/s  {slowest / seconds:5.2f}x")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test with a tiny model")
    parser.add_argument("--windows", type=int, default=128)
    parser.add_argument("--turns", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
