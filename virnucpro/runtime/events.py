"""Log of events, one line each, for people or for programs."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["EventLog", "LogFormat"]

LogFormat: TypeAlias = Literal["text", "json"]


@dataclass(slots=True)
class EventLog:
    """Appends lines to a file, each in one write, so that several processes may share it.

    A line that cannot be written is dropped: logging never stops work.

    Attributes
    ----------
    path
        The file, in an existing folder.
    format
        ``text``: ``2026-01-31T12:00:00.000+00:00 rank 0: unit 12 committed``; ``json``: an object a
        line with ``time`` (UTC, ISO 8601), ``event``, ``text`` and the facts as they are.
    facts
        Facts of every line.
    error
        Why the last line could not be written; None if it was.
    """

    path: Path
    format: LogFormat = "text"
    facts: Mapping[str, object] = field(default_factory=dict)
    error: OSError | None = None

    def write(self, event: str, text: str, **facts: object) -> None:
        """Append a line.

        Parameters
        ----------
        event
            One word, for programs.
        text
            One line for people.
        facts
            Values for programs; others than JSON types are written as text.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self.format == "json":
            content = {"time": now, "event": event, "text": text, **self.facts, **facts}
            line = json.dumps(content, default=str)
        else:
            line = f"{now} {text}"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, line.encode("utf-8", "backslashreplace") + b"\n")
            finally:
                os.close(descriptor)
            self.error = None
        except OSError as error:
            self.error = error
