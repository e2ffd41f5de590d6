"""Merged outputs of a launch: one table and all viral sequences, kept up to date.

::

    OUT/launch.predictions.tsv      rows of all files, in the order of launch.tsv; the column `file`
                                    has the names of launch.tsv
    OUT/launch.viral.fasta[.gz]     viral sequences of all FASTA files, in the same order
    OUT/launch.viral.fastq[.gz]     viral sequences of all FASTQ files
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from virnucpro.durable import write_file
from virnucpro.launch.cells import encoded, file_cell
from virnucpro.launch.results import FileResult
from virnucpro.launch.throttle import Throttle
from virnucpro.launch_dir import MERGED_NAMES

__all__ = ["OUTPUTS_KEY", "MergedOutputs"]

OUTPUTS_KEY: Final = "outputs"
"""Key of a worker's result: paths of the outputs of a file, by name."""

_FILE: Final = b"file"
_NA: Final = b"NA"


class MergedOutputs:
    """Writes the merged outputs of the files that are done, atomically.

    Parameters
    ----------
    source, folder
        Input folder and output folder of the launch.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        self._source = source
        self._folder = folder
        self._merged = 0
        self._throttle = Throttle()

    @property
    def written(self) -> list[str]:
        """Names of the merged files that exist."""
        return [name for name in MERGED_NAMES.values() if (self._folder / name).is_file()]

    def update(self, results: Sequence[FileResult]) -> None:
        """Write the merged outputs if there are new results; ignore write errors.

        The time between two updates grows with their duration.
        """
        answered = sum(one.status.answered for one in results)
        if answered == self._merged or not self._throttle.due:
            return
        with self._throttle.timed(), suppress(OSError):
            self.write(results)
        self._merged = answered

    def write(self, results: Sequence[FileResult]) -> None:
        """Write the merged outputs of all results that have some; remove the others.

        Raises
        ------
        OSError
            If a file cannot be read or written; existing merged files are unchanged.
        """
        for name, merged in MERGED_NAMES.items():
            sources = list(self._outputs(results, name))
            target = self._folder / merged
            if not sources:
                target.unlink(missing_ok=True)
                continue
            join = _join_tables if name.endswith(".tsv") else _join_files
            with write_file(target) as stream:
                join(sources, stream)

    def _outputs(self, results: Sequence[FileResult], name: str) -> Iterator[tuple[bytes, Path]]:
        """Yield for each result that has the output `name`: the name of its file, and the path."""
        for one in results:
            outputs = one.result.get(OUTPUTS_KEY)
            if one.status.answered and isinstance(outputs, dict) and name in outputs:
                yield encoded(file_cell(one.file, self._source)), Path(outputs[name])


def _join_files(sources: Sequence[tuple[bytes, Path]], stream: IO[bytes]) -> None:
    for _, path in sources:
        with path.open("rb") as source:
            shutil.copyfileobj(source, stream)


def _join_tables(sources: Sequence[tuple[bytes, Path]], stream: IO[bytes]) -> None:
    """Write the rows of all tables below one header; missing columns are NA.

    Tables of earlier versions lack the last columns of newer tables.
    """
    headers = [_header(path) for _, path in sources]
    columns = max(headers, key=len)
    columns += [name for header in headers for name in header if name not in columns]
    stream.write(b"\t".join(columns) + b"\n")
    for (file, path), header in zip(sources, headers, strict=True):
        constant = [file if name == _FILE else _NA for name in columns]
        places = [
            header.index(name) if name in header and name != _FILE else -1 for name in columns
        ]
        with path.open("rb") as source:
            source.readline()
            for line in source:
                cells = line.rstrip(b"\n").split(b"\t")
                row = [
                    other if place < 0 else cells[place]
                    for place, other in zip(places, constant, strict=True)
                ]
                stream.write(b"\t".join(row) + b"\n")


def _header(path: Path) -> list[bytes]:
    with path.open("rb") as source:
        return source.readline().rstrip(b"\n").split(b"\t")
