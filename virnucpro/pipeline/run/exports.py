"""Write the copies of embeddings.h5 that a run asks for, and delete those of an earlier choice."""

import shutil
from collections.abc import Sequence

from virnucpro.run_dir import RunDirectory
from virnucpro.store.exports.esm_files import write_esm_files
from virnucpro.store.exports.formats import require_formats
from virnucpro.store.exports.h5ad import write_h5ad
from virnucpro.store.exports.stored import open_stored
from virnucpro.store.exports.tables import write_items, write_npy, write_parquet

__all__ = ["write_exports"]


def write_exports(run: RunDirectory, formats: Sequence[str]) -> None:
    """Write each of `formats` from embeddings.h5, atomically and in bounded memory.

    Raises
    ------
    UsageError
        If a package is missing.
    OSError
        If a file cannot be written.
    """
    kept = {"npy": {run.npy, run.npy_items}, "parquet": {run.parquet}, "h5ad": {run.h5ad}}
    for name, paths in kept.items():
        for path in () if name in formats else paths:
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
