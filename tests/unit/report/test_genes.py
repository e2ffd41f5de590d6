"""Genes of records: complete ones begin with a start and end with a stop, on both strands."""

import itertools
from pathlib import Path

import gffutils
import numpy as np
import pytest

from virnucpro.report import genes as genes_module
from virnucpro.report.extract import RecordIds
from virnucpro.report.genes import write_genes
from virnucpro.sequences.translation import reverse_complement

STARTS, STOPS = {b"ATG", b"GTG", b"TTG"}, {b"TAA", b"TAG", b"TGA"}


@pytest.fixture(scope="module")
def phage():
    """phiX174, which has genes on the forward strand only."""
    text = Path("tests/data/example.fa").read_text().split(">")
    [entry] = [one for one in text if one.startswith("NC_001422.1")]
    return "".join(entry.splitlines()[1:]).encode()


def written(path, index, chosen):
    write_genes(path, RecordIds(index), np.array(chosen))
    header, *lines = path.read_text().splitlines()
    assert header == "##gff-version 3"
    return [line.split("\t") for line in lines]


def test_the_genes_of_a_phage_are_open_frames_of_both_strands(index_records, phage, tmp_path):
    names = ["phiX", "a|b;c", "other"]
    bases = [phage, reverse_complement(phage), b"ACG" * 900]
    index = index_records([(name, one.decode()) for name, one in zip(names, bases, strict=True)])
    rows = written(tmp_path / "genes.gff3", index, [True, True, False])
    assert {(row[0], row[6]) for row in rows} == {("phiX", "+"), ("a|b%3Bc", "-")}
    forward = [row for row in rows if row[6] == "+"]
    assert 5 <= len(forward) <= 11  # eleven genes, four of them inside others
    for name, _, kind, start, end, score, strand, phase, attributes in rows:
        sequence = bases[0] if name == "phiX" else bases[1]
        gene = sequence[int(start) - 1 : int(end)]
        gene = gene if strand == "+" else reverse_complement(gene)
        assert (kind, phase) == ("CDS", "0")
        assert len(gene) % 3 == 0
        assert float(score) > 0
        edges = attributes.partition("partial=")[2]
        first, last = edges if strand == "+" else edges[::-1]
        assert (gene[:3] in STARTS) or first == "1"
        assert (gene[-3:] in STOPS) == (last == "0")
    mirrored = {(5387 - int(row[4]), 5387 - int(row[3])) for row in rows if row[6] == "-"}
    assert mirrored == {(int(row[3]), int(row[4])) for row in forward}
    database = gffutils.create_db(str(tmp_path / "genes.gff3"), ":memory:")
    assert database.count_features_of_type("CDS") == len(rows)


def test_a_gene_at_the_bound_of_a_span_is_written_once(index_records, phage, tmp_path, monkeypatch):
    index = index_records([("phiX", phage.decode())])
    whole = written(tmp_path / "whole.gff3", index, [True])
    monkeypatch.setattr(genes_module, "_SPAN", 1000)
    monkeypatch.setattr(genes_module, "_MARGIN", 1600)  # the longest gene has 1542 bases
    assert written(tmp_path / "joined.gff3", index, [True]) == whole
    monkeypatch.setattr(genes_module, "_MARGIN", 0)
    parts = written(tmp_path / "parts.gff3", index, [True])
    assert max(int(row[4]) for row in parts) > 5000
    assert sum("partial=00" in row[8] for row in parts) < sum("partial=00" in r[8] for r in whole)
    assert written(tmp_path / "none.gff3", index, [False]) == []


@pytest.mark.parametrize(
    ("letters", "place", "whole"),
    [
        (b"N", 300, True),
        (b"R", 301, True),
        (b"NAN", 300, True),
        (b"NN", 300, False),
        (b"TAR", 300, False),  # a stop in the frame of the gene
        (b"TRA", 300, False),
        (b"TAY", 300, True),
        (b"CTAR", 300, True),  # a stop in another frame
        (b"TAR", -3, True),  # its own stop
        (b"TAN", -3, False),
    ],
)
def test_a_gene_runs_over_ambiguous_letters(letters, place, whole, index_records, phage, tmp_path):
    index = index_records([("phiX", phage.decode())])
    rows = written(tmp_path / "genes.gff3", index, [True])
    complete = [(int(row[3]) - 1, int(row[4])) for row in rows if "partial=00" in row[8]]
    start, end = max(complete, key=lambda gene: gene[1] - gene[0])
    first = (start if place >= 0 else end) + place
    changed = phage[:first] + letters + phage[first + len(letters) :]
    for name, bases in (("+", changed), ("-", complement(changed))):
        index = index_records([("phiX", bases.decode())])
        found = written(tmp_path / f"{name}.gff3", index, [True])
        place_of = (start, end) if name == "+" else (len(phage) - end, len(phage) - start)
        ends = {(int(row[3]) - 1, int(row[4])) for row in found if "partial=00" in row[8]}
        assert (place_of in ends) == whole
        assert len(found) >= len(rows)


def complement(bases):
    return bases[::-1].translate(bytes.maketrans(b"ACGTRY", b"TGCAYR"))


@pytest.mark.parametrize("stops", [STOPS, {complement(stop) for stop in STOPS}])
def test_two_bases_show_whether_a_codon_is_a_stop_for_certain(stops):
    codes = "AA CC GG TT RAG YCT SCG WAT KGT MAC BCGT DAGT HACT VACG NACGT"
    meant = {code[0]: code[1:] for code in codes.split()}
    for codon in itertools.product(meant, repeat=3):
        codons = itertools.product(*(meant[letter] for letter in codon))
        certain = {"".join(one).encode() for one in codons} <= stops
        both = {"".join(codon).encode().translate(bases) for bases in genes_module._TWO_BASES}
        assert (both <= stops) == certain, codon
