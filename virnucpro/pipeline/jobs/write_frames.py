"""Windows and stop-free frames as FASTA, with the file names of the published tool."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from virnucpro.durable import finished_name
from virnucpro.errors import UsageError
from virnucpro.pipeline.jobs.inputs import Inputs, inputs_of, require_inputs
from virnucpro.report.fasta import write_frames_files
from virnucpro.sequences.index import build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.sequences.windows import Tiling

__all__ = ["write_frames"]

_COMPRESSIONS = {".gz", ".bz2", ".xz", ".zst"}


def write_frames(
    inputs: Inputs,
    outdir: str | os.PathLike[str],
    *,
    window: int,
    tiling: Tiling,
    genetic_code: int,
    force: bool = False,
) -> Iterator[Path]:
    """Write three FASTA files for each input; yield the path of each finished file.

    A temporary index (in TMPDIR) takes about one byte per base.

    Raises
    ------
    InputError
        If an input cannot be read.
    UsageError
        If there is no input, two inputs have the same output files, or an output file exists and
        `force` is false.
    """
    names, folder = inputs_of(inputs), Path(outdir)
    require_inputs(names)
    stems = [_stem(name) for name in names]
    if repeated := {stem for stem in stems if stems.count(stem) > 1}:
        raise UsageError(
            f"several inputs have the same output files {min(repeated)}_*: "
            "run the command for each of them with another folder."
        )
    spec = IndexSpec(
        kind="frames",
        alphabet=Alphabet.NUCLEOTIDE,
        window=window,
        tiling=tiling,
        genetic_code=genetic_code,
    )
    outputs = [_outputs(folder, stem, window) for stem in stems]
    if existing := [path for paths in outputs for path in paths if path.exists() and not force]:
        raise UsageError(f"{existing[0]} exists already: --force replaces it.")
    for name, paths in zip(names, outputs, strict=True):
        with tempfile.TemporaryDirectory(prefix="virnucpro-frames-") as own:
            index = build_index(Path(own) / "index", [name], spec)
            folder.mkdir(parents=True, exist_ok=True)  # not for an input that is refused
            _remove_unfinished(folder, paths)
            write_frames_files(index, *paths)
        yield from paths


def _outputs(outdir: Path, stem: str, window: int) -> tuple[Path, Path, Path]:
    return (
        outdir / f"{stem}_chunked{window}.fa",
        outdir / f"{stem}_identified_nucleotide.fa",
        outdir / f"{stem}_identified_protein.faa",
    )


def _remove_unfinished(outdir: Path, paths: Sequence[Path]) -> None:
    """Remove temporary files of these outputs that a killed process has left."""
    names = {path.name for path in paths}
    for path in outdir.glob("*.tmp"):
        if finished_name(path) in names:
            path.unlink()


def _stem(name: str) -> str:
    """Return the stem of the output names: ``b`` for ``a/b.fa.gz``, ``stdin`` for ``-``."""
    if name == "-":
        return "stdin"
    path = Path(name)
    return Path(path.stem).stem if path.suffix in _COMPRESSIONS else path.stem
