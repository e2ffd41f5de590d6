"""Copies of embeddings.h5 in the formats of other programs, written block by block.

The source of the AnnData format is "On-disk format" in anndata's documentation, versions as in
anndata 0.8; files are written without the package. A ``.pt`` file is one of ``esm-extract`` of
fair-esm.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import h5py
import numpy as np

from virnucpro.arrays import ByteArray, Float32Array, IntArray, RealArray
from virnucpro.durable import write_file, write_folder
from virnucpro.errors import UsageError
from virnucpro.extras import require_extra
from virnucpro.run_dir import RunDirectory
from virnucpro.store.embeddings_file import _UnfailingFile, in_hdf5_thread
from virnucpro.store.schema import RowState

FORMATS: Final = ("npy", "parquet", "h5ad", "pt")
"""Formats that ``--format`` adds to embeddings.h5."""


def ordered_formats(given: Sequence[str]) -> tuple[str, ...]:
    """Return the formats in the order of `FORMATS`; ``h5`` is always written.

    Raises
    ------
    UsageError
        If a format is unknown.
    """
    if unknown := [name for name in given if name not in {*FORMATS, "h5"}]:
        raise UsageError(f"--format {unknown[0]!r}: give h5, {', '.join(FORMATS)}, or several.")
    return tuple(name for name in FORMATS if name in given)


def require_formats(formats: Sequence[str], *, per_token: bool, outputs: str = "vectors") -> None:
    """Check that this installation can write formats, and that they can hold the vectors.

    Raises
    ------
    UsageError
        If a package is missing, h5ad is given for vectors of residues, or pt for other outputs
        than vectors.
    """
    for name, extra in (("parquet", "parquet"), ("pt", "models")):
        if name in formats:
            require_extra(extra, f"--format {name}")
    if "h5ad" in formats and per_token:
        raise UsageError(
            "--format h5ad has one vector per sequence, and --pooling none and --outputs logits "
            "one per residue: leave it out, or give --format npy or parquet."
        )
    if "pt" in formats and outputs != "vectors":
        raise UsageError(f"--format pt is for vectors, not for --outputs {outputs}: leave it out.")


STATES: Final = tuple(state.name.lower() for state in RowState)
"""Name of each code of a status."""

_BLOCK_BYTES: Final = 16 << 20
_MOST_ITEMS: Final = 1 << 14


@dataclass(frozen=True, eq=False, slots=True)
class ItemBlock:
    """Consecutive items with their vectors.

    Attributes
    ----------
    first : int
        Number of the first item.
    names : list of str
        Names of n items.
    files, records : numpy.ndarray
        int64 (n,): position of the input file, and number of the record in it from 1.
    status : numpy.ndarray
        uint8 (n,), codes of `RowState`.
    vectors : numpy.ndarray
        (vectors, D), in the precision of the file.
    offsets : numpy.ndarray
        int64 (n + 1,): vectors ``offsets[i]`` to ``offsets[i + 1] - 1`` belong to the i-th item.
    """

    first: int
    names: list[str]
    files: IntArray
    records: IntArray
    status: ByteArray
    vectors: RealArray
    offsets: IntArray


class StoredVectors:
    """An open embeddings.h5.

    Attributes
    ----------
    per_residue : bool
        Whether each residue has a vector.
    n_items, n_vectors, dim : int
        Numbers of items and vectors, and length of a vector.
    dtype : numpy.dtype
        float16 or float32.
    files : list of str
        Names of the input files.
    pooling : str
        Value of ``--pooling``.
    layers : list of int
        Layers that are joined in a vector; -1 if the file does not name them.
    about : dict of str to str
        Attributes of the file on the vectors: `pooling` and `layers`, or `outputs`; empty for
        encoders without layers.
    """

    def __init__(self, file: h5py.File) -> None:
        self._file = file
        self.per_residue = "residues" in file
        self._vectors = file["residues" if self.per_residue else "embeddings"]
        self.n_vectors, self.dim = self._vectors.shape
        self.dtype: np.dtype[np.floating] = self._vectors.dtype
        self.n_items = len(file["sequence_ids"])
        self.files: list[str] = file["files"].asstr()[:].tolist()
        self.pooling = str(file.attrs.get("pooling", "mean"))
        self.layers: list[int] = np.asarray(file.attrs.get("layers", [-1])).tolist()
        texts = {"pooling": self.pooling, "layers": ",".join(map(str, self.layers))}
        texts["outputs"] = str(file.attrs.get("outputs"))
        self.about = {name: text for name, text in texts.items() if name in file.attrs}

    def blocks(self) -> Iterator[ItemBlock]:
        """Yield all items in input order; a block has about 16 MB of vectors, or one item."""
        most = max(1, _BLOCK_BYTES // (self.dim * self.dtype.itemsize))
        start = 0
        while start < self.n_items:
            stop = min(self.n_items, start + _MOST_ITEMS)
            offsets = self._offsets(start, stop)
            fitting = int(np.searchsorted(offsets, offsets[0] + most, side="right")) - 1
            stop = start + min(stop - start, max(1, fitting))
            offsets = offsets[: stop - start + 1]
            yield self._block(start, stop, offsets)
            start = stop

    def _offsets(self, start: int, stop: int) -> IntArray:
        if not self.per_residue:
            return np.arange(start, stop + 1)
        return np.asarray(self._file["offsets"][start : stop + 1])

    def _block(self, start: int, stop: int, offsets: IntArray) -> ItemBlock:
        def column(name: str) -> Any:  # noqa: ANN401 - h5py has no types
            return self._file[name][start:stop]

        return ItemBlock(
            start,
            self._file["sequence_ids"].asstr()[start:stop].tolist(),
            column("file").astype(np.int64),
            column("record"),
            column("status"),
            self._vectors[int(offsets[0]) : int(offsets[-1])],
            offsets - offsets[0],
        )


@contextmanager
def open_stored(path: Path) -> Iterator[StoredVectors]:
    """Open an embeddings.h5 for reading."""
    with h5py.File(path, "r") as file:
        yield StoredVectors(file)


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
        metadata=stored.about,
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


def write_h5ad(path: Path, stored: StoredVectors) -> None:
    """Write one observation per item, with its vector as float32, atomically.

    `obs` has the columns `file`, `record` and `status`; `var` names the layer, or the output, and
    the dimension.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with write_file(path) as stream:
        in_hdf5_thread(_write_h5ad, stream.fileno(), stored)


