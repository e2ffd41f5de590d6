"""Merged outputs of a launch: one table and one FASTA file over all files, kept up to date.

::

    OUT/launch.predictions.tsv      rows of all files, in the order of launch.tsv
    OUT/launch.viral.fasta[.gz]     viral sequences of all files, in the same order
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from virnucpro.durable import write_file
from virnucpro.launch.results import FileResult

__all__ = ["MERGED_NAMES", "OUTPUTS_KEY", "MergedOutputs"]

OUTPUTS_KEY: Final = "outputs"
"""Key of a worker's result: paths of the outputs of a file, by name."""

MERGED_NAMES: Final = {
    name: f"launch.{name}" for name in ("predictions.tsv", "viral.fasta", "viral.fasta.gz")
}
"""Name of the merged file for each output that is merged."""

_NA: Final = b"NA"
_SHARE: Final = 20
"""Minimum seconds between two updates, per second that the last update took."""


class MergedOutputs:
    """Writes the merged outputs of the files that are done, atomically.

    Parameters
    ----------
    folder
        Output folder of the launch.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._merged = 0
        self._not_before = 0.0

    def update(self, results: Sequence[FileResult]) -> None:
        """Write the merged outputs if there are new results; ignore write errors.

        The time between two updates grows with their duration.
        """
        answered = sum(one.status.answered for one in results)
        started = time.monotonic()
        if answered == self._merged or started < self._not_before:
            return
        with suppress(OSError):
            self.write(results)
        now = time.monotonic()
        self._merged, self._not_before = answered, now + _SHARE * (now - started)

    def write(self, results: Sequence[FileResult]) -> None:
        """Write the merged outputs of all results that have some; remove the others.

        Raises
        ------
        OSError
            If a file cannot be read or written; existing merged files are unchanged.
        """
        for name, merged in MERGED_NAMES.items():
            sources = [Path(path) for path in _outputs(results, name)]
            target = self._folder / merged
            if not sources:
                target.unlink(missing_ok=True)
                continue
            join = _join_tables if name.endswith(".tsv") else _join_files
            with write_file(target) as stream:
                join(sources, stream)


def _outputs(results: Sequence[FileResult], name: str) -> Iterator[str]:
    for one in results:
        outputs = one.result.get(OUTPUTS_KEY)
        if one.status.answered and isinstance(outputs, dict) and name in outputs:
            yield outputs[name]


def _join_files(sources: Sequence[Path], stream: IO[bytes]) -> None:
    for path in sources:
        with path.open("rb") as source:
            shutil.copyfileobj(source, stream)


def _join_tables(sources: Sequence[Path], stream: IO[bytes]) -> None:
    """Write the rows of all tables below one header; missing columns are NA.

    Tables of earlier versions lack the last columns of newer tables.
    """
    headers = [_header(path) for path in sources]
    columns = max(headers, key=len)
    columns += [name for header in headers for name in header if name not in columns]
    stream.write(b"\t".join(columns) + b"\n")
    for path, header in zip(sources, headers, strict=True):
        with path.open("rb") as source:
            source.readline()
            if header == columns:
                shutil.copyfileobj(source, stream)
                continue
            for line in source:
                cells = dict(zip(header, line.rstrip(b"\n").split(b"\t"), strict=True))
                stream.write(b"\t".join(cells.get(name, _NA) for name in columns) + b"\n")


def _header(path: Path) -> list[bytes]:
    with path.open("rb") as source:
        return source.readline().rstrip(b"\n").split(b"\t")
