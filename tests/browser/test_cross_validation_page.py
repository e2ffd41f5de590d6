"""The report of a cross-validation in a real Chromium: drawn, without an error or a request."""

import numpy as np
import pytest

from virnucpro.bundles.bundle import open_bundle
from virnucpro.lab.training.report import write_report

pytestmark = pytest.mark.browser

HOSTILE = "</script><img/src=x/onerror=alert(2)>"
LENGTHS = (500, 3_000)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The figures of mini, with synthetic pieces of groups."""
    dice = np.random.default_rng(7)
    groups = [("virus", f"virus {number}", 2.0) for number in range(12)]
    groups += [("bacteria", f"genus {number}", -2.0) for number in range(11)]
    groups.append(("bacteria", HOSTILE, 3.0))
    held_out = {
        length: [
            (kingdom, group, kingdom, 0.0, float(dice.normal(middle, 2)))
            for kingdom, group, middle in groups
            for _ in range(10)
        ]
        for length in LENGTHS
    }
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, open_bundle("mini"), held_out)
    return path


@pytest.mark.parametrize(("scheme", "width"), [("light", 1_200), ("dark", 380)])
def test_the_figures_are_drawn_and_the_weakest_group_is_text(report, opened, scheme, width):
    page = opened(report, color_scheme=scheme, viewport={"width": width, "height": 800})
    metrics = open_bundle("mini").metrics["cross_validation"]
    kingdoms = {kingdom for one in metrics.values() for kingdom in one["auroc_of_kingdom"]}
    numbers = (("auroc", 1 + len(kingdoms)), ("recall", 2), ("calibration", len(LENGTHS)))
    for name, panels in numbers:
        page.wait_for_selector(f"#{name}-figures > div:nth-child({panels}) svg circle")
        assert page.locator(f"#{name}-figures > div").count() == panels
    first = page.locator("#weakest tbody tr").first.inner_text()
    assert HOSTILE in first
    assert page.locator("img, iframe, object").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "512" in page.locator("#parameters").inner_text()