def _write_h5ad(unfailing: _UnfailingFile, stored: StoredVectors) -> None:
    n = stored.n_items
    with h5py.File(unfailing, "w") as file:
        _typed(file, "anndata", "0.1.0")
        vectors = _typed(file.create_dataset("X", (n, stored.dim), np.float32), "array", "0.2.0")
        obs = _frame(file, "obs", ("file", "record", "status"))
        names = _strings(obs, "_index", n)
        record = _typed(obs.create_dataset("record", (n,), np.int64), "array", "0.2.0")
        files = _categories(obs, "file", n, stored.files)
        status = _categories(obs, "status", n, STATES)
        per_layer = stored.dim // len(stored.layers)
        parts = [f"layer{layer}" for layer in stored.layers]
        if "outputs" in stored.about:
            parts = [stored.about["outputs"]]
        labels = [f"{part}_{at}" for part in parts for at in range(per_layer)]
        _strings(_frame(file, "var", ()), "_index", stored.dim)[:] = labels
        for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
            _typed(file.create_group(name), "dict", "0.1.0")
        for block in stored.blocks():
            part = slice(block.first, block.first + len(block.names))
            names[part], record[part] = block.names, block.records
            files[part], status[part] = block.files, block.status
            vectors[part] = block.vectors.astype(np.float32)
            unfailing.check()


def _typed(place: Any, kind: str, version: str) -> Any:  # noqa: ANN401 - h5py has no types
    place.attrs["encoding-type"], place.attrs["encoding-version"] = kind, version
    return place


def _frame(file: h5py.File, name: str, columns: Iterable[str]) -> h5py.Group:
    group = _typed(file.create_group(name), "dataframe", "0.2.0")
    group.attrs["_index"] = "_index"
    group.attrs.create("column-order", list(columns), dtype=h5py.string_dtype())
    return group


