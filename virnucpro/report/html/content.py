"""Content of the report as plain data: one summary for each run, and what joins them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from virnucpro import __version__
from virnucpro.report.citations import PUBLICATIONS
from virnucpro.report.html.best import (
    best_records,
    record_rank,
    record_rows,
    record_tracks,
    region_rank,
    region_rows,
    track_rank,
)
from virnucpro.report.html.counts import (
    BINS,
    file_counts,
    histogram,
    length_counts,
    sample_counts,
    unanswered,
)
from virnucpro.report.html.run_story import parameters_of, story_of
from virnucpro.report.html.wording import answer, gap_sentences
from virnucpro.report.reading.facts import RunFacts

__all__ = ["RECORDS", "content_of"]

RECORDS: Final = 5_000
"""Records in the table of the report."""
_TRACKS: Final = 24
_REGIONS: Final = 2_000
_DETAILED: Final = 20
"""Most runs whose story and parameters are shown."""
_TOTALS: Final = (
    *("records", "bases", "viral", "viral_bases", "ambiguous", "non_viral", "not_scored"),
    "provirus",
)


@dataclass(frozen=True, slots=True)
class _Limits:
    """Numbers of entries that each run may have."""

    records: int
    tracks: int
    regions: int
    details: bool


def content_of(
    runs: Iterable[RunFacts], n_runs: int, missing: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the content of a report over `n_runs` runs; one run is held at a time.

    `missing` are sentences on what the report lacks beside the gaps of the runs.
    """
    limits = _Limits(
        records=max(5, RECORDS // n_runs),
        tracks=max(1, _TRACKS // n_runs) if n_runs <= _TRACKS else 0,
        regions=max(5, _REGIONS // n_runs),
        details=n_runs <= _DETAILED,
    )
    return _joined([_summary(facts, limits) for facts in runs], missing)


def _summary(facts: RunFacts, limits: _Limits) -> dict[str, Any]:
    best = [int(one) for one in best_records(facts.records, limits.records)]
    tracks, no_tracks = record_tracks(facts, limits.tracks) if limits.tracks else ([], "")
    calibrated = facts.records.calibrated
    return {
        "counts": sample_counts(facts),
        "gaps": gap_sentences(facts.sample, facts.gaps(), working=facts.working),
        "lengths": length_counts(facts.records),
        "files": file_counts(facts.records, facts.manifest["inputs"]),
        "probability": histogram(facts.records, "probability") if calibrated else None,
        "score": histogram(facts.records, "score"),
        "threshold": facts.drawn_threshold,
        "calibrated": calibrated,
        "unanswered": unanswered(facts.records),
        "records": record_rows(facts, best),
        "tracks": tracks,
        "no_tracks": no_tracks,
        "regions": region_rows(facts, limits.regions),
        "n_regions": None if facts.regions is None else len(facts.regions),
        "story": story_of(facts) if limits.details else None,
        "parameters": parameters_of(facts) if limits.details else None,
    }


def _joined(runs: Sequence[dict[str, Any]], missing: Sequence[str]) -> dict[str, Any]:
    samples = [run["counts"] for run in runs]
    head, rest = answer(samples)
    several = len(runs) > 1
    regions = [run["n_regions"] for run in runs if run["n_regions"] is not None]
    thresholds = {(run["threshold"], run["calibrated"]) for run in runs}
    threshold, calibrated = thresholds.pop() if len(thresholds) == 1 else (None, False)
    return {
        "title": f"{len(runs):,} samples" if several else samples[0]["sample"],
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "answer": head,
        "more": rest,
        "partial": [*missing, *(text for run in runs for text in run["gaps"])],
        "samples": samples,
        "totals": {name: sum(one[name] for one in samples) for name in _TOTALS},
        "lengths": _added([run["lengths"] for run in runs]),
        "files": [
            {"sample": run["counts"]["sample"], "file": file, **numbers}
            for run in runs
            for file, numbers in run["files"].items()
        ][:200],
        "n_files": sum(len(run["files"]) for run in runs),
        "bins": BINS,
        "probability": _histograms([run["probability"] for run in runs]),
        "score": _histograms([run["score"] for run in runs]),
        "threshold": threshold,
        "calibrated": calibrated,
        "unanswered": {
            call: _entries([run["unanswered"][call] for run in runs])
            for call in ("not_scored", "ambiguous")
        },
        "records": _columns([run["records"] for run in runs], record_rank),
        "tracks": sorted((track for run in runs for track in run["tracks"]), key=track_rank),
        "no_tracks": " ".join(dict.fromkeys(run["no_tracks"] for run in runs if run["no_tracks"])),
        "regions": _columns([run["regions"] for run in runs], region_rank),
        "n_regions": sum(regions) if regions else None,
        "stories": [run["story"] for run in runs if run["story"]],
        "parameters": [run["parameters"] for run in runs if run["parameters"]],
        "publications": list(PUBLICATIONS.items()),
    }


def _columns(
    runs: Sequence[dict[str, list[Any]]], rank: Callable[[Mapping[str, Any]], tuple[float, ...]]
) -> dict[str, list[Any]]:
    """Return the rows of all runs as columns; those of several runs are sorted by `rank`."""
    if len(runs) == 1:
        return runs[0]
    names = list(runs[0])
    rows = (
        dict(zip(names, row, strict=True))
        for run in runs
        for row in zip(*run.values(), strict=True)
    )
    ordered = sorted(rows, key=rank)
    return {name: [row[name] for row in ordered] for name in names}


def _added(runs: Sequence[dict[str, dict[str, int]]]) -> list[dict[str, Any]]:
    return [
        {"class": name, **{call: sum(run[name][call] for run in runs) for call in runs[0][name]}}
        for name in runs[0]
    ]


def _histograms(runs: Sequence[dict[str, list[int]] | None]) -> dict[str, list[int]] | None:
    known = [run for run in runs if run is not None]
    if not known:
        return None
    return {
        call: [sum(bins) for bins in zip(*(run[call] for run in known), strict=True)]
        for call in known[0]
    }


def _entries(runs: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for entry in (entry for run in runs for entry in run):
        own = found.setdefault(entry["name"], {**entry, "n": 0, "bases": 0})
        own["n"] += entry["n"]
        own["bases"] += entry["bases"]
    return sorted(found.values(), key=lambda entry: -entry["n"])
