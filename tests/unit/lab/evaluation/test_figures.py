import numpy as np
import pytest
from cases import slow

from virnucpro.lab.evaluation.answers import Tool
from virnucpro.lab.evaluation.comparison import compare
from virnucpro.lab.evaluation.figures import draw_figures
from virnucpro.lab.evaluation.predictions import Prediction, ToolTable

pytestmark = pytest.mark.usefixtures("fonts")


@pytest.mark.parametrize(
    ("n_groups", "n_tools", "by_group", "scored"),
    [slow(1, 8, True, True), slow(21, 1, True, True), (1, 1, False, False)],
)
def test_every_figure_is_drawn(fragments_of, tmp_path, n_groups, n_tools, by_group, scored):
    from matplotlib.image import imread

    labels = [(True, "viral", f"V{i}") for i in range(n_groups)] * 2
    labels += [(False, kingdom, f"{kingdom}{i}") for kingdom in "ab" for i in range(n_groups)] * 2
    length = "whole" if scored else "500"
    members = {length: fragments_of(labels, length)}
    dice = np.random.default_rng(3)
    tools = []
    for number in range(n_tools):
        scores = dice.random(len(labels)) if scored else np.full(len(labels), np.nan)
        rows = {f"s{i}": Prediction(s, s, 1 + (s < 0.5)) for i, s in enumerate(scores.tolist())}
        table = ToolTable("plain", "n", "score", "call", only_viral=False, rows=rows)
        tools.append(Tool(f"tool{number}", "mean", {length: table}))
    options = {"prevalence": 0.5, "n_resamples": 0, "seed": 1, "by_group": by_group}
    comparison = compare(tools, members, **options)
    paths = draw_figures(tmp_path / "figures", comparison, members, 0.5)
    assert {path.name for path in paths} == {
        f"{name}.{kind}"
        for name in ("roc", "precision_recall", "reliability", "groups")
        for kind in ("png", "svg")
    }
    for path in paths:
        if path.suffix == ".png":
            pixels = imread(path)[..., :3]
            assert (pixels < 0.9).any(axis=2).mean() > 0.005, path
            assert pixels.shape[0] < 5000
            assert pixels.shape[1] < 5000
