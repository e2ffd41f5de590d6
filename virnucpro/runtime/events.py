"""Event log: one line per event, as text for people or JSON for programs."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]


@dataclass(slots=True)
class EventLog:
    """Appends lines to a file. Each line is one write, so that processes may share the file.

    If a line cannot be written, it is lost and the work continues.

    Attributes
    ----------
    path
        The file, in an existing folder.
    format
        ``text``: ``2026-01-31T12:00:00.000+00:00 rank 0: unit 12 committed``; ``json``: one object
        per line with ``time`` (UTC, ISO 8601), ``event``, ``text`` and the `facts`.
    facts
        Names and values that are added to every JSON line.
    """

    path: Path
    format: LogFormat = "text"
    facts: Mapping[str, object] = field(default_factory=dict)

    def write(self, event: str, text: str, **facts: object) -> None:
        """Append one event to the log, as one line.

        Parameters
        ----------
        event
            Name of the event, one word, for JSON.
        text
            Description of the event, one line.
        facts
            Further values for JSON; values that are not JSON types are written as text.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self.format == "json":
            content = {"time": now, "event": event, "text": text, **self.facts, **facts}
            line = json.dumps(content, default=str)
        else:
            line = f"{now} {text}"
        with suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, line.encode("utf-8", "backslashreplace") + b"\n")
            finally:
                os.close(descriptor)
