"""Read embeddings.h5 block by block."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from virnucpro.store.schema import RowState

__all__ = ["STATES", "ItemBlock", "StoredVectors", "open_stored"]

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
    files: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]
    status: npt.NDArray[np.uint8]
    vectors: npt.NDArray[np.floating]
    offsets: npt.NDArray[np.int64]


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

    def _offsets(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        if not self.per_residue:
            return np.arange(start, stop + 1)
        return np.asarray(self._file["offsets"][start : stop + 1])

    def _block(self, start: int, stop: int, offsets: npt.NDArray[np.int64]) -> ItemBlock:
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
