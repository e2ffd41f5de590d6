"""Write one ``.pt`` file per sequence, as ``esm-extract`` of fair-esm does."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np

from virnucpro.durable import sync_folder, temporary_beside
from virnucpro.store.exports.stored import StoredVectors
from virnucpro.store.schema import RowState

__all__ = ["file_name", "write_esm_files"]

_KEYS: Final = {
    "mean": "mean_representations",
    "cls": "bos_representations",
    "none": "representations",
    "max": "max_representations",
}
"""Key of the vectors for each pooling; fair-esm has the first three."""

_SAFE: Final = "".join(map(chr, range(32, 127))).replace("/", "").replace("%", "")
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

    temporary = temporary_beside(folder)
    temporary.mkdir()
    try:
        key = _KEYS[stored.pooling]
        for path, label, values in _items(temporary, stored):
            parts = np.split(values, len(stored.layers), axis=-1)
            tensors = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
            content = {"label": label, key: dict(zip(stored.layers, tensors, strict=True))}
            torch.save(content, path)
        for path in temporary.iterdir():
            _sync(path)
        sync_folder(temporary)
        former = temporary_beside(folder)
        if folder.exists():
            folder.rename(former)
        temporary.rename(folder)
        sync_folder(folder.parent)
        shutil.rmtree(former, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _items(
    folder: Path, stored: StoredVectors
) -> Iterator[tuple[Path, str, "np.typing.NDArray[np.float32]"]]:
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


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
