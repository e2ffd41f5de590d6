"""Encode and score all rows of a run's index in one process, and keep the results in memory.

`overhead.py` starts it. It reads the index of an existing run, imports only the modules that it
needs, and prints its measurements as JSON.

    python scripts/bench/bare_loop.py RUN SCORES.npy
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from virnucpro.arrays import Float32Array
from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.head import load_head
from virnucpro.encoders.batching import BATCH_TOKENS, batches_by_length
from virnucpro.encoders.registry import load_encoder
from virnucpro.run.manifest import read_manifest
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds


class BareLoop:
    """The bare loop from an index to scores.

    Parameters
    ----------
    run
        A run of the bundle `mini-deep`; its index is read.
    """

    def __init__(self, run: RunDirectory) -> None:
        torch.set_num_threads(1)
        self.bundle = open_bundle("mini-deep")
        self.manifest = read_manifest(run)
        self.index = SequenceIndex.open(run.index)
        caps = self.manifest.units
        self.bounds = unit_bounds(self.index.row_lengths, caps["rows"], caps["positions"])
        self._encoders = [load_encoder(spec) for spec in self.bundle.encoders]
        self._head = load_head(self.bundle.head)

    def unit(self, first: int, last: int) -> tuple[Float32Array, Float32Array]:
        """Return vectors (n, D) and scores (n, 2) of the rows ``first`` to ``last - 1``."""
        parts = []
        for encoder in self._encoders:
            ids = encoder.tokenise(self.index.sequences(np.arange(first, last), encoder.view))
            part = np.empty((len(ids), encoder.dim), np.float32)
            for rows in batches_by_length([len(row) for row in ids], BATCH_TOKENS["cpu"]):
                part[rows] = encoder.vectors([ids[row] for row in rows])
            parts.append(part)
        vectors = np.concatenate(parts, axis=1)
        return vectors, self._head.scores(vectors)


def bare(run: RunDirectory, scores: Path) -> dict[str, float]:
    """Encode and score all rows; keep the results in memory."""
    started = time.perf_counter()
    loop = BareLoop(run)
    loaded = time.perf_counter()
    kept = [loop.unit(int(first), int(last)) for first, last in pairwise(loop.bounds)]
    ended = time.perf_counter()
    np.save(scores, np.concatenate([one for _, one in kept]))
    return {"load": loaded - started, "loop": ended - loaded, "rows": float(loop.bounds[-1])}


if __name__ == "__main__":
    _, run_folder, scores_file = sys.argv
    print(json.dumps(bare(RunDirectory(Path(run_folder)), Path(scores_file))))
