"""Read the event logs of a run: when its workers computed, failed and were restarted."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from virnucpro.run_dir import RunDirectory

_BEGUN: Final = re.compile(r"rank \d+ of \d+: ([\d,]+) units")
_COMMITTED: Final = re.compile(r"rank \d+: unit \d+")
_FINISHED: Final = re.compile(r"rank \d+: [\d,]+ units computed in ")
_WORDS: Final = {
    "unit": "block",
    "units": "blocks",
    "row": "piece",
    "rows": "pieces",
    "rank": "worker",
    "ranks": "workers",
    "segment": "result file",
    "segments": "result files",
}
_WORD: Final = re.compile(rf"(?<![\w/.-])({'|'.join(_WORDS)})(?![\w/-]|\.\w)")
_WORKER_LOG: Final = re.compile(r"rank-(\d+)\.(log|jsonl)")
_EVENTS_SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a coordinator's log: time in seconds since 1970, kind, text."""

    time: float
    kind: str
    text: str


@dataclass(slots=True)
class Span:
    """Time in which one attempt of a worker computed.

    Attributes
    ----------
    worker
        Name of the worker, such as ``worker 3`` or ``task 7, worker 0``.
    begin, end
        Seconds since 1970.
    done
        Time of each finished block of work.
    finished
        Whether the attempt computed its share; False if it failed or was stopped.
    """

    worker: str
    begin: float
    end: float
    done: list[float] = field(default_factory=list)
    finished: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """What the logs of a run show.

    Attributes
    ----------
    events
        Launches, failures, restarts and stops, by time; the last 500 if there are more.
    spans
        Attempts of all workers, by worker and time.
    """

    events: Sequence[Event]
    spans: Sequence[Span]
    events_left_out: int = 0

    @property
    def failures(self) -> int:
        """Return the number of failures of workers."""
        return sum(event.kind == "failed" for event in self.events)


def plain_words(text: str) -> str:
    """Return the text of an event in the words of the report; names of files are unchanged."""
    return _WORD.sub(lambda match: _WORDS[match[1]], text)


def read_history(run: RunDirectory) -> History:
    """Read the logs of a run and of its parts; missing logs and lines of other text are ignored.

    Logs are lost more easily than results, so that damage here is not an error.
    """
    events: list[Event] = []
    spans: list[Span] = []
    for name in ("", *run.part_names()):
        part = run.part(name) if name else run
        prefix = f"task {int(name.split('.')[0])}, " if name else ""
        own = [*_events(part)]
        events += [Event(event.time, event.kind, prefix + event.text) for event in own]
        for path in sorted(part.logs.iterdir()) if part.logs.is_dir() else ():
            if match := _WORKER_LOG.fullmatch(path.name):
                spans += _spans(f"{prefix}worker {int(match[1])}", _lines(path))
    events.sort(key=lambda event: event.time)
    left_out = max(0, len(events) - _EVENTS_SHOWN)
    return History(events[left_out:], spans, left_out)


def _events(run: RunDirectory) -> Iterator[Event]:
    for suffix in ("log", "jsonl"):
        for content in _lines(run.steps(None, suffix)):
            text = str(content["text"])
            yield Event(content["at"], content.get("event") or _kind(text), plain_words(text))


def _kind(text: str) -> str:
    """Return the kind of an event of a text log, by its words."""
    for kind, words in (
        ("launch", r"launch \d+: computing "),
        ("over", r"launch \d+ ended "),
        ("failed", r"worker \d+ failed"),
        ("dealt", r"worker \d+ takes over "),
        ("interrupted", "the run was stopped by "),
        ("error", "the run failed: "),
    ):
        if re.match(words, text):
            return kind
    return "other"


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a log, with `text` and `at` (seconds since 1970); skip other lines."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            content: dict[str, Any] = {}
            if line.startswith("{"):
                try:
                    content = json.loads(line)
                except ValueError:
                    continue
            else:
                content["time"], _, content["text"] = line.rstrip("\n").partition(" ")
            if (at := _seconds(content.get("time"))) is not None and "text" in content:
                yield content | {"at": at}


def _seconds(text: object) -> float | None:
    """Return a time in seconds since 1970; None if the text is not a time with a time zone."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None


def _spans(worker: str, lines: Iterable[Mapping[str, Any]]) -> list[Span]:
    """Return the attempts of one worker: each begins with the line of its share of the work."""
    spans: list[Span] = []
    for line in lines:
        at, text = float(line["at"]), str(line["text"])
        if _BEGUN.match(text) or not spans:
            spans.append(Span(worker, at, at))
        spans[-1].end = max(at, spans[-1].end)
        if _COMMITTED.fullmatch(text):
            spans[-1].done.append(at)
        spans[-1].finished = bool(_FINISHED.match(text))
    return spans
