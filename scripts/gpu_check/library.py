"""All imports of virnucpro's modules: adapt this file alone when a module moves."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from bench.ceiling import work_of
from numpy.typing import NDArray
from safetensors.numpy import save_file
from soaking.checks import table_problems
from soaking.signals import wait_for_empty_session

from virnucpro.bundles.bundle import open_bundle
from virnucpro.bundles.manifest import encoder_entry
from virnucpro.classifier.head import head_shapes
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.batching import batches, longest_first
from virnucpro.encoders.device import dtype_of
from virnucpro.encoders.encoder import TorchEncoder
from virnucpro.encoders.registry import config_of, load_encoder
from virnucpro.encoders.weights.random_weights import write_random_encoder
from virnucpro.lab.validation.options import ParityOptions
from virnucpro.lab.validation.parity import VectorAgreement, compare_vectors, measure_parity
from virnucpro.lab.validation.synthetic import synthetic_items
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import gpu_facts, visible_gpus

__all__ = [
    "Batch",
    "EncoderSpec",
    "ParityOptions",
    "TorchEncoder",
    "VectorAgreement",
    "batches_of",
    "compare_vectors",
    "dtype_of",
    "first_gpu",
    "free_memory",
    "left_processes",
    "load_encoder",
    "measure_parity",
    "operations",
    "random_bundle",
    "random_encoder",
    "sequences",
    "table_differences",
]

Batch = list[NDArray[np.int64]]

MEMORY_LIMIT = """
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    import torch
    from virnucpro.encoders.encoder import TorchEncoder

    encode = TorchEncoder.encode

    def limited(self, batch):
        if batch.total > {tokens}:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0")
        return encode(self, batch)

    TorchEncoder.encode = limited
"""
"""Content of a sitecustomize.py: workers' encoders raise for batches above {tokens} tokens."""


def random_encoder(work: Path, name: str) -> EncoderSpec:
    """Write an encoder with random weights once; ``mini-deep`` is that of this bundle."""
    if name == "mini-deep":
        return open_bundle("mini-deep").encoders[0]
    folder, settings = work / name, work / f"{name}.json"
    if not settings.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(encoder_entry(write_random_encoder(folder, name))))
    return EncoderSpec(folder=folder, **json.loads(settings.read_text()))


def random_bundle(work: Path, nucleotide: str, protein: str) -> Path:
    """Write a bundle of two encoders and a random head once; its weights are symbolic links."""
    folder = work / f"bundle-{nucleotide}-{protein}"
    manifest = folder / "bundle.json"
    if manifest.is_file():
        return folder
    folder.mkdir(exist_ok=True)
    specs = [random_encoder(work, name) for name in (nucleotide, protein)]
    _write_head(folder / "head.safetensors", sum(spec.dim for spec in specs))
    entries = [_linked(folder, spec) for spec in specs]
    members = [path for path in folder.iterdir() if path.name != manifest.name]
    content = {
        "schema_version": 1,
        "name": folder.name,
        "version": "1",
        "description": "random weights",
        "encoders": entries,
        "head": "head.safetensors",
        "window": 500,
        "tiling": "published",
        "genetic_code": 1,
        "labels": ["others", "virus"],
        "thresholds": {"viral": 0.5, "non_viral": 0.5},
        "metrics": {},
        "provenance": {},
        "files": {path.name: _digest(path) for path in members},
    }
    manifest.write_text(json.dumps(content))
    return folder


def _linked(folder: Path, spec: EncoderSpec) -> dict[str, object]:
    """Link an encoder's files into a bundle; return its entry in the manifest."""
    files = {}
    for role in spec.files:
        source = spec.file(role)
        files[role] = f"{spec.view}{source.suffix}"
        (folder / files[role]).unlink(missing_ok=True)
        (folder / files[role]).symlink_to(source)
    return encoder_entry(spec) | {"files": files}


def _write_head(path: Path, dim: int) -> None:
    dice = np.random.default_rng(3)
    tensors = {
        name: dice.normal(0, 0.05, shape).astype(np.float32)
        for name, shape in head_shapes((dim, 512, 2)).items()
    }
    for name, tensor in tensors.items():
        if name.endswith(("running_var", "norm.weight")):
            tensor[:] = 1
    save_file(tensors, path)


def _digest(path: Path) -> dict[str, object]:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"sha256": digest, "bytes": path.stat().st_size}


def sequences(n: int, lengths: str, view: str) -> tuple[bytes, ...]:
    """Draw `n` synthetic sequences: ``six-frame`` lengths, or residues as ``A-B``."""
    return tuple(synthetic_items(n, lengths)[view])


def batches_of(ids: Sequence[NDArray[np.int64]], tokens: int) -> Iterator[tuple[list[int], Batch]]:
    """Cut sequences into batches as a run does: their positions, and their ids, longest first."""
    order = longest_first([len(one) for one in ids]).tolist()
    for piece in batches([len(ids[i]) for i in order], lambda _: tokens):
        chosen = order[piece.start : piece.stop]
        yield chosen, [ids[i] for i in chosen]


def operations(spec: EncoderSpec, ids: Batch) -> tuple[list[tuple[int, int]], int]:
    """Return a layer's matrix products (inputs, outputs), and all operations for these ids."""
    work = work_of(config_of(spec))
    products = [(one.inputs, one.outputs) for one in work.products]
    return products, work.operations([len(one) for one in ids])


def table_differences(expected: Path, found: Path) -> list[str]:
    """List the differences of two run folders' tables and vectors beyond rounding."""
    return list(table_problems(RunDirectory(expected), RunDirectory(found)))


def left_processes(session: int, seconds: float) -> list[int]:
    """Wait until a session has no process; kill and return the remaining process ids."""
    return wait_for_empty_session(session, seconds)


def first_gpu() -> tuple[str, str]:
    """Return the mask entry and the UUID of the first visible GPU."""
    return next(iter(visible_gpus(os.environ).items()))


def free_memory() -> int:
    """Return the free bytes of the first GPU as its driver reports them, without a CUDA context."""
    return gpu_facts(first_gpu()[1]).free_memory
