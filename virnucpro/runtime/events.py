"""Event log: one line of text per event."""

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(slots=True)
class EventLog:
    """Appends lines to a file. Each line is one write, so that processes may share the file.

    A line is ``2026-01-31T12:00:00.000+00:00 rank 0: unit 12``. If it cannot be written, it is lost
    and the work continues.

    Attributes
    ----------
    path
        The file, in an existing folder.
    """

    path: Path

    def write(self, text: str) -> None:
        """Append one event to the log: a line with the time and `text`."""
        line = f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {text}\n"
        with suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, line.encode("utf-8", "backslashreplace"))
            finally:
                os.close(descriptor)
