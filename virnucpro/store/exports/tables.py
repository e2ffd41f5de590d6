"""Write vectors as a NumPy matrix with a table of items, and as Parquet."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from virnucpro.durable import write_file
from virnucpro.store.exports.stored import STATES, ItemBlock, StoredVectors

__all__ = ["write_items", "write_npy", "write_parquet"]

_HEADER = ("seq_name", "file", "record", "status", "start", "end")


def write_npy(path: Path, stored: StoredVectors) -> None:
    """Write all vectors as one matrix, in the precision of embeddings.h5, atomically.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    header = {
        "descr": np.lib.format.dtype_to_descr(stored.dtype),
        "fortran_order": False,
        "shape": (stored.n_vectors, stored.dim),
    }
    with write_file(path) as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for block in stored.blocks():
            stream.write(block.vectors.tobytes())


def write_items(path: Path, stored: StoredVectors) -> None:
    """Write the items of the matrix as a TSV; `start` and `end` are rows of the matrix.

    Rows are counted from 0; `end` is exclusive.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with write_file(path) as stream:
        stream.write(("\t".join(_HEADER) + "\n").encode())
        first = 0
        for block in stored.blocks():
            stream.write("".join(_lines(block, stored, first)).encode())
            first += int(block.offsets[-1])


def _lines(block: ItemBlock, stored: StoredVectors, first: int) -> Iterator[str]:
    places = (first + block.offsets).tolist()
    for at, name in enumerate(block.names):
        file, status = stored.files[block.files[at]], STATES[block.status[at]]
        fields = (name, file, block.records[at], status, places[at], places[at + 1])
        yield "\t".join(map(str, fields)) + "\n"


def write_parquet(path: Path, stored: StoredVectors) -> None:
    """Write one row per item, with its vector (or list of vectors) as float32, atomically.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    import pyarrow as pa  # noqa: PLC0415 - optional
    from pyarrow import parquet  # noqa: PLC0415

    vector = pa.list_(pa.float32(), stored.dim)
    names = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [
            ("seq_name", pa.string()),
            ("file", names),
            ("record", pa.int64()),
            ("status", names),
            ("residues", pa.list_(vector)) if stored.per_residue else ("embedding", vector),
        ],
        metadata={"pooling": stored.pooling, "layers": ",".join(map(str, stored.layers))},
    )
    files, states = pa.array(stored.files), pa.array(STATES)
    with write_file(path) as stream, parquet.ParquetWriter(stream, schema) as writer:
        for block in stored.blocks():
            flat = pa.array(block.vectors.astype(np.float32).reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(flat, stored.dim)
            if stored.per_residue:
                offsets = pa.array(block.offsets.astype(np.int32))
                vectors = pa.ListArray.from_arrays(offsets, vectors)
            columns = [
                pa.array(block.names, pa.string()),
                pa.DictionaryArray.from_arrays(pa.array(block.files.astype(np.int32)), files),
                pa.array(block.records),
                pa.DictionaryArray.from_arrays(pa.array(block.status.astype(np.int32)), states),
                vectors,
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
