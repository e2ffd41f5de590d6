"""Whether embeddings.h5 is, to the last byte, what the segments give."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from virnucpro.store.aggregate import ItemIndex, gathered, lay_out, layout_of, scattered
from virnucpro.store.embeddings_file import Layout, neighbours
from virnucpro.store.sources import Sources

__all__ = ["embeddings_problem"]

_BLOCK_BYTES = 1 << 20


def embeddings_problem(
    path: Path, coverage: Sources, index: ItemIndex, views: Mapping[str, int]
) -> str | None:
    """Say what in the file is not what `write_embeddings` would write; None where nothing is.

    HDF5 never reads the file: a flipped byte can bring it down. The layout (shape, attributes, ids,
    status) is made anew in a temporary file and its bytes are compared, the vectors are compared
    with the segments. Memory stays within a few hundred MB.

    Raises
    ------
    StoreError
        As `write_embeddings`.
    OSError
        When the file cannot be read, or the temporary one not be written.
    """
    layout = layout_of(coverage, index, views)
    with path.open("rb", buffering=0) as found, tempfile.TemporaryFile() as wanted:
        offset = lay_out(wanted, layout, coverage.row_state, index, reserve=False).offset
        sizes = [os.fstat(stream.fileno()).st_size for stream in (found, wanted)]
        if sizes[0] != sizes[1]:
            return f"has {sizes[0]:,} bytes, not {sizes[1]:,}"
        vectors_end = offset + layout.n_items * layout.item_bytes
        for first, last in ((0, offset), (vectors_end, sizes[1])):
            if not _same_bytes(found, wanted, first, last):
                return "its shape, attributes, sequence_ids or status are not the run's"
        for item in _other_vectors(found, offset, layout, coverage, index):
            return f"the vector of item {item:,} is not the one in its segment"
    return None


def _same_bytes(left: IO[bytes], right: IO[bytes], first: int, last: int) -> bool:
    for start in range(first, last, _BLOCK_BYTES):
        size = min(_BLOCK_BYTES, last - start)
        if os.pread(left.fileno(), size, start) != os.pread(right.fileno(), size, start):
            return False
    return True


def _other_vectors(
    found: IO[bytes], offset: int, layout: Layout, coverage: Sources, index: ItemIndex
) -> Iterator[int]:
    """Find items whose stored vector differs; the first of each run of neighbours that do."""
    size = layout.item_bytes
    for origin, vectors in gathered(coverage, layout):
        for items, rows in scattered(index.item_row, origin, len(vectors), layout):
            wanted = vectors[rows].view(np.uint8)
            for item, first, last in neighbours(items):
                stored = os.pread(found.fileno(), (last - first) * size, offset + item * size)
                same = np.frombuffer(stored, np.uint8).reshape(-1, size) == wanted[first:last]
                if not same.all():
                    yield item + int(same.all(axis=1).argmin())
