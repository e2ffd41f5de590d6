"""What happened, a line each, for people or for programs."""

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
    """Appends lines to a file, each in one piece, so that several processes may share it.

    It informs and decides nothing: work goes on where a line cannot be written.

    Attributes
    ----------
    path
        The file; its folder must be there.
    format
        ``text``: ``2026-01-31T12:00:00.000+00:00 rank 0: unit 12 committed``; ``json``: an object a
        line with ``time`` (UTC, ISO 8601), ``event``, ``text`` and the facts as they are.
    facts
        What every line says.
    error
        Why the last line could not be written; None when it was.
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
            A word that programs look for.
        text
            One line for people.
        facts
            Values for programs; JSON types.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self.format == "json":
            line = json.dumps({"time": now, "event": event, "text": text, **self.facts, **facts})
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
