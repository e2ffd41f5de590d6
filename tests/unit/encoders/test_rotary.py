import numpy as np
import torch
from esm.rotary_embedding import RotaryEmbedding

from virnucpro.encoders.encoder import pack
from virnucpro.encoders.esm2.model import (
    Rotation,
    interleave_pairs,
    inverse_frequencies,
    rotate,
    rotations,
)

HEADS, WIDTH = 3, 8


def test_products_of_queries_and_keys_equal_those_of_fair_esm():
    generator = torch.Generator().manual_seed(1)
    lengths = [5, 9, 5, 1]
    packed = pack([np.zeros(length, np.int64) for length in lengths])
    joined = torch.randn(len(packed.tokens), 2, HEADS, WIDTH, generator=generator)
    arranged = torch.stack(
        [interleave_pairs(row.flatten(), 2 * HEADS).view(2 * HEADS, WIDTH) for row in joined]
    )
    rotate(arranged, Rotation(inverse_frequencies(WIDTH), torch.device("cpu")).factors(packed))
    for group in packed.groups:
        q, k = group.of(joined).permute(2, 0, 3, 1, 4).flatten(1, 2)
        expected_q, expected_k = RotaryEmbedding(WIDTH)(q, k)
        own_q, own_k = group.of(arranged).transpose(1, 2).split(HEADS, 1)
        products = own_q.flatten(0, 1) @ own_k.flatten(0, 1).mT
        torch.testing.assert_close(products, expected_q @ expected_k.mT)


def test_the_channels_of_a_pair_are_adjacent_in_each_head():
    rows = torch.arange(12)
    assert interleave_pairs(rows, 2).tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    matrix = torch.stack([rows, -rows], 1)
    assert torch.equal(interleave_pairs(matrix, 2)[:, 1], -interleave_pairs(rows, 2))


def test_half_precision_is_rotated_in_fp32_and_rounded_once():
    packed = pack([np.zeros(3000, np.int64)])
    factors = Rotation(inverse_frequencies(WIDTH), torch.device("cpu")).factors(packed)
    exact = torch.randn(3000, HEADS, WIDTH, generator=torch.Generator().manual_seed(2)).bfloat16()
    half, whole = exact.clone(), exact.float()
    rotate(half, factors)
    rotate(whole, factors)
    assert torch.equal(half, whole.bfloat16())


def test_tables_of_short_sequences_are_cached_and_others_are_not():
    rotation = Rotation(inverse_frequencies(WIDTH), torch.device("cpu"))
    short, long = rotation.table(100), rotation.table(100_000)
    assert rotation.table(60).data_ptr() == short.data_ptr()
    assert torch.equal(long[:100], short)
    assert rotation.table(100_000).data_ptr() != long.data_ptr()
    assert len(rotation.table(100_000)) == 100_000


def test_layers_with_equal_frequencies_share_a_rotation():
    exact = inverse_frequencies(WIDTH)
    layers = [exact, exact.clone(), exact.half(), exact, exact.half().double()]
    made = rotations(layers, torch.device("cpu"))
    assert [made.index(rotation) for rotation in made] == [0, 0, 2, 0, 2]
    assert made[0] is made[3]
    assert not torch.equal(made[2].table(9), made[0].table(9))
    torch.testing.assert_close(made[2].table(9).angle()[1], exact.half().float())
