"""What the runs below a launch's folder were begun with."""

import os
from pathlib import Path

from virnucpro.encoders.base import Precision
from virnucpro.errors import NotARunError
from virnucpro.pipeline.manifest import is_manifest, read_manifest
from virnucpro.run_dir import RunDirectory

__all__ = ["precision_of_runs"]


def precision_of_runs(folder: Path) -> Precision | None:
    """Say what the first run below a folder computes with that can be read; None without one.

    The files of one launch are computed with one kind of number, and what is done stays done,
    whatever machine goes on with it. A run that cannot be read is told where its file's turn comes.

    Parameters
    ----------
    folder
        Of a launch; nothing needs to be there.
    """
    for path, folders, _ in os.walk(folder):
        run = RunDirectory(Path(path))
        if (precision := _precision(run)) is not None:
            return precision
        folders.sort()
    return None


def _precision(run: RunDirectory) -> Precision | None:
    try:
        if not is_manifest(run.run_json):
            return None
        precision: Precision = read_manifest(run).parameters["precision"]
    except (NotARunError, OSError):
        return None
    return precision
