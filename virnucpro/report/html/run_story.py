"""The run as a story: workers over time, failures, throughput, parameters, versions."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from virnucpro.console import printable
from virnucpro.report.html.wording import bases, duration
from virnucpro.report.reading.facts import RunFacts
from virnucpro.report.reading.history import Span

__all__ = ["parameters_of", "story_of"]

_GAP_S: Final = 600.0
"""Seconds without a worker after which another chart begins."""
_WORKERS_SHOWN: Final = 64
_POINTS: Final = 200
_EVENTS_SHOWN: Final = 60
_TELLING: Final = {"launch", "failed", "dealt", "interrupted", "error", "over", "output-failed"}


def story_of(facts: RunFacts) -> dict[str, Any]:
    """Return facts, charts and events of a run."""
    history = facts.history
    telling = [one for one in history.events if one.kind in _TELLING]
    shown = telling[-_EVENTS_SHOWN:]
    return {
        "sample": facts.sample,
        "records": len(facts.records),
        "facts": [*_facts(facts)],
        "charts": [*_charts(facts)],
        "events": [{"time": _time(one.time), "kind": one.kind, "text": one.text} for one in shown],
        "events_left_out": len(telling) - len(shown) + history.events_left_out,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _facts(facts: RunFacts) -> Iterator[tuple[str, str]]:
    manifest, history = facts.manifest, facts.history
    launches = manifest.get("launches", ())
    yield "started", str(manifest.get("created", ""))[:19].replace("T", " ") + " UTC"
    if history.spans:
        computing = sum(end - begin for begin, end in _busy(history.spans))
        yield "computing", duration(computing)
        if computing > 0:
            yield "throughput", f"{bases(_answered(facts) / computing)}/s"
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
    status = facts.records.words["status"]
    return int(facts.records.numbers["length"][status.codes != status.code("missing")].sum())


def _busy(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Return the times in which at least one worker computed."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted((span.begin, span.end) for span in spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _charts(facts: RunFacts) -> Iterator[dict[str, Any]]:
    """Yield the workers over time, a chart for each time without a longer pause; the last four."""
    groups: list[list[Span]] = []
    last = float("-inf")
    for span in sorted(facts.history.spans, key=lambda one: one.begin):
        if span.begin - last > _GAP_S:
            groups.append([])
        groups[-1].append(span)
        last = max(last, span.end)
    blocks = sum(len(span.done) for span in facts.history.spans)
    for group in groups[-4:]:
        origin = min(span.begin for span in group)
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
                for span in sorted(group, key=lambda one: _natural(one.worker))
                if span.worker in shown
            ],
            "workers_left_out": len(names) - len(shown),
            "failures": failures,
            "curve": [(at, round(part * _answered(facts))) for at, part in curve],
        }


def _natural(name: str) -> list[int | str]:
    return [int(word) if word.isdecimal() else word for word in name.replace(",", "").split()]


def parameters_of(facts: RunFacts) -> dict[str, Any]:
    """Return parameters, rule of the calls, inputs and versions of a run."""
    manifest = facts.manifest
    rule = {name: value for name, value in manifest.get("calls", {}).items() if value is not None}
    calibration: Mapping[str, Any] = manifest.get("calibration") or {}
    rule.setdefault("preset", "default")
    if calibration:
        rule.setdefault("prevalence", calibration["prevalence"])
    if facts.threshold is not None:
        rule["threshold"] = f"{facts.threshold:g} ({facts.scale})"
    return {
        "sample": facts.sample,
        "folder": str(facts.run.root),
        "parameters": [(name, str(value)) for name, value in manifest["parameters"].items()],
        "rule": [(name, str(value)) for name, value in rule.items()],
        "inputs": [
            (str(file["path"]), f"{file['n_records']:,}", bases(file["n_bases"]), file["sha256"])
            for file in manifest["inputs"][:200]
        ],
        "inputs_left_out": max(0, len(manifest["inputs"]) - 200),
        "versions": [(name, str(value)) for name, value in manifest.get("versions", {}).items()],
        "fingerprint": str(manifest["fingerprint"]),
    }
