"""Write windows and stop-free frames as FASTA, with the file names of the published tool."""

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from virnucpro.console import say
from virnucpro.durable import make_folder, remove_unfinished, write_file
from virnucpro.errors import UsageError
from virnucpro.run.job import Inputs, inputs_of, require_inputs
from virnucpro.run.options import FramesOptions
from virnucpro.sequences.entries import shown_path
from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.tables.write import blocks
from virnucpro.temporary import owned_prefix

_COMPRESSIONS = {".gz", ".bz2", ".xz", ".zst"}


def write_frames(
    inputs: Inputs, outdir: str | os.PathLike[str], options: FramesOptions
) -> Iterator[Path]:
    """Write the files of ``virnucpro frames``; yield the path of each file when it is complete.

    For each input, one file contains the windows. Two other files contain the bases and the
    peptides of the stop-free frames. The sequence index is a temporary folder in TMPDIR, about as
    large as the decompressed input.
    `outdir` is created only after the first input has been read without an error.

    Raises
    ------
    InputError
        When an input cannot be read; with `strict`, also if it has gaps, invalid letters, or a
        record of more than `max_record` letters.
    UsageError
        When there is no input, two inputs would have the same output files, an output file exists
        and `force` is not given, or an output file is also an input or no regular file.
    """
    names, folder = inputs_of(inputs), Path(outdir)
    require_inputs(names)
    window, code = options.window, options.genetic_code
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, window, "published", code)
    rules = InputRules(strict=options.strict, max_record=options.max_record)
    outputs = [_outputs(folder, stem, window) for stem in _distinct_stems(names)]
    for path in itertools.chain(*outputs):
        if path.exists() and any(path.samefile(name) for name in names if Path(name).exists()):
            raise UsageError(f"{path}: both an input and an output; choose another output folder.")
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise UsageError(f"{path}: is not a regular file; remove it, or choose another folder.")
        if path.exists() and not options.force:
            raise UsageError(f"{path}: the file exists; use --force to replace it.")
    for name, paths in zip(names, outputs, strict=True):
        with tempfile.TemporaryDirectory(prefix=owned_prefix("frames")) as own:
            index = build_index(Path(own) / "index", [name], spec, rules=rules)
            for warning in index.warnings:
                say(f"warning: {'' if warning.startswith(f'{name}: ') else f'{name}: '}{warning}")
            make_folder(folder)
            remove_unfinished(folder, {path.name for path in paths}.__contains__)
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


def _stem(name: str) -> str:
    """Return the prefix of the output files of input `name`, such as ``b`` for ``a/b.fa.gz``."""
    path = Path(shown_path(name))
    return Path(path.stem).stem if path.suffix in _COMPRESSIONS else path.stem


_LINE = 60


def write_frames_files(
    index: SequenceIndex, chunked: Path, nucleotide: Path, protein: Path
) -> None:
    """Write three FASTA files: all windows, the bases of all open frames, and their peptides.

    An open frame is a reading frame without a stop codon (an item). The order is the input order.

    Parameters
    ----------
    index : SequenceIndex
        Index of kind `frames`, with windows and open frames.
    chunked : Path
        File for the bases of all windows, in lines of 60.
    nucleotide : Path
        File for the bases of all open frames, one line per frame.
    protein : Path
        File for the peptides of all open frames, one line per frame.

    Raises
    ------
    OSError
        When a file cannot be written; an existing file of that name is unchanged.
    """
    _write(chunked, _windows(index))
    _write(nucleotide, _frames(index, "nucleotide"))
    _write(protein, _frames(index, "protein"))


def _windows(index: SequenceIndex) -> Iterator[tuple[str, bytes]]:
    for windows in blocks(index.n_windows):
        for window, name in zip(windows.tolist(), index.window_names(windows), strict=True):
            bases = index.window_sequence(window)
            lines = (bases[start : start + _LINE] for start in range(0, len(bases), _LINE))
            yield name, b"\n".join(lines)


def _frames(
    index: SequenceIndex, view: Literal["nucleotide", "protein"]
) -> Iterator[tuple[str, bytes]]:
    for items in blocks(index.n_items):
        sequences = index.sequences(index.item_row[items], view)
        yield from zip(index.item_names(items), sequences, strict=True)


def _write(path: Path, entries: Iterable[tuple[str, bytes]]) -> None:
    with write_file(path) as stream:
        stream.writelines(b">%b\n%b\n" % (name.encode(), text) for name, text in entries)
