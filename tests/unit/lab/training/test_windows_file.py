"""Windows for a training: lengths, windows of pieces, and a choice of those with an item."""

import numpy as np
import pytest

from virnucpro.errors import InputError
from virnucpro.lab.training.calibration import LENGTH_CLASSES, length_classes
from virnucpro.lab.training.draw import CROPS, Crops, PieceKind, draw_crops
from virnucpro.lab.training.genomes import Genome
from virnucpro.lab.training.windows_file import draw_training_windows

LETTERS = np.frombuffer(b"ACGT", np.uint8)


def genome(number, kingdom):
    bases = np.random.default_rng(number).choice(LETTERS, 12_000).tobytes()
    return Genome(f"g{number}", kingdom, f"group{number}", kingdom, (bases,), (f"g{number}",))


GENOMES = [genome(number, "virus" if number % 2 else "plant") for number in range(6)]


@pytest.fixture(scope="module")
def windows():
    return draw_training_windows(GENOMES, 1)


def test_lengths_are_between_two():
    dice = np.random.default_rng(1)
    between = [CROPS.draw(dice) for _ in range(2_000)]
    assert (min(between) >= 150, max(between) <= 1000) == (True, True)
    assert 300 < np.median(between) < 480  # log-uniform: the root of 150 times 1,000 is 387


def test_drawn_windows_have_the_lengths():
    drawn = draw_crops(GENOMES, 1, Crops((200, 201)))
    lengths = [len(one) for one in drawn.bases]
    assert min(lengths) > 190  # errors may delete or insert single bases
    assert max(lengths) < 210
    assert lengths.count(200) > len(lengths) / 2


def test_a_share_of_the_windows_is_drawn():
    numbers = [
        len(draw_crops(GENOMES, 1, Crops((200, 201), share=share)).bases) for share in (1, 0.25)
    ]
    assert numbers[1] == pytest.approx(numbers[0] / 4, rel=0.05)


def test_classes_are_in_proportion_to_the_window():
    assert length_classes(500) == LENGTH_CLASSES
    first, *_, last = length_classes(1000)
    assert (first.bases, first.min_windows, first.min_bases) == (400, 1, 0)
    assert (last.bases, last.min_windows, last.min_bases) == (60_000, 41, 0)
    assert [one.min_bases for one in length_classes(100)[:3]] == [0, 50, 80]


@pytest.mark.parametrize("window", [200, 500])
def test_pieces_are_divided_into_windows_of_the_bundle(window):
    windows = draw_training_windows(GENOMES, 1, window=window, errors=True)
    lengths = [one.bases for one in length_classes(window) if one.bases <= 12_000]
    assert [kind.bases for kind in windows.tiled if not kind.errors] == lengths
    assert {kind.bases for kind in windows.tiled if kind.errors} == {*lengths[4:]}
    for (length, errors), one in windows.tiled.items():
        if errors:
            clean = windows.tiled[PieceKind(length)].pieces
            assert one.pieces.groups == clean.groups
            rates = [len(a) / len(b) for a, b in zip(one.pieces.bases, clean.bases, strict=True)]
            assert np.mean(rates) == pytest.approx(1 - 0.05 * (0.35 - 0.25), abs=0.002)
            continue
        assert max(map(len, one.windows)) == min(window, length)
        assert np.diff(one.first).tolist() == [-(-length // window)] * len(one.pieces.groups)


def test_chosen_windows_are_selected_with_their_features(windows):
    everything = [*windows.crops.bases, *(w for one in windows.tiled.values() for w in one.windows)]
    chosen = np.random.default_rng(2).random(len(everything)) < 0.3
    features = np.arange(len(everything), dtype=np.float32)[:, None]
    selected = windows.select(chosen)
    crops, pieces = selected.split(features[chosen])
    numbers = crops[slice(0, crops.shape[0])][:, 0]
    assert [everything[int(number)] for number in numbers] == selected.crops.bases
    assert len(selected.crops.groups) == len(selected.crops.sources) == crops.shape[0]
    for length, one in pieces.items():
        tiled = selected.tiled[length]
        numbers = one.features[slice(0, one.features.shape[0])][:, 0]
        assert [everything[int(number)] for number in numbers] == tiled.windows
        assert (np.diff(one.first) > 0).all()
        assert len(one.groups) == len(one.first) - 1
    assert windows.select(np.ones(len(everything), np.bool_)).tiled.keys() == windows.tiled.keys()


def test_a_class_without_any_item_is_refused(windows):
    count = len(windows.crops.bases) + sum(len(one.windows) for one in windows.tiled.values())
    with pytest.raises(InputError, match=r"no window of a class has an item.*--lengths"):
        windows.select(np.zeros(count, np.bool_))
