"""mini separates the windows of real genomes, which it was trained on (slow)."""

import numpy as np
import pytest
from programs import load_script

from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.head import load_head
from virnucpro.encoders.registry import load_encoder
from virnucpro.lab.evaluation.input_table import read_regions
from virnucpro.lab.evaluation.labels import read_labels
from virnucpro.lab.training.draw import draw_pieces
from virnucpro.lab.training.genomes import read_genomes
from virnucpro.lab.training.weights import equal_weights

pytestmark = [pytest.mark.slow, pytest.mark.shared]


@pytest.fixture(scope="module")
def genomes(shared, tmp_path_factory):
    script = load_script("train_mini")
    folder = tmp_path_factory.mktemp("labels")
    script.write_labels(folder / "labels.tsv", [shared / "genomes"])
    script.write_regions(folder / "exclude.bed", [shared / "genomes"])
    excluded = read_regions(folder / "exclude.bed")
    return read_genomes(read_labels(folder / "labels.tsv", "train"), excluded)


@pytest.mark.parametrize(("length", "least"), [(300, 0.80), (500, 0.84)])
def test_windows_of_known_genomes_are_separated(genomes, length, least):
    mini = open_bundle("mini")
    encoder, head = load_encoder(mini.encoders[0]), load_head(mini.head)
    drawn = draw_pieces(genomes, length, 60, 600, 1)
    vectors = encoder.vectors(encoder.tokenise(drawn.bases))
    scores = head.scores(vectors)[:, 1]
    assert np.isfinite(scores).all()
    assert np.isfinite(vectors).all()
    weights, viral = equal_weights(drawn.groups), drawn.viral
    order = np.argsort(scores, kind="stable")
    below = np.cumsum((weights * ~viral)[order])
    assert float((below * (weights * viral)[order]).sum()) > least
