"""The format of what a run stores: its version, the names inside the files, the states of a row.

A segment file is an HDF5 file behind a user block of `USER_BLOCK` bytes. The user block holds a
text header that names the schema version, the length of the HDF5 image and its SHA-256; `head -n 3`
shows it, and every HDF5 tool opens the file as it is. The image holds:

====================  ==================  ====================================================
name                  type                content
====================  ==================  ====================================================
attribute `unit`      int64               the unit's number
attr. `fingerprint`   string              the run's fingerprint: inputs, bundle, parameters
dataset `rows`        int64 (n,)          rows of the index, ascending
dataset `state`       uint8 (n,)          `RowState.DONE` or `RowState.QUARANTINED`
dataset `reasons`     uint8 (bytes,)      JSON object, row -> why it is quarantined
dataset `embeddings`  fp16 | fp32 (n, D)  absent where a run keeps none; zero where quarantined
dataset `scores`      fp32 (n, 2)         absent where a run has no head; zero where quarantined
====================  ==================  ====================================================

Datasets are contiguous: a segment is always read whole.
"""

from enum import IntEnum

__all__ = [
    "EMBEDDINGS",
    "EMBEDDINGS_FORMAT",
    "FINGERPRINT",
    "FORMAT",
    "MAGIC",
    "OVERFLOW",
    "REASONS",
    "ROWS",
    "SCHEMA_VERSION",
    "SCORES",
    "SEGMENT_FORMAT",
    "SEQUENCE_IDS",
    "STATE",
    "STATUS",
    "UNIT",
    "USER_BLOCK",
    "VERSION",
    "RowState",
]

SCHEMA_VERSION = 1
"""Version of both formats. A change that an older reader would misread raises it."""

OVERFLOW = "overflow"
"""Quarantine reason of a row whose vector is finite at fp32 but not at fp16."""

MAGIC = "virnucpro-segment"
USER_BLOCK = 512
"""Bytes before the HDF5 image: the smallest user block that HDF5 knows."""

SEGMENT_FORMAT = "virnucpro segment"
EMBEDDINGS_FORMAT = "virnucpro embeddings"

FORMAT = "format"
VERSION = "schema_version"
FINGERPRINT = "fingerprint"
UNIT = "unit"

ROWS = "rows"
STATE = "state"
REASONS = "reasons"
EMBEDDINGS = "embeddings"
SCORES = "scores"

SEQUENCE_IDS = "sequence_ids"
STATUS = "status"


class RowState(IntEnum):
    """What became of a row."""

    DONE = 0
    """Computed: its vector and its scores are finite."""
    QUARANTINED = 1
    """Tried and given up: it has a reason instead of numbers."""
    MISSING = 2
    """In no valid segment. Never stored in a segment."""