def _strings(group: h5py.Group, name: str, size: int) -> h5py.Dataset:
    dataset = group.create_dataset(name, (size,), h5py.string_dtype())
    return _typed(dataset, "string-array", "0.2.0")


def _categories(group: h5py.Group, name: str, size: int, values: Iterable[str]) -> h5py.Dataset:
    values = list(values)
    column = _typed(group.create_group(name), "categorical", "0.2.0")
    column.attrs["ordered"] = False
    _strings(column, "categories", len(values))[:] = values
    return _typed(column.create_dataset("codes", (size,), np.int32), "array", "0.2.0")


_KEYS: Final = {
    "mean": "mean_representations",
    "cls": "bos_representations",
    "none": "representations",
    "max": "max_representations",
}
"""Key of the vectors for each pooling; fair-esm has the first three."""

_SAFE: Final = "".join(map(chr, range(32, 127))).translate({ord(letter): None for letter in "/%\\"})
_MOST_BYTES: Final = 200


def write_esm_files(folder: Path, stored: StoredVectors) -> None:
    """Write a file for each item with a vector; the folder is replaced as a whole.

    Each file contains a dict: ``label`` is the name of the sequence, and the key of `_KEYS` is a
    dict of the layer's number and its float32 tensor. The dict of one vector per residue has
    tensors of shape (residues, D).

    Raises
    ------
    OSError
        If a file cannot be written; an earlier folder is unchanged.
    """
    import torch  # noqa: PLC0415 - processes without this format need no torch

    key = _KEYS[stored.pooling]
    with write_folder(folder) as temporary:
        for path, label, values in _items(temporary, stored):
            parts = np.split(values, len(stored.layers), axis=-1)
            tensors = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
            content = {"label": label, key: dict(zip(stored.layers, tensors, strict=True))}
            torch.save(content, path)


def _items(folder: Path, stored: StoredVectors) -> Iterator[tuple[Path, str, Float32Array]]:
    """Yield file, label and values of each item with a vector."""
    for block in stored.blocks():
        for at, name in enumerate(block.names):
            if block.status[at] != RowState.DONE:
                continue
            path = folder / file_name(name)
            if path.exists():
                path = folder / file_name(name, block.first + at)
            values = block.vectors[block.offsets[at] : block.offsets[at + 1]].astype(np.float32)
            yield path, name, values if stored.per_residue else values[0]


def file_name(name: str, item: int | None = None) -> str:
    """Return the name of the file of a sequence: its name, with unsafe characters as ``%2F``.

    A second sequence of the same name gets the number of its item: ``NAME%#17.pt``. A long name is
    cut and ends with a digest. Different names have different files.
    """
    safe = quote(name, safe=_SAFE)
    if safe.startswith("."):
        safe = f"%2E{safe[1:]}"
    if len(safe) > _MOST_BYTES:
        safe = f"{safe[:150]}%~{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return f"{safe}{'' if item is None else f'%#{item}'}.pt"


def write_exports(run: RunDirectory, formats: Sequence[str]) -> None:
    """Write each of `formats` from embeddings.h5, atomically and in bounded memory.

    Raises
    ------
    UsageError
        If a package is missing.
    OSError
        If a file cannot be written.
    """
    files = {"npy": (run.npy, run.npy_items), "parquet": (run.parquet,), "h5ad": (run.h5ad,)}
    for path in (path for name in files if name not in formats for path in files[name]):
        path.unlink(missing_ok=True)
    if "pt" not in formats:
        shutil.rmtree(run.pt, ignore_errors=True)
    if not formats:
        return
    with open_stored(run.embeddings) as stored:
        require_formats(formats, per_token=stored.per_residue)
        if "npy" in formats:
            write_npy(run.npy, stored)
            write_items(run.npy_items, stored)
        if "parquet" in formats:
            write_parquet(run.parquet, stored)
        if "h5ad" in formats:
            write_h5ad(run.h5ad, stored)
        if "pt" in formats:
            write_esm_files(run.pt, stored)
