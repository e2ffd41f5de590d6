"""What the files of a run are called inside, and which versions of them exist."""

from enum import IntEnum

__all__ = ["SCHEMA_VERSION", "RowState"]

SCHEMA_VERSION = 1


class RowState(IntEnum):
    """What is known of a row. Segments hold the first two; a survey adds the third."""

    DONE = 0
    QUARANTINED = 1
    MISSING = 2
