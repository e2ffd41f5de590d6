"""Genes of viral records: genes.gff3, and the gene map of the report.

Genes are found by `virnucpro.encoders.genes` with the codon scores of the embedded bundle. The
evidence of a record counts genes in spans of 4 kb; here a span has up to `_SPAN` bases, and is read
with `_MARGIN` bases on each side, so that genes at its bounds are whole. A single ambiguous letter
does not end a gene, unless its codon is a stop with any of its bases, such as TAR; the codon has no
score. In the evidence, each unknown letter ends a gene.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Final

import numpy as np

from virnucpro.arrays import BoolArray, ByteArray, IntArray
from virnucpro.bundles.bundle import find_bundle
from virnucpro.encoders.composition.letters import UNKNOWN_CODON, codon_number
from virnucpro.encoders.genes.genes import IS_STOP, UNIT, Genes, Scores, Spans, find_genes
from virnucpro.encoders.weights.shapes import stored_tensors
from virnucpro.report.extract import RecordIds
from virnucpro.report.regions import sequence_ids, write_lines
from virnucpro.sequences.index import SequenceIndex
from virnucpro.tables.cells import integers, named

_SPAN: Final = 100_000
_MARGIN: Final = 20_000
"""Bases read on each side of a span: a longer gene at a bound is cut."""
_STOP: Final = 3
_AMBIGUOUS: Final = re.compile(rb"[RYSWKMBDHVN](?<=[ACGT].)(?=[ACGT])")
"""A letter of several bases between two known ones."""
_TWO_BASES: Final = [
    bytes.maketrans(b"RYSWKMBDHVN", to) for to in (b"AT" + b"A" * 9, b"GC" + b"C" * 9)
]
"""Two bases for each of these letters: a codon that is a stop with both is one with all bases."""
_SENSE: Final = codon_number("AAA")


@cache
def _codon_scores() -> Scores:
    """Return the codon scores of the embedded bundle ``mini``."""
    scores: Scores = stored_tensors(find_bundle("mini") / "genes.safetensors")["scores"]
    return scores


def _over_ambiguous(span: Spans, letters: bytes) -> Spans:
    """Return the span with known codons, stops or `_SENSE`, for those with ambiguous letters."""
    if not _AMBIGUOUS.search(letters):
        return span
    one, other = (_frames_with(bases, letters) for bases in _TWO_BASES)
    codons = np.where(IS_STOP[one] & IS_STOP[other], one, np.uint8(_SENSE))
    filled = (span.frames >= UNKNOWN_CODON) & (one < UNKNOWN_CODON)
    return replace(span, frames=np.where(filled, codons, span.frames))


def _frames_with(bases: bytes, letters: bytes) -> ByteArray:
    """Return `Spans.frames` of letters with other `bases`, a table, for the ambiguous ones."""
    return Spans.of([_AMBIGUOUS.sub(lambda found: found[0].translate(bases), letters)]).frames


def genes_of_record(
    index: SequenceIndex, record: int, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, Genes]]:
    """Yield the genes whose left end is in each span of a record, and the base they count from.

    `first` and `last` are the bounds of a part of the record; None: its end.
    """
    length = int(index.record_lengths[record])
    last = length if last is None else last
    for start in range(first, last, _SPAN):
        offset, end = max(start - _MARGIN, 0), min(start + _SPAN, last)
        letters = index.record_sequence(record, offset, min(end + _MARGIN, length))
        span = Spans.of([letters])
        scored = span.scored(_codon_scores())
        genes = find_genes(_over_ambiguous(span, letters), scored)
        left = genes.left + offset
        yield offset, genes.select((left >= start) & (left < end))


def gene_bounds(genes: Genes) -> tuple[IntArray, IntArray]:
    """Return the first base of each gene and the base after it, with its stop, each ``(n,)``."""
    stop = np.where(genes.open3, 0, _STOP)
    return genes.left - stop * genes.reverse, genes.right + stop * ~genes.reverse


def write_genes(path: Path, ids: RecordIds, chosen: BoolArray) -> None:
    """Write the genes of the chosen records as GFF3 (1-based, inclusive), a line for each CDS.

    The score is the log-odds of the codons in nats. ``partial`` is 10 for a gene without its left
    end, 01 without its right end, 11 without both, 00 for a complete gene, as in Prodigal.

    Parameters
    ----------
    chosen
        ``(n_records,)``.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    write_lines(path, gene_lines(ids, np.flatnonzero(chosen)))


def gene_lines(ids: RecordIds, records: IntArray) -> Iterator[str]:
    """Yield the lines of a GFF3 file of the genes of records, see `write_genes`."""
    yield "##gff-version 3"
    for record in records.tolist():
        [name] = sequence_ids(ids, np.array([record]))
        n_before = 0
        for offset, genes in genes_of_record(ids.index, record):
            starts, ends = gene_bounds(genes)
            left = np.where(genes.reverse, genes.open3, genes.open5)
            right = np.where(genes.reverse, genes.open5, genes.open3)
            n = len(starts)
            cells = (
                *(repeat(name, n), repeat("virnucpro"), repeat("CDS")),
                integers(starts + offset + 1),
                integers(ends + offset),
                map("{:.1f}".format, (genes.score / UNIT).tolist()),
                named(("+", "-"), genes.reverse),
                repeat("0"),
                (
                    f"ID={ids.n_before + record + 1}_{number};partial={at_left:d}{at_right:d}"
                    for number, at_left, at_right in zip(
                        range(n_before + 1, n_before + n + 1), left, right, strict=True
                    )
                ),
            )
            n_before += n
            yield from map("\t".join, zip(*cells, strict=False))  # some repeats have no end
