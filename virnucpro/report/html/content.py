"""Content of the report as plain data: one summary for each run, and what joins them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from virnucpro import __version__
from virnucpro.console import duration, printable
from virnucpro.report.citations import PUBLICATIONS
from virnucpro.report.html.best import (
    ranked_records,
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
    no_clear_call,
    sample_counts,
)
from virnucpro.report.html.wording import answer, bases, gap_sentences
from virnucpro.report.reading.facts import RunFacts
from virnucpro.report.reading.history import Span
from virnucpro.tables.columns import Predictions

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


def content_of(
    runs: Iterable[RunFacts], n_runs: int, missing: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the content of a report over `n_runs` runs; one run is held at a time.

    `missing` are sentences on what the report lacks beside the gaps of the runs.
    """
    return _joined([_summary(facts, n_runs) for facts in runs], missing)


def _summary(facts: RunFacts, n_runs: int) -> dict[str, Any]:
    ranking = ranked_records(facts.records)
    n_tracks = _TRACKS // n_runs
    tracks, no_tracks = record_tracks(facts, ranking, n_tracks) if n_tracks else ([], "")
    calibrated = facts.records.calibrated
    return {
        "counts": sample_counts(facts),
        "gaps": gap_sentences(facts.sample, facts.gaps(), working=facts.working),
        "lengths": length_counts(facts.records),
        "files": file_counts(facts.records),
        "probability": histogram(facts.records, "probability") if calibrated else None,
        "score": histogram(facts.records, "score"),
        "threshold": facts.drawn_threshold,
        "calibrated": calibrated,
        "no_clear_call": no_clear_call(facts.records),
        "records": record_rows(facts, ranking[: max(5, RECORDS // n_runs)]),
        "tracks": tracks,
        "no_tracks": no_tracks,
        "regions": region_rows(facts, max(5, _REGIONS // n_runs)),
        "n_regions": None if facts.regions is None else len(facts.regions["state"]),
        "story": story_of(facts) if n_runs <= _DETAILED else None,
        "parameters": parameters_of(facts) if n_runs <= _DETAILED else None,
    }


def _joined(runs: Sequence[dict[str, Any]], missing: Sequence[str]) -> dict[str, Any]:
    samples = [run["counts"] for run in runs]
    totals = {name: sum(sample[name] for sample in samples) for name in _TOTALS}
    head, rest = answer(samples, totals)
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
        "totals": totals,
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
        "no_clear_call": {
            call: _entries([run["no_clear_call"][call] for run in runs])
            for call in ("not_scored", "ambiguous")
        },
        "columns": [(column.name, column.kind) for column in Predictions.shown("report")],
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
    entries: dict[str, dict[str, Any]] = {}
    for entry in (entry for run in runs for entry in run):
        own = entries.setdefault(entry["name"], {**entry, "n": 0, "bases": 0})
        own["n"] += entry["n"]
        own["bases"] += entry["bases"]
    return sorted(entries.values(), key=lambda entry: -entry["n"])


_GAP_S: Final = 600.0
"""Seconds without a worker after which another chart begins."""
_WORKERS_SHOWN: Final = 64
_POINTS: Final = 200
_EVENTS_SHOWN: Final = 60
_TELLING: Final = {"launch", "failed", "dealt", "interrupted", "error", "over"}


def story_of(facts: RunFacts) -> dict[str, Any]:
    """Return facts, charts and events of a run."""
    history = facts.history
    telling = [event for event in history.events if event.kind in _TELLING]
    shown = telling[-_EVENTS_SHOWN:]
    return {
        "sample": facts.sample,
        "records": len(facts.records),
        "facts": [*_facts(facts)],
        "charts": [*_charts(facts)],
        "events": [
            {"time": _time(event.time), "kind": event.kind, "text": event.text} for event in shown
        ],
        "events_left_out": len(telling) - len(shown) + history.events_left_out,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _facts(facts: RunFacts) -> Iterator[tuple[str, str]]:
    manifest, history = facts.manifest, facts.history
    launches = manifest.get("launches", ())
    yield "started", str(manifest.get("created", ""))[:19].replace("T", " ") + " UTC"
    if history.spans:
        groups = _grouped(history.spans)
        computing = sum(max(span.end for span in one) - one[0].begin for one in groups)
        yield "computing, without the start of workers", duration(computing)
        if computing > 0:
            yield "throughput of this time", f"{bases(_answered(facts) / computing)}/s"
    workers = {span.worker for span in history.spans}
    devices = {
        printable(str(device)) for launch in launches for device in launch.get("devices", ())
    }
    if workers:
        yield "workers", f"{len(workers):,} ({', '.join(sorted(devices)) or 'several machines'})"
    yield "starts of the run", f"{max(1, len(launches)):,}"
    if workers or history.failures:
        yield "failures of workers", f"{history.failures:,}"
    early = sum(not span.finished for span in history.spans)
    if early:
        yield "attempts that ended early", f"{early:,}"
    seconds = manifest.get("seconds", {})
    if "index" in seconds:
        yield "reading the input", duration(seconds["index"])
    if "outputs" in seconds:
        yield "writing the tables", duration(seconds["outputs"])


def _answered(facts: RunFacts) -> int:
    """Return the number of bases of the records that are computed."""
    missing = facts.records.having("status", "missing")
    return int(facts.records.numbers["length"][~missing].sum())


def _grouped(spans: Sequence[Span], pause: float = 0.0) -> list[list[Span]]:
    """Return the spans by begin; another group begins after a longer pause of all workers."""
    groups: list[list[Span]] = []
    last = float("-inf")
    for span in sorted(spans, key=lambda span: span.begin):
        if span.begin - last > pause:
            groups.append([])
        groups[-1].append(span)
        last = max(last, span.end)
    return groups


def _charts(facts: RunFacts) -> Iterator[dict[str, Any]]:
    """Yield the workers over time, a chart for each time without a longer pause; the last four."""
    blocks = sum(len(span.done) for span in facts.history.spans)
    answered = _answered(facts)
    for group in _grouped(facts.history.spans, _GAP_S)[-4:]:
        origin = group[0].begin
        names = sorted({span.worker for span in group}, key=_natural)
        shown = set(names[:_WORKERS_SHOWN])
        done = sorted(moment for span in group for moment in span.done)
        chosen = range(0, len(done), -(-len(done) // _POINTS) or 1)
        curve = [(round(done[i] - origin, 2), (i + 1) / blocks) for i in chosen]
        if done:
            curve.append((round(done[-1] - origin, 2), len(done) / blocks))
        failures = [
            round(event.time - origin, 2)
            for event in facts.history.events
            if event.kind == "failed"
            and origin <= event.time <= max(span.end for span in group) + _GAP_S
        ]
        yield {
            "started": _time(origin),
            "workers": [
                {
                    "worker": span.worker,
                    "begin": round(span.begin - origin, 2),
                    "end": round(span.end - origin, 2),
                    "finished": span.finished,
                }
                for span in sorted(group, key=lambda span: _natural(span.worker))
                if span.worker in shown
            ],
            "workers_left_out": len(names) - len(shown),
            "failures": failures,
            "curve": [(at, round(part * answered)) for at, part in curve],
        }


def _natural(name: str) -> list[int | str]:
    return [int(word) if word.isdecimal() else word for word in name.replace(",", "").split()]


def parameters_of(facts: RunFacts) -> dict[str, Any]:
    """Return parameters, rule of the calls, inputs and versions of a run."""
    manifest = facts.manifest
    rule = {name: value for name, value in manifest.get("calls", {}).items() if value is not None}
    rule.setdefault("preset", "default")
    if assumed := manifest.get("prevalence"):
        rule["prevalence"] = f"{assumed['value']} ({assumed['low']} to {assumed['high']})"
    if facts.threshold is not None:
        rule["threshold"] = f"{facts.threshold:g} ({facts.scale})"
    return {
        "sample": facts.sample,
        "folder": str(facts.run.root),
        "parameters": [
            (name, str(value))
            for name, value in manifest["parameters"].items()
            if value is not None
        ],
        "rule": [(name, str(value)) for name, value in rule.items()],
        "inputs": [
            (str(file["path"]), f"{file['n_records']:,}", bases(file["n_bases"]), file["sha256"])
            for file in manifest["inputs"][:200]
        ],
        "inputs_left_out": max(0, len(manifest["inputs"]) - 200),
        "versions": [(name, str(value)) for name, value in manifest.get("versions", {}).items()],
        "fingerprint": str(manifest["fingerprint"]),
    }
