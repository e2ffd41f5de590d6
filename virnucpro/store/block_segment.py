"""Segments of blocks: a file with all results of the records of one block, with a checksum.

The file is HDF5 after a user block, a text header with the version, the length of the HDF5 image
and its SHA-256. It has two datasets of bytes: `about` is JSON, with type, shape and position of
each array in `arrays`. A dataset for each array would take ten times as long: 4 % of a run.

The arrays are the columns of the block's index without letters, those of its records, `row_state`,
`row_scores`, and `row_vectors` and `row_counts` if the run stores vectors. Whoever has the file and
the description of the run can print the records.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np

from virnucpro.arrays import AnyArray
from virnucpro.durable import write_bytes
from virnucpro.errors import DamagedSegmentError, SegmentError

FORMAT_VERSION: Final = 2
_USER_BLOCK: Final = 512
_ALIGNMENT: Final = 8
"""Bytes; an array begins at a multiple of them."""
_START: Final = b"virnucpro-block "


@dataclass(frozen=True, eq=False, slots=True)
class BlockSegment:
    """Results of one block.

    Attributes
    ----------
    number
        Number of the block in the run.
    fingerprint
        The run's fingerprint.
    about
        Facts as JSON values.
    arrays
        All arrays by name; those of a file are read-only.
    """

    number: int
    fingerprint: str
    about: Mapping[str, Any]
    arrays: Mapping[str, AnyArray]


def named_arrays(arrays: Mapping[str, AnyArray], prefix: str) -> dict[str, AnyArray]:
    """Return the arrays whose names begin with a prefix, without it."""
    size = len(prefix)
    return {name[size:]: values for name, values in arrays.items() if name.startswith(prefix)}


def encode_block(segment: BlockSegment) -> bytes:
    """Return the content of the segment's file. Equal segments give equal bytes."""
    stream, places = BytesIO(), {}
    arrays = bytearray()
    for name, values in segment.arrays.items():
        places[name] = values.dtype.str, values.shape, len(arrays)
        arrays += values.tobytes()
        arrays += bytes(-len(arrays) % _ALIGNMENT)
    about = {
        "number": segment.number,
        "fingerprint": segment.fingerprint,
        "arrays": places,
        **segment.about,
    }
    # This version of object headers has no times, so that the bytes depend on the content alone.
    with h5py.File(stream, "w", libver=("earliest", "v108"), userblock_size=_USER_BLOCK) as file:
        for name, content in (("about", json.dumps(about).encode()), ("arrays", arrays)):
            file.create_dataset(name, data=np.frombuffer(content, np.uint8), track_times=False)
    with stream.getbuffer() as image:
        image[:_USER_BLOCK] = _header(image[_USER_BLOCK:])
    return stream.getvalue()


def write_block(path: Path, segment: BlockSegment) -> None:
    """Write a segment atomically and flush it to disk.

    Raises
    ------
    OSError
        If the file cannot be written. An earlier file at `path` is unchanged.
    """
    write_bytes(path, encode_block(segment))


def open_block(path: Path, number: int, fingerprint: str) -> BlockSegment:
    """Read and verify the segment of a block of a run.

    Raises
    ------
    DamagedSegmentError
        If bytes are altered or missing.
    SegmentError
        If the file is not a segment of this block, run or version.
    OSError
        If the file cannot be read.
    """
    image = path.read_bytes()
    if not image.startswith(_START + b"%d\n" % FORMAT_VERSION):
        raise SegmentError(f"{path}: not a segment of version {FORMAT_VERSION}. Remove it.")
    if image[:_USER_BLOCK] != _header(memoryview(image)[_USER_BLOCK:]):
        raise DamagedSegmentError(f"{path}: truncated or altered (size or checksum differ).")
    with h5py.File(BytesIO(image), "r") as file:
        about = json.loads(file["about"][()].tobytes())
        start = file["arrays"].id.get_offset()
    arrays = {
        name: np.frombuffer(image, kind, math.prod(shape), (start or 0) + place).reshape(shape)
        for name, (kind, shape, place) in about.pop("arrays").items()
    }
    found = about.pop("number"), about.pop("fingerprint")
    if found != (number, fingerprint):
        raise SegmentError(f"{path}: a segment of block {found[0]} of another run. Remove it.")
    return BlockSegment(*found, about, arrays)


def _header(payload: memoryview) -> bytes:
    digest = hashlib.sha256(payload).hexdigest()
    text = b"%b%d\nbytes %d\nsha256 %b\n" % (_START, FORMAT_VERSION, len(payload), digest.encode())
    return text.ljust(_USER_BLOCK - 1) + b"\n"
