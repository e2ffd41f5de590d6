import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from virnucpro.bundles.bundle import open_bundle
from virnucpro.cli.main import main
from virnucpro.errors import BundleError
from virnucpro.lab.validation import golden
from virnucpro.lab.validation.golden import (
    DIRECTIONS,
    PROJECTIONS,
    SCORES,
    compare_golden,
    golden_items,
    project,
)
from virnucpro.lab.validation.options import ComputeOptions


@pytest.fixture(scope="module")
def mini():
    return open_bundle("mini-deep")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_mini_agrees_with_the_recorded_figures(mini, precision):
    rows = compare_golden(mini, ComputeOptions("cpu", precision))
    assert len(rows) == 12
    assert [row for row in rows if not row.agrees] == []
    if precision == "fp32":
        assert min(row.found for row in rows if row.what != "score") > 0.999999


def test_other_weights_do_not_agree(mini, monkeypatch):
    real = golden.golden_vectors

    def spoilt(*arguments):
        vectors = real(*arguments)
        noise = np.random.default_rng(1).normal(size=vectors.shape)
        lengths = [np.linalg.norm(one, axis=1, keepdims=True) for one in (vectors, noise)]
        return (vectors + 0.1 * noise * lengths[0] / lengths[1]).astype(np.float32)

    monkeypatch.setattr(golden, "golden_vectors", spoilt)
    rows = compare_golden(mini, ComputeOptions())
    assert [row.agrees for row in rows if row.what != "score"] == [False] * 8


def test_an_encoder_without_recorded_values_is_an_error(mini):
    first, second = mini.encoders
    unknown = replace(mini, encoders=(replace(first, name="other"), second))
    with pytest.raises(BundleError, match=r"no reference values are recorded for .*'other'"):
        compare_golden(unknown, ComputeOptions())


@pytest.mark.parametrize(("name", "n_rows"), [("mini", 8), ("mini-deep", 12)])
def test_the_command_reports_the_golden_rows_in_json(name, n_rows, called):
    """A bundle that was trained again needs scripts/golden_figures.py."""
    printed = json.loads(called("bundle", "verify", name, "--golden", "--json", code=0).stdout)
    assert (printed["name"], len(printed["golden"])) == (name, n_rows)
    assert json.loads(called("bundle", "verify", name, "--json", code=0).stdout)["golden"] == []


def test_a_projection_preserves_cosines():
    generator = np.random.default_rng(2)
    one = generator.normal(size=(200, 2560)).astype(np.float32)
    other = one + 0.1 * generator.normal(size=one.shape).astype(np.float32)

    def cosines(left, right):
        lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        return (left * right).sum(axis=1) / lengths

    truth = cosines(one, other)
    seen = cosines(project(one), project(other))
    assert abs(truth.mean() - seen.mean()) < 0.001
    assert np.abs(truth - seen).max() < 0.02


@pytest.mark.shared
def test_the_recorded_figures_match_the_published_output(shared):
    folder = shared / "reference" / "published-tool"
    merged = torch.load(folder / "test_with_orfs_merged" / "output_1_merged.pt", weights_only=True)
    for name, first, last in (("DNABERT-S", 0, 768), ("esm2_t36_3B_UR50D", 768, 3328)):
        expected = project(merged["data"][:, first:last].numpy())
        found = np.array(PROJECTIONS[name, last - first].split(), float)
        assert np.allclose(found.reshape(-1, DIRECTIONS), expected, rtol=1e-4, atol=1e-9)
    lines = (folder / "test_with_orfs_merged" / "prediction_results.txt").read_text().splitlines()
    assert [float(line.split("\t")[3]) for line in lines[1:]] == list(SCORES["virnucpro-500"])


@pytest.mark.shared
def test_the_reference_items_match_the_published_ones_in_order(shared):
    folder = shared / "reference" / "published-tool"
    for column, file in enumerate(("nucleotide.fa", "protein.faa"), start=1):
        lines = (folder / f"test_with_orfs_identified_{file}").read_bytes().split()
        assert [item[column] for item in golden_items()] == lines[1::2]
        names = [name.decode().replace("_chunk_1", "_") for name in lines[::2]]
        assert names == [">" + item[0] for item in golden_items()]


def test_the_table_shows_the_tolerance_of_scores_and_vectors(capsys):
    assert main(["bundle", "verify", "mini-deep", "--golden"]) == 0
    _, header, *rows = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert header == ["what", "item", "cosine or score", "expected", "verdict"]
    shown = {(what == "score", "+-" in wanted, ">=" in wanted) for what, _, _, wanted, _ in rows}
    assert shown == {(True, True, False), (False, False, True)}
