"""What the runs below a launch's folder were begun with."""

import os
from pathlib import Path

from virnucpro.encoders.base import Precision
from virnucpro.pipeline.manifest import is_manifest, read_manifest
from virnucpro.run_dir import RunDirectory

__all__ = ["precision_of_runs"]


def precision_of_runs(folder: Path) -> Precision | None:
    """Say what the first run below a folder computes with; None where there is none.

    The files of one launch are computed with one kind of number, and what is done stays done,
    whatever machine goes on with it.

    Parameters
    ----------
    folder
        Of a launch; nothing needs to be there.

    Raises
    ------
    NotARunError
        When the first run below it cannot be read.
    """
    for path, folders, _ in os.walk(folder):
        run = RunDirectory(Path(path))
        if run.run_json.is_file() and is_manifest(run.run_json):
            precision: Precision = read_manifest(run).parameters["precision"]
            return precision
        folders.sort()
    return None
