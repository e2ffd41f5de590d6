"""The report of a cross-validation in a real Chromium: drawn, without an error or a request."""

from dataclasses import replace

import numpy as np
import pytest
from cases import slow

from virnucpro.bundles.bundle import open_bundle
from virnucpro.lab.training.report import write_report

pytestmark = pytest.mark.browser

HOSTILE = "</script><img/src=x/onerror=alert(2)>"
LENGTHS = (500, 3_000)


def write(path, figures):
    """Write the report of these figures, with synthetic pieces of groups."""
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
    bundle = replace(open_bundle("mini"), metrics={"cross_validation": figures})
    write_report(path, bundle, held_out)


def size(width):
    return {"width": width, "height": 800}


@pytest.mark.parametrize(("scheme", "width", "n"), [slow("light", 1_200, 8), ("dark", 380, 3)])
def test_the_figures_are_drawn_and_the_weakest_group_is_text(opened, tmp_path, scheme, width, n):
    figures = dict([*open_bundle("mini").metrics["cross_validation"].items()][:n])
    write(tmp_path / "report.html", figures)
    page = opened(tmp_path / "report.html", color_scheme=scheme, viewport=size(width))
    kingdoms = {kingdom for one in figures.values() for kingdom in one["auroc_of_kingdom"]}
    numbers = (("auroc", 1 + len(kingdoms)), ("recall", 2), ("calibration", len(LENGTHS)))
    for name, panels in numbers:
        page.wait_for_selector(f"#{name}-figures > div:nth-child({panels}) svg circle")
        assert page.locator(f"#{name}-figures > div").count() == panels
    right = "all => all.map(one => one.getBoundingClientRect().right)"
    assert max(page.locator("figure svg text").evaluate_all(right)) <= width
    first = page.locator("#weakest tbody tr").first.inner_text()
    assert HOSTILE in first
    assert page.locator("img, iframe, object").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "512" in page.locator("#parameters").inner_text()
