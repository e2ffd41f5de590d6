"""Genes, evidence and protein words of pieces, and the encoder that joins them."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from virnucpro.encoders.genes import evidence, genes
from virnucpro.encoders.genes.config import GenesConfig
from virnucpro.encoders.genes.encoder import scan_pieces
from virnucpro.encoders.genes.inputs import FACTS, N_INPUTS, WIDTH, vectors_of
from virnucpro.encoders.registry import config_of, load_encoder
from virnucpro.errors import BundleError
from virnucpro.lab.training.record_head import learn_scores
from virnucpro.sequences.translation import reverse_complement

SENSE = [
    f"{a}{b}{c}" for a in "ACGT" for b in "ACGT" for c in "ACGT" if f"{a}{b}{c}" not in
    ("TAA", "TAG", "TGA")
]  # fmt: skip


def gene(rng, n_codons, start="ATG"):
    """A gene whose codons prefer G first and C third, unlike its other frames."""
    weights = np.array([(6 if one[0] == "G" else 1) * (6 if one[2] == "C" else 1) for one in SENSE])
    codons = rng.choice(SENSE, n_codons - 1, p=weights / weights.sum())
    return (start + "".join(codons) + "TAA").encode()


def between(rng, n_bases):
    """Bases in which all six frames have stops."""
    filler = b"TTAATTAATTAACTAGCTAG" + rng.choice(list(b"ACGT"), n_bases).astype(np.uint8).tobytes()
    return filler + b"TTAATTAATTAACTAGCTAG"


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(1)
    learned = learn_scores([gene(rng, 400) for _ in range(40)])
    # All GC classes have the scores of the one with most codons.
    return np.tile(learned[np.abs(learned).sum(axis=1).argmax()], (genes.GC_CLASSES, 1))


@pytest.fixture
def record():
    rng = np.random.default_rng(2)
    forward, backward = gene(rng, 150), reverse_complement(gene(rng, 200, "GTG"))
    return between(rng, 60) + forward + between(rng, 40) + backward + between(rng, 60)


def found_in(bases, scores):
    spans = genes.Spans.of([bases])
    return genes.find_genes(spans, spans.scored(scores))


def evidence_of(spans, scores):
    return evidence.scan(spans, scores).evidence


def part(vector, name):
    return vector[..., evidence.PARTS[name]].tolist()


def test_genes_of_both_strands_are_found_at_their_places(record, scores):
    found = found_in(record, scores)
    assert found.reverse.tolist() == [False, True]
    first = record.index(b"ATG", 100)
    assert abs(int(found.left[0]) - first) <= 60
    assert found.codons.tolist() == pytest.approx([150, 200], abs=12)
    ends = record[int(found.right[0]) :][:3], record[: int(found.left[1])][-3:]
    assert ends == (b"TAA", b"TTA")
    assert not found.open5.any()
    assert not found.open3.any()


def test_the_reverse_complement_has_the_mirrored_genes(record, scores):
    given, mirrored = found_in(record, scores), found_in(reverse_complement(record), scores)
    assert mirrored.codons.tolist() == given.codons[::-1].tolist()
    assert mirrored.left.tolist() == (len(record) - given.right[::-1]).tolist()
    assert mirrored.score.tolist() == given.score[::-1].tolist()


def test_the_reverse_complement_has_equal_evidence(record, scores):
    given, mirrored = evidence_of([record, reverse_complement(record)], scores)
    for name in evidence.LAYOUT:
        if name == "strand":
            assert part(given, name) == part(mirrored, name)[::-1]
        elif name in ("path", "dipeptides", "steps"):
            differ = np.abs(np.subtract(part(given, name), part(mirrored, name)))
            assert differ[np.arange(len(differ)) != 1].sum() <= 0.02 * sum(part(given, name)), name
        else:
            assert part(given, name) == part(mirrored, name), name


@pytest.mark.parametrize("n_bases", [1, 2, 3, 47, 48, 49, 500, 3999])
def test_evidence_depends_on_the_span_alone(record, scores, n_bases):
    span = (record * 4)[:n_bases]
    alone = evidence_of([span], scores)[0]
    among = evidence_of([record, span, record * 2, b"N" * 700], scores)[1]
    assert alone.tolist() == among.tolist()
    assert alone[:2].tolist() == [n_bases, 0]


def test_sums_over_spans_are_the_evidence_of_the_record(record, scores):
    long = record * 12
    spans = evidence.cut(long)
    assert b"".join(spans) == long
    assert max(map(len, spans)) <= genes.SPAN
    sums = evidence_of(spans, scores).astype(np.int64).sum(axis=0)
    assert scan_pieces([long, record], scores)[0][0].tolist() == sums.tolist()
    assert sums[evidence.PARTS["words"]].sum() == len(long) - 3 * len(spans)


def test_the_border_of_a_span_loses_few_gene_bases(record, scores):
    # A gene that a border divides loses at most both parts of fewer than 30 codons and a start.
    long = record * 12
    codons = evidence.NAMES.index("gene codons")
    divided = evidence_of(evidence.cut(long), scores).astype(np.int64).sum(axis=0)[codons]
    assert divided >= 0.9 * 12 * evidence_of([record], scores)[0, codons]


def test_lower_case_counts_and_unknown_letters_do_not(record, scores):
    given = evidence_of([record], scores)[0]
    assert evidence_of([record.lower()], scores)[0].tolist() == given.tolist()
    masked = record[:200] + b"N" * 5 + record[205:]
    with_n = evidence_of([masked], scores)[0]
    assert with_n[:2].tolist() == [len(record) - 5, 5]
    assert sum(part(with_n, "words")) == len(record) - 3 - 8
    assert sum(part(with_n, "codons")) <= sum(part(given, "codons"))


@pytest.mark.parametrize("bases", [b"N" * 300, b"A", b"NN", b"ACGT" * 200])
def test_spans_without_genes_have_no_genes(bases, scores):
    vector = evidence_of([bases], scores)[0]
    assert part(vector, "genes")[1] == 0
    assert int(vector[:2].sum()) == len(bases)


def test_borders_see_the_ribosome_binding_site(scores):
    rng = np.random.default_rng(3)
    bases = between(rng, 60) + b"AGGAGGTTTTTT" + gene(rng, 150) + between(rng, 60)
    for one in (bases, reverse_complement(bases)):
        vector = evidence_of([one], scores)[0]
        assert part(vector, "motifs") == [1, 0, 0, 0, 0, 0, 0]
        assert part(vector, "spacers") == [0, 1, 0]


def test_the_coding_path_follows_a_gene_through_lost_and_added_bases(scores):
    rng = np.random.default_rng(5)
    whole, steps = gene(rng, 300), evidence.LAYOUT["steps"]
    broken = whole[:300] + whole[301:600] + b"A" + whole[600:]
    for bases in (broken, reverse_complement(broken)):
        given, expected = evidence_of([bases, whole], scores)
        counts = dict(zip(steps, part(given, "steps"), strict=True))
        forward = counts["path codons"] if bases is broken else 0
        assert counts["frame shifts"] == 2
        assert counts["strand changes"] == 0
        assert counts["path starts"] == 1
        assert counts["forward path codons"] == forward
        assert counts["path codons"] == pytest.approx(300, abs=12)
        similar = np.corrcoef(part(given, "dipeptides"), part(expected, "dipeptides"))
        assert similar[0, 1] > 0.9


def test_words_are_those_of_the_protein(scores):
    rng = np.random.default_rng(4)
    one = gene(rng, 300)
    spans = [between(rng, 60) + one + between(rng, 60), reverse_complement(one)]
    found = evidence.scan(spans, scores)
    first, second = (set(found.keys[found.owner == i].tolist()) for i in (0, 1))
    assert len(first & second) > 0.9 * len(second) > 90


@pytest.fixture
def tensors(scores, record):
    """Tensors of an encoder that knows the words of `record`."""
    keys = np.unique(evidence.scan([record], scores).keys)
    means = np.full(WIDTH, 0.01, np.float32)
    return {
        "scores": scores,
        "keys": keys,
        "values": np.full(len(keys), evidence.LEVELS, np.uint8),  # another virus, level 0
        "means": means,
    }


def spec_with(tmp_path, tensors, features=2):
    save_file(tensors, tmp_path / "genes.safetensors")
    return GenesConfig(features).spec("genes", tmp_path, {"weights": "genes.safetensors"})


def test_the_number_of_unknown_bases_has_no_influence():
    """Trainings have few gaps: heads would know nothing of the 100 N that scaffolds have."""
    sums = np.random.default_rng(1).integers(0, 50, (1, WIDTH))
    gapped = sums.copy()
    gapped[:, evidence.PARTS["bases"].start + 1] += 100
    means = np.full(WIDTH, 0.01, np.float32)
    assert np.array_equal(vectors_of(sums, means), vectors_of(gapped, means))


def test_a_vector_depends_on_its_piece_alone_and_ends_with_the_facts(tmp_path, tensors, record):
    encoder = load_encoder(spec_with(tmp_path, tensors))
    pieces = [record, b"N" * 900, record * 12, b"A", *(record[:n] for n in range(600, 640))]
    found = encoder.vectors(encoder.tokenise(pieces))
    assert np.isfinite(found).all()
    alone = [encoder.vectors(encoder.tokenise([one]))[0] for one in pieces]
    assert np.array_equal(np.stack(alone), found)
    facts = dict(zip(FACTS, found[0, N_INPUTS:].tolist(), strict=True))
    n_words = len(evidence.scan([record], tensors["scores"]).keys)
    assert facts == {
        "genes": 2,
        "complete genes": 2,
        "gene codons": pytest.approx(350, abs=24),
        "known bases": len(record),
        "strand switches": 1,
        "words of genes": n_words,
        "known viral words": n_words,
        "known host words": 0,
        "path codons": pytest.approx(360, abs=24),
        "frame shifts": pytest.approx(2, abs=2),
    }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"keys": None}, "missing"),
        ({"keys": np.empty(0, np.uint32), "values": np.empty(0, np.uint8)}, "keys.*shape"),
        ({"values": np.zeros(3, np.uint8)}, "values.*shape"),
        ({"means": np.zeros(WIDTH, np.float16)}, "float16, not float32"),
        ({"scores": np.full((8, 128), 1, np.int16)}, "of an unknown codon"),
        ({"scores": np.tile(np.int16([33] + [0] * 127), (8, 1))}, "a score beyond 32"),
        ({"means": np.full(WIDTH, np.nan, np.float32)}, "not shares"),
        ({"means": np.full(WIDTH, -1, np.float32)}, "not shares"),
    ],
)
def test_invalid_weights_are_refused(tmp_path, tensors, change, told):
    changed = {name: one for name, one in (tensors | change).items() if one is not None}
    with pytest.raises(BundleError, match=told):
        load_encoder(spec_with(tmp_path, changed))


def test_a_damaged_table_of_words_is_refused(tmp_path, tensors):
    values = np.append(tensors["values"][1:], np.uint8(12))
    with pytest.raises(BundleError, match="a value from 12 on"):
        load_encoder(spec_with(tmp_path, tensors | {"values": values}))
    for keys in (tensors["keys"][::-1].copy(), np.full_like(tensors["keys"], 7)):
        with pytest.raises(BundleError, match="'keys' is not in ascending order"):
            load_encoder(spec_with(tmp_path, tensors | {"keys": keys}))


def test_another_version_of_the_evidence_is_refused(tmp_path, tensors):
    with pytest.raises(BundleError, match="version 99 of the evidence"):
        config_of(spec_with(tmp_path, tensors, features=99))
