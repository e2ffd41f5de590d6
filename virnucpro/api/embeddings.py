"""The vectors of a run: of items, windows or sequences."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import h5py
import numpy as np
import numpy.typing as npt

from virnucpro.api.run_folder import RunFolder, RunOutput, run_of
from virnucpro.errors import RunError, StoreError, UsageError
from virnucpro.pipeline.run.manifest import read_manifest
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.items import WINDOW_ITEM
from virnucpro.store.schema import RowState

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["Embeddings", "Level", "embeddings_of", "read_embeddings"]

Level: TypeAlias = Literal["item", "window", "sequence"]

_MAPPED_BYTES: Final = 256 << 20
"""Larger matrices are memory-mapped instead of read."""

_ITEMS_AT_ONCE: Final = 1 << 14

FloatArray: TypeAlias = npt.NDArray[np.floating]


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
        embeddings.h5 of more than 256 MB is memory-mapped and read-only.
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
        matrix: FloatArray,
        found: npt.NDArray[np.bool_],
        level: Level,
        views: Mapping[str, int],
    ) -> None:
        super().__init__(folder)
        self.ids = ids
        self.matrix = matrix
        self.found = found
        self.level: Level = level
        self.views = dict(views)

    def to_anndata(self) -> "AnnData":
        """Return an `anndata.AnnData`: vectors in ``X``, names in ``obs_names``.

        Rows without a vector are left out. Repeated names get a suffix, ``-1`` and so on; column
        ``name`` of ``obs`` has the names unchanged. ``uns["virnucpro"]`` has level and views.

        Raises
        ------
        UsageError
            If anndata is not installed.
        """
        try:
            from anndata import AnnData  # noqa: PLC0415 - optional
            from anndata.utils import make_index_unique  # noqa: PLC0415 - optional
        except ImportError as error:
            raise UsageError(
                "to_anndata needs anndata: pip install 'virnucpro[anndata]'"
            ) from error
        import pandas as pd  # noqa: PLC0415 - anndata needs it

        names = [name for name, found in zip(self.ids, self.found, strict=True) if found]
        table = AnnData(
            np.asarray(self.matrix)[self.found],
            obs=pd.DataFrame({"name": names}, index=make_index_unique(pd.Index(names, dtype=str))),
        )
        table.uns["virnucpro"] = {"level": self.level, "views": self.views}
        return table

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        lacking = int((~self.found).sum())
        without = f", {lacking:,} without a vector" if lacking else ""
        shape = f"{len(self):,} x {self.matrix.shape[1]:,} {self.matrix.dtype}"
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
        of the sequence. Means are float32 in memory; items without a vector do not count.

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
    run = RunDirectory(folder.path)
    _require_vectors(run)
    index = SequenceIndex.open(run.index)
    matrix, status, views = _stored(run.embeddings)
    if len(matrix) != index.n_items:
        raise StoreError(
            f"{run.embeddings} has {len(matrix):,} vectors for the {index.n_items:,} items of the "
            "run: resume the run, which writes the file again"
        )
    # A whole window among frames is scored by its composition and has no vector.
    second = index.spec.kind != "windows" and index.item_frame[:] == WINDOW_ITEM
    found = (status == RowState.DONE) & ~np.asarray(second, np.bool_)
    if level == "item":
        return Embeddings(
            folder, index.item_names(np.arange(len(matrix))), matrix, found, level, views
        )
    bounds = np.asarray(index.window_first_item)
    if level == "window":
        ids = index.window_names(np.arange(index.n_windows))
    else:
        bounds = bounds[np.asarray(index.record_first_window)]
        ids = index.record_names(np.arange(index.n_records))
    if not (np.diff(bounds) == 1).all():
        matrix, found = _means(matrix, found, bounds)
    return Embeddings(folder, ids, matrix, found, level, views)


def _require_vectors(run: RunDirectory) -> None:
    stored = read_manifest(run).parameters["embeddings"]
    if stored == "none":
        raise RunError(f'{run.root} keeps no vectors: classify again with embeddings="fp16"')
    if not run.embeddings.is_file():
        raise RunError(
            f"{run.embeddings} does not exist: the run was stopped; resume it (resume=True)"
        )


def _stored(path: Path) -> tuple[FloatArray, npt.NDArray[np.uint8], dict[str, int]]:
    """Return vectors ``(n, D)``, states ``(n,)`` and dimensions of each view of embeddings.h5."""
    try:
        with h5py.File(path, "r") as file:
            vectors = file["embeddings"]
            status: npt.NDArray[np.uint8] = file["status"][:]
            views = dict(zip(vectors.attrs["views"], vectors.attrs["dims"].tolist(), strict=True))
            shape, dtype, offset = vectors.shape, vectors.dtype, vectors.id.get_offset()
            matrix: FloatArray
            if vectors.nbytes > _MAPPED_BYTES:
                matrix = np.memmap(path, dtype, "r", offset, shape)
            else:
                matrix = vectors[:]
    except (OSError, KeyError) as error:
        raise StoreError(
            f"{path} cannot be read ({error}): resume the run, which writes the file again"
        ) from error
    return matrix, status, views


def _means(
    matrix: FloatArray, found: npt.NDArray[np.bool_], bounds: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
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
