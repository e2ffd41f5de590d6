"""Write vectors as an AnnData file, without the package anndata.

Source of the format: "On-disk format" in anndata's documentation, versions as in anndata 0.8.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from virnucpro.durable import write_file
from virnucpro.store.embeddings_file import _UnfailingFile, in_hdf5_thread
from virnucpro.store.exports.stored import STATES, StoredVectors

__all__ = ["write_h5ad"]


def write_h5ad(path: Path, stored: StoredVectors) -> None:
    """Write one observation per item, with its vector as float32, atomically.

    `obs` has the columns `file`, `record` and `status`; `var` names the layer and the dimension.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with write_file(path) as stream:
        in_hdf5_thread(_write, stream.fileno(), stored)


def _write(unfailing: _UnfailingFile, stored: StoredVectors) -> None:
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
        labels = [f"layer{layer}_{at}" for layer in stored.layers for at in range(per_layer)]
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
