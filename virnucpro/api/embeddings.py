"""The vectors of a run: of items, windows or sequences."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args, overload

import h5py
import numpy as np
import numpy.typing as npt

from virnucpro.api.run_folder import RunFolder, RunOutput, run_of
from virnucpro.arrays import BoolArray, Float32Array, IntArray, RealArray
from virnucpro.compute.in_memory import RunVectors
from virnucpro.errors import RunError, StoreError, UsageError
from virnucpro.extras import require_extra
from virnucpro.run.manifest import read_manifest
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.schema import RowState

if TYPE_CHECKING:
    from anndata import AnnData

Level: TypeAlias = Literal["item", "window", "sequence"]

_MAPPED_BYTES: Final = 256 << 20
"""Larger matrices are memory-mapped instead of read."""

_ITEMS_AT_ONCE: Final = 1 << 14


class Embeddings(RunOutput):
    """Vectors with their names, in input order.

    `virnucpro.embed` and `virnucpro.read_embeddings` return it. Without an `outdir`, the run folder
    is temporary; see `virnucpro.Result`. The vectors stay valid after `close`.

    Attributes
    ----------
    ids : list of str
        Name of each vector ``(n,)``: of the sequence, window or item. Names may repeat.
    matrix : numpy.ndarray
        Vectors ``(n, D)``, float16 or float32. Rows without a vector are NaN. A matrix from
        embeddings.h5 of more than 256 MB is memory-mapped and read-only. With one vector per
        residue: ``(t, D)``, the vectors of all residues.
    offsets : numpy.ndarray or None
        None if each row has one vector. With one vector per residue, int64 ``(n + 1,)``: those of
        row i are ``matrix[offsets[i] : offsets[i + 1]]``.
    found : numpy.ndarray
        bool ``(n,)``: whether the row has a vector.
    level : str
        ``item``, ``window`` or ``sequence``.
    views : mapping of str to int
        Dimensions of each encoder by the kind of its sequences (``nucleotide``, ``protein``), in
        the order in which they are joined to D dimensions.
    """

    def __init__(
        self,
        folder: RunFolder,
        ids: list[str],
        matrix: RealArray,
        found: BoolArray,
        level: Level,
        views: Mapping[str, int],
        offsets: IntArray | None = None,
    ) -> None:
        super().__init__(folder)
        self.ids = ids
        self.matrix = matrix
        self.found = found
        self.level: Level = level
        self.views = dict(views)
        self.offsets = offsets

    def to_anndata(self) -> "AnnData":
        """Return an `anndata.AnnData`: vectors in ``X``, names in ``obs_names``.

        Rows without a vector are left out. Repeated names get a suffix, ``-1`` and so on; column
        ``name`` of ``obs`` has the names unchanged. ``uns["virnucpro"]`` has level and views.

        Raises
        ------
        UsageError
            If anndata is not installed, or rows have one vector per residue.
        """
        if self.offsets is not None:
            raise UsageError("to_anndata needs one vector per row: embed with another pooling")
        require_extra("anndata", "to_anndata")
        import pandas as pd  # noqa: PLC0415 - anndata needs it
        from anndata import AnnData  # noqa: PLC0415 - optional
        from anndata.utils import make_index_unique  # noqa: PLC0415 - optional

        names = [name for name, found in zip(self.ids, self.found, strict=True) if found]
        table = AnnData(
            np.asarray(self.matrix)[self.found],
            obs=pd.DataFrame({"name": names}, index=make_index_unique(pd.Index(names, dtype=str))),
        )
        table.uns["virnucpro"] = {"level": self.level, "views": self.views}
        return table

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, row: int) -> RealArray: ...
    @overload
    def __getitem__(self, row: slice) -> "Embeddings": ...
    def __getitem__(self, row: int | slice) -> "RealArray | Embeddings":
        """Return the vector ``(D,)`` of a row, or the vectors ``(length, D)`` of its residues.

        A slice gives the `Embeddings` of several rows.
        """
        if isinstance(row, slice):
            return self._slice(row)
        if self.offsets is None:
            own: RealArray = self.matrix[row]
            return own
        row = range(len(self))[row]
        return self.matrix[self.offsets[row] : self.offsets[row + 1]]

    def _slice(self, rows: slice) -> "Embeddings":
        matrix, offsets = self.matrix, None
        if self.offsets is None:
            matrix = matrix[rows]
        else:
            residues = [self[row] for row in range(len(self))[rows]]
            matrix = np.concatenate([matrix[:0], *residues])
            offsets = np.cumsum([0, *map(len, residues)])
        ids, found = self.ids[rows], self.found[rows]
        return Embeddings(self._folder, ids, matrix, found, self.level, self.views, offsets)

    def __array__(
        self,
        dtype: npt.DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001 - as NumPy calls it
    ) -> RealArray:
        """Return `matrix` for `numpy.asarray`.

        Raises
        ------
        UsageError
            If rows have one vector per residue.
        """
        if self.offsets is not None:
            raise UsageError(
                "rows with one vector per residue are not an array (n, D): use matrix, the vectors "
                "of all residues, and offsets, its bounds of rows; or embed with another pooling"
            )
        return np.array(self.matrix, dtype, copy=copy)

    def __iter__(self) -> Iterator[RealArray]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        lacking = int((~self.found).sum())
        without = f", {lacking:,} without a vector" if lacking else ""
        shape = f"{len(self):,} x {self.matrix.shape[1]:,} {self.matrix.dtype}"
        if self.offsets is not None:
            shape = f"{len(self):,} x (residues x {self.matrix.shape[1]:,}) {self.matrix.dtype}"
        return f"<virnucpro.Embeddings: {shape}, one per {self.level}{without}>"


def read_embeddings(run: str | os.PathLike[str] | RunOutput, level: Level = "item") -> Embeddings:
    """Read the vectors of a run.

    Parameters
    ----------
    run
        Run folder, a `virnucpro.Result` or `virnucpro.Embeddings`.
    level
        ``item``: the stored vectors, one per item. An item is what the encoder read: a reading
        frame, the longest stretch or a whole window (predict), or a whole sequence (embed).
        ``window``: one row per row of windows.tsv, the mean over the items of the window.
        ``sequence``: one row per row of predictions.tsv or sequences.tsv, the mean over all items
        of the sequence. Means are float32 in memory; items without a vector do not count. Vectors
        per residue are never averaged: a row has the residues of all its items.

    Returns
    -------
    Embeddings
        A window or sequence without a vector has a row of NaN.

    Raises
    ------
    NotARunError
        If the folder contains no run.
    RunError
        If the run stored no vectors, or was stopped before it wrote them.
    StoreError
        If embeddings.h5 or the index is damaged.
    UsageError
        If `level` is unknown.
    """
    if level not in get_args(Level):
        raise UsageError(f"unknown level {level!r}: give {', '.join(get_args(Level))}")
    return embeddings_of(RunFolder(run_of(run).root), level)


def embeddings_of(folder: RunFolder, level: Level) -> Embeddings:
    """Return the vectors of the run in `folder`, which the result owns."""
    if folder.memory is not None:
        index, stored = folder.memory.run.index, folder.memory.vectors
    else:
        index, stored = _of_folder(RunDirectory(folder.path))
    others = index.without_vector(np.asarray(index.item_row))
    found = (stored.status == RowState.DONE) & ~others
    ids, bounds = _rows(index, level)
    matrix, offsets = stored.matrix, stored.offsets
    if offsets is not None:
        offsets = offsets[bounds]
        found = np.diff(offsets) > 0
    elif not (np.diff(bounds) == 1).all():
        matrix, found = _means(matrix, found, bounds)
    return Embeddings(folder, ids, matrix, found, level, stored.views, offsets)


def _of_folder(run: RunDirectory) -> tuple[SequenceIndex, RunVectors]:
    _require_vectors(run)
    index = SequenceIndex.open(run.index)
    stored = _stored(run.embeddings)
    if len(stored.status) != index.n_items:
        raise StoreError(
            f"{run.embeddings} has {len(stored.status):,} items, but the run has "
            f"{index.n_items:,}: resume the run, which writes the file again"
        )
    return index, stored


def _rows(index: SequenceIndex, level: Level) -> tuple[list[str], IntArray]:
    """Return the names of the rows of a level, and the bounds ``(n + 1,)`` of their items."""
    if level == "item":
        return index.item_names(np.arange(index.n_items)), np.arange(index.n_items + 1)
    bounds: IntArray = np.asarray(index.window_first_item)
    if level == "window":
        return index.window_names(np.arange(index.n_windows)), bounds
    records = np.arange(index.n_records)
    return index.record_names(records), bounds[np.asarray(index.record_first_window)]


def _require_vectors(run: RunDirectory) -> None:
    stored = read_manifest(run).parameters["embeddings"]
    if stored == "none":
        raise RunError(f'{run.root} keeps no vectors: classify again with embeddings="fp16"')
    if not run.embeddings.is_file():
        raise RunError(
            f"{run.embeddings} does not exist: the run was stopped; resume it (resume=True)"
        )


def _stored(path: Path) -> RunVectors:
    try:
        with h5py.File(path, "r") as file:
            offsets = file["offsets"][:] if "residues" in file else None
            vectors = file["embeddings" if offsets is None else "residues"]
            views = dict(zip(vectors.attrs["views"], vectors.attrs["dims"].tolist(), strict=True))
            matrix: RealArray
            if vectors.nbytes > _MAPPED_BYTES:
                place = vectors.id.get_offset()
                matrix = np.memmap(path, vectors.dtype, "r", place, vectors.shape)
            else:
                matrix = vectors[:]
            return RunVectors(matrix, file["status"][:], views, offsets)
    except (OSError, KeyError) as error:
        raise StoreError(
            f"{path} cannot be read ({error}): resume the run, which writes the file again"
        ) from error


def _means(matrix: RealArray, found: BoolArray, bounds: IntArray) -> tuple[Float32Array, BoolArray]:
    """Return the mean vector of each group of consecutive items, and whether it has any item.

    Parameters
    ----------
    bounds
        int64 ``(n + 1,)``: group i has the items ``bounds[i]`` to ``bounds[i + 1] - 1``.
    """
    n_groups = len(bounds) - 1
    sums = np.zeros((n_groups, matrix.shape[1]), np.float64)
    groups = np.repeat(np.arange(n_groups), np.diff(bounds))
    counts = np.bincount(groups[found], minlength=n_groups)
    for first in range(0, len(matrix), _ITEMS_AT_ONCE):
        block = slice(first, first + _ITEMS_AT_ONCE)
        own = groups[block][found[block]]
        if len(own):
            starts = np.flatnonzero(np.diff(own, prepend=-1))
            vectors = matrix[block][found[block]]
            sums[own[starts]] += np.add.reduceat(vectors, starts, axis=0, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        means = (sums / counts[:, None]).astype(np.float32)
    return means, counts > 0
