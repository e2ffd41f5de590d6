"""The real MultiQC reads the files of two runs; see scripts/test_multiqc.sh."""

import json
import os
import shutil
from pathlib import Path

import pytest
from programs import run_captured

from virnucpro.cli.main import main

pytestmark = pytest.mark.multiqc


@pytest.fixture(scope="module")
def multiqc():
    """The program: named by MULTIQC, or on PATH."""
    program = os.environ.get("MULTIQC") or shutil.which("multiqc")
    if not program:
        pytest.skip("needs MultiQC on PATH, or named by MULTIQC: see scripts/test_multiqc.sh")
    return program


@pytest.mark.timeout(300)
def test_multiqc_shows_statistics_and_plots_of_two_runs(multiqc, tmp_path, tables):
    """Both runs have the same input and a folder of the same name, yet are two samples."""
    example = Path(__file__).parents[1] / "data/example.fa"
    words = ["predict", str(example), "--devices", "cpu:1", "-q"]
    assert main([*words, "-o", str(tmp_path / "in/first/out")]) == 0
    assert main([*words, "-o", str(tmp_path / "in/second/out"), "--threshold", "0.99"]) == 0
    assert main([*words, "-o", str(tmp_path / "in/third.contigs")]) == 0
    done = run_captured(
        multiqc,
        tmp_path / "in",
        "-o",
        tmp_path / "out",
        "--no-version-check",
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "out/multiqc_data/multiqc_data.json").read_text())
    (statistics,) = (
        one for one in data["report_general_stats_data"].values() if "first_out" in one
    )
    assert set(statistics) == {"first_out", "second_out", "third"}  # as MultiQC cuts names
    for name, folder in (("first_out", "first/out"), ("second_out", "second/out")):
        rows = tables(tmp_path / "in" / folder / "predictions.tsv")
        shown = flat(statistics[name])
        assert shown["sequences"] == len(rows)
        assert shown["viral"] == sum(row["call"] == "viral" for row in rows)
    assert flat(statistics["second_out"])["viral"] < flat(statistics["first_out"])["viral"]
    plots = set(data["report_plot_data"])
    assert any("virnucpro_calls" in name for name in plots), plots
    assert any("virnucpro_scores" in name for name in plots), plots
    page = (tmp_path / "out/multiqc_report.html").read_text()
    assert "identifies viral sequences" in page


def flat(entry):
    """Return the columns of a sample, which newer versions of MultiQC give in a list of rows."""
    if isinstance(entry, list):
        (entry,) = entry
        entry = entry.get("data", entry)
    return entry
