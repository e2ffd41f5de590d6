"""Files for MultiQC: a sample's general statistics, its calls, and its distribution of scores.

MultiQC reads one section from each file ``*_mqc.json``, and joins the samples of all files whose
section has the same id. https://docs.seqera.io/multiqc/custom_content
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from virnucpro.report.html.counts import BINS, COLOURS, histogram, sample_counts
from virnucpro.report.output_file import write_output
from virnucpro.report.reading.facts import RunFacts

_PARENT: Final = {
    "parent_id": "virnucpro",
    "parent_name": "virnucpro",
    "parent_description": "identifies viral sequences in metagenomic data",
}
_SHARE: Final = {"suffix": "%", "max": 100, "format": "{:,.1f}"}
_INTERVAL: Final = "the 95 % interval of the assumed share"
_CALLS: Final = tuple(call.replace("-", "_") for call in COLOURS)


def write_multiqc(facts: RunFacts, *, plots: bool = True) -> None:
    """Write the three files of a run into its folder; without `plots`, the general statistics.

    Raises
    ------
    RunError
        If a file cannot be written.
    """
    counts = sample_counts(facts)
    sections = [_statistics(facts, counts)]
    if plots:
        sections += [_calls(facts, counts), _scores(facts)]
    for path, section in zip(facts.run.multiqc, sections, strict=False):
        with write_output(path) as stream:
            stream.write(json.dumps(section, indent=1).encode() + b"\n")


def _statistics(facts: RunFacts, counts: Mapping[str, Any]) -> dict[str, Any]:
    total = counts["records"]
    values = {
        "viral": counts["viral"],
        "viral_share": round(100 * counts["viral"] / total, 3) if total else 0,
        "provirus": counts["provirus"],
        "ambiguous": counts["ambiguous"],
        "not_scored": counts["not_scored"],
        "sequences": total,
    }
    if expected := facts.expectation():
        assumed = expected.prevalence
        values["prevalence"] = round(100 * assumed.value, 3)
        values["prevalence_low"] = round(100 * assumed.low, 3)
        values["prevalence_high"] = round(100 * assumed.high, 3)
        values["expected_false"] = counts["expected_false"]
    return {
        "id": "virnucpro_general",
        "plot_type": "generalstats",
        "headers": {
            "viral": _column("Viral", "Sequences called viral", "Reds"),
            "viral_share": _column("% viral", "Share of the sequences that is called viral", "Reds")
            | _SHARE,
            "prevalence": _column("% assumed", "Share of viral sequences that is assumed", "Reds")
            | _SHARE,
            "prevalence_low": _column("% low", f"Lower end of {_INTERVAL}", "Reds") | _SHARE,
            "prevalence_high": _column("% high", f"Upper end of {_INTERVAL}", "Reds") | _SHARE,
            "expected_false": _column("Expected false", "Expected false viral calls", "Oranges"),
            "provirus": _column("Proviruses", "Sequences with a provirus candidate", "Reds"),
            "ambiguous": _column("Ambiguous", "Sequences with an ambiguous call", "Oranges")
            | {"hidden": True},
            "not_scored": _column("Not scored", "Sequences without a score", "Greys")
            | {"hidden": True},
            "sequences": _column("Sequences", "Sequences in the input", "Blues"),
        },
        "data": {facts.sample: values},
    }


def _column(title: str, text: str, scale: str) -> dict[str, Any]:
    return {
        "title": title,
        "description": f"{text} (virnucpro)",
        "namespace": "virnucpro",
        "scale": scale,
        "min": 0,
        "format": "{:,.0f}",
    }


def _calls(facts: RunFacts, counts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_PARENT,
        "id": "virnucpro_calls",
        "section_name": "Calls",
        "description": "Number of sequences by call.",
        "plot_type": "bargraph",
        "pconfig": {
            "id": "virnucpro_calls_plot",
            "title": "virnucpro: Calls",
            "ylab": "sequences",
        },
        "categories": {
            name: {"name": call.replace("_", " "), "color": COLOURS[call]}
            for name, call in zip(_CALLS, COLOURS, strict=True)
        },
        "data": {facts.sample: {name: counts[name] for name in _CALLS}},
    }


def _scores(facts: RunFacts) -> dict[str, Any]:
    column = "probability" if facts.records.calibrated else "score"
    counts = histogram(facts.records, column) or {}
    bins = [sum(values) for values in zip(*counts.values(), strict=True)] or [0] * BINS
    points = {f"{(number + 0.5) / BINS:.4f}": value for number, value in enumerate(bins)}
    return {
        **_PARENT,
        "id": "virnucpro_scores",
        "section_name": "Scores",
        "description": f"Number of sequences by {column}: 0 non-viral, 1 viral.",
        "plot_type": "linegraph",
        "pconfig": {
            "id": "virnucpro_scores_plot",
            "title": "virnucpro: Scores",
            "xlab": column,
            "ylab": "sequences",
            "xmin": 0,
            "xmax": 1,
        },
        "data": {facts.sample: points},
    }
