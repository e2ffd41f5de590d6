"""Evidence and words of pieces are those of each piece alone, however many are read at once."""

import numpy as np

from virnucpro.bundles.bundle import open_bundle
from virnucpro.encoders.genes.encoder import scan_pieces
from virnucpro.encoders.registry import load_encoder
from virnucpro.lab.training import record_head
from virnucpro.lab.training.record_head import RecordPieces


def test_pieces_that_are_read_in_parts_have_their_own_words(monkeypatch):
    (spec,) = open_bundle("mini").record.encoders
    encoder = load_encoder(spec)
    dice = np.random.default_rng(3)
    codons = np.array([b"ATG", b"GCA", b"GAA", b"CTG", b"AAA", b"GGT", b"ACC"])  # one long gene
    bases = [b"".join(dice.choice(codons, int(n))) for n in dice.integers(100, 3_000, 23)]
    monkeypatch.setattr(record_head, "_AT_ONCE", 4)
    found = RecordPieces.of(bases, encoder.scores)
    alone = [scan_pieces([piece], encoder.scores) for piece in bases]
    assert np.array_equal(found.evidence, np.concatenate([sums for sums, _, _ in alone]))
    numbers = {}
    for rows, owner, keys in found.words():
        for piece in range(rows.start, rows.stop):
            numbers[piece] = sorted(keys[owner == piece - rows.start].tolist())
    assert numbers == {piece: sorted(keys.tolist()) for piece, (_, _, keys) in enumerate(alone)}
    assert sum(map(len, numbers.values())) > 100
