"""File format of segments and embeddings.h5: format version, and codes for the state of a row.

A segment file is an HDF5 file after a user block of `USER_BLOCK` bytes. The user block is a text
header with the schema version, the length of the HDF5 image and its SHA-256; `head -n 3` prints it,
and every HDF5 tool opens the file. The image contains:

====================  ==================  ====================================================
name                  type                content
====================  ==================  ====================================================
attribute `unit`      int64               the unit's number
attr. `fingerprint`   string              the run's fingerprint: inputs, bundle, parameters
dataset `rows`        int64 (n,)          rows of the index, ascending
dataset `state`       uint8 (n,)          `RowState.DONE` or `RowState.QUARANTINED`
dataset `reasons`     uint8 (bytes,)      JSON object, row -> reason of its quarantine
dataset `embeddings`  fp16 | fp32 (n, D)  absent in runs without embeddings; zero without a vector
dataset `scores`      fp32 (n, 2)         absent without a classifier; zero if quarantined
dataset `residues`    fp16 | fp32 (t, D)  one vector per token, instead of `embeddings`
dataset `counts`      int64 (n,)          with `residues`: vectors of each row; 0 if quarantined
====================  ==================  ====================================================

Datasets are contiguous: a segment is always read completely.
"""

from enum import IntEnum
from typing import Literal, TypeAlias

SCHEMA_VERSION = 1
"""Version of both file formats. Increase it for changes that an older reader would misread."""

OVERFLOW = "overflow"
"""Reason of a quarantine: the vector has numbers that are too large for fp16."""

EmbeddingsDtype: TypeAlias = Literal["fp16", "fp32", "none"]
"""Type of stored vectors."""

USER_BLOCK = 512
"""Bytes before the HDF5 image: the smallest user block of HDF5."""


class RowState(IntEnum):
    """State of a row: computed, quarantined or missing."""

    DONE = 0
    """The row is computed; its vector and scores are finite."""
    QUARANTINED = 1
    """The row failed permanently; a reason is stored instead of vector and scores."""
    MISSING = 2
    """The row is in no valid segment. This code is never stored in a segment."""
