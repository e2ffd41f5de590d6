"""Write embeddings.h5 from the segments of blocks; items are in the order of the blocks."""

from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import TypeVar

import numpy as np

from virnucpro.arrays import IntArray, RealArray, joined_ranges
from virnucpro.compute.finish import RunBlocks, StoredBlock
from virnucpro.durable import write_file
from virnucpro.run.manifest import Manifest
from virnucpro.store.aggregate import EarlySync
from virnucpro.store.embeddings_file import EmbeddingsFile, ItemVectors, Layout
from virnucpro.store.schema import RowState

Values = TypeVar("Values")


def write_vectors(path: Path, blocks: RunBlocks, manifest: Manifest) -> None:
    """Write the vectors of all items atomically; see `virnucpro.store.aggregate.write_embeddings`.

    Raises
    ------
    OSError
        If the file cannot be written. A note on the error has the bytes needed.
    """

    def each(values: Callable[[StoredBlock], Values]) -> Iterator[Values]:
        return (values(blocks.open(number)) for number in blocks.numbers())

    status = np.concatenate([*each(lambda block: block.item_state)])
    counts = np.bincount(status, minlength=len(RowState))
    missing, quarantined = counts[RowState.MISSING], counts[RowState.QUARANTINED]
    offsets = np.concatenate([[0], *each(_vectors_of_items)]).cumsum()
    per_token = any(each(lambda block: "row_counts" in block.arrays))
    layout = Layout(
        len(status),
        manifest.views,
        np.dtype(f"float{manifest.parameters['embeddings'][2:]}"),
        {
            "fingerprint": manifest.fingerprint,
            "complete": not missing,
            "n_missing": missing,
            "n_quarantined": quarantined,
            **manifest.about_vectors,
        },
        offsets if per_token else None,
    )
    size, names = len(status), blocks.input_names
    columns: dict[str, tuple[int, Iterable[Sized]]] = {
        "sequence_ids": (size, each(lambda block: block.item_names)),
        "status": (size, [status]),
        "record": (size, each(lambda block: block.index.item_origins(_items(block))[1])),
        "file": (size, each(lambda block: block.index.item_origins(_items(block))[0])),
        "files": (len(names), [names]),
        **({"offsets": (size + 1, [offsets])} if per_token else {}),
    }
    with write_file(path) as stream, EarlySync(stream.fileno()) as sync:
        file, first = EmbeddingsFile(stream, layout, columns), 0
        for vectors in each(lambda block: _vectors(block, layout)):
            numbers = np.arange(len(vectors))
            file.write(ItemVectors(first + numbers, numbers, vectors))
            first += len(vectors)
            sync.wrote(vectors.nbytes)


def _items(block: StoredBlock) -> IntArray:
    return np.arange(block.index.n_items)


def _vectors_of_items(block: StoredBlock) -> IntArray:
    """Return the number of vectors per token of each item, 0 if they have none."""
    rows = block.index.item_row
    counts: IntArray = block.arrays.get("row_counts", np.zeros(block.index.n_rows, np.int64))[rows]
    return counts


def _vectors(block: StoredBlock, layout: Layout) -> RealArray:
    """Return the vectors of all items of a block; NaN for an item without one."""
    rows, stored = block.index.item_row, block.arrays.get("row_vectors")
    if layout.offsets is not None:
        if stored is None:
            return np.empty((0, layout.dim), layout.dtype)
        per_row = block.arrays["row_counts"]
        first = np.cumsum(per_row) - per_row
        return stored[joined_ranges(first[rows], per_row[rows])]
    if stored is None:
        return np.full((len(rows), layout.dim), np.nan, layout.dtype)
    vectors: RealArray = stored[rows]
    vectors[(block.item_state != RowState.DONE) | block.index.without_vector(rows)] = np.nan
    return vectors
