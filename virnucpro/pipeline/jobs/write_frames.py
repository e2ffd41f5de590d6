"""Write windows and stop-free frames as FASTA, with the file names of the published tool."""

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from virnucpro.console import say
from virnucpro.durable import finished_name
from virnucpro.errors import UsageError
from virnucpro.pipeline.jobs.job import Inputs, inputs_of, require_inputs
from virnucpro.report.fasta import write_frames_files
from virnucpro.report.tsv import names_warning
from virnucpro.sequences.index import build_index
from virnucpro.sequences.input_rules import InputRules
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
    strict: bool = False,
) -> Iterator[Path]:
    """Write the files of ``virnucpro frames``; yield the path of each file when it is complete.

    For each input, one file contains the windows. Two other files contain the bases and the
    peptides of the stop-free frames. The sequence index is a temporary folder in TMPDIR, about as
    large as the decompressed input.
    `outdir` is created only after the first input has been read without an error.

    Raises
    ------
    InputError
        When an input cannot be read; with `strict`, also if it has gaps or invalid letters.
    UsageError
        When there is no input, two inputs would have the same output files, an output file exists
        and `force` is not given, or an output file is also an input.
    """
    names, folder = inputs_of(inputs), Path(outdir)
    require_inputs(names)
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, window, tiling, genetic_code)
    outputs = [_outputs(folder, stem, window) for stem in _distinct_stems(names)]
    for path in itertools.chain(*outputs):
        if path.exists() and any(path.samefile(name) for name in names if Path(name).exists()):
            raise UsageError(f"{path}: both an input and an output; choose another output folder.")
        if path.exists() and not force:
            raise UsageError(f"{path}: the file exists; use --force to replace it.")
    for name, paths in zip(names, outputs, strict=True):
        with tempfile.TemporaryDirectory(prefix="virnucpro-frames-") as own:
            rules = InputRules(strict=strict)
            index = build_index(Path(own) / "index", [name], spec, rules=rules)
            for warning in filter(None, (*index.warnings, names_warning(index))):
                say(f"warning: {name}: {warning}")
            folder.mkdir(parents=True, exist_ok=True)
            _remove_unfinished(folder, paths)
            write_frames_files(index, *paths)
        yield from paths


def _distinct_stems(names: Sequence[str]) -> list[str]:
    stems = [_stem(name) for name in names]
    if repeated := {stem for stem in stems if stems.count(stem) > 1}:
        raise UsageError(
            f"{min(repeated)}_*: several inputs have output files of these names; "
            "run the inputs one by one with different output folders."
        )
    return stems


def _outputs(outdir: Path, stem: str, window: int) -> tuple[Path, Path, Path]:
    return (
        outdir / f"{stem}_chunked{window}.fa",
        outdir / f"{stem}_identified_nucleotide.fa",
        outdir / f"{stem}_identified_protein.faa",
    )


def _remove_unfinished(outdir: Path, paths: Sequence[Path]) -> None:
    """Remove temporary files that a killed process left for the output files `paths`."""
    names = {path.name for path in paths}
    for path in outdir.glob("*.tmp"):
        if finished_name(path) in names:
            path.unlink()


def _stem(name: str) -> str:
    """Return the prefix of the output files of input `name`, such as ``b`` for ``a/b.fa.gz``."""
    if name == "-":
        return "stdin"
    path = Path(name)
    return Path(path.stem).stem if path.suffix in _COMPRESSIONS else path.stem
