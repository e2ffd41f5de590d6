"""The committed file of one unit: whole and checked to the last byte, or not there."""

import errno
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt

from virnucpro.durable import write_file
from virnucpro.errors import DamagedSegmentError, SegmentError
from virnucpro.store import schema
from virnucpro.store.schema import SCHEMA_VERSION, USER_BLOCK, RowState
from virnucpro.store.space import is_short_of_space

__all__ = ["Segment", "commit_segment", "encode_segment", "finite_rows", "read_segment"]

FloatArray: TypeAlias = npt.NDArray[np.floating]

_HEADER = re.compile(rb"%b ([0-9]{1,9})\n" % schema.MAGIC.encode())
_UNREADABLE = {errno.EIO, errno.ENOENT, errno.EACCES, errno.EBADMSG, errno.ESTALE, errno.EISDIR}
_NAME = re.compile(r"unit-([0-9]+)\.h5")
_REDO = "--resume redoes its unit"
_HDF5 = b"\x89HDF\r\n\x1a\n"
"""What every HDF5 image begins with."""
_CACHED_ROWS = 64
_ONES = np.uint16(0x7C00)
"""Exponent bits of IEEE 754 binary16, all set in NaN and infinity."""
_FLOATS = (np.dtype(np.float16), np.dtype(np.float32))


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """What is known of the rows of one unit.

    Attributes
    ----------
    unit : int
        The unit's number.
    fingerprint : str
        The run's fingerprint.
    rows : numpy.ndarray
        int64 (n,), n >= 1, ascending.
    state : numpy.ndarray
        uint8 (n,), `RowState.DONE` or `RowState.QUARANTINED`.
    embeddings : numpy.ndarray or None
        float16 or float32 (n, D): finite, zero where quarantined. None where the run keeps none.
    scores : numpy.ndarray or None
        float32 (n, 2): finite, zero where quarantined. None where the run has no head.
    reasons : mapping of int to str
        Row -> why it is quarantined, where that is known: ``reason: evidence``.
    """

    unit: int
    fingerprint: str
    rows: npt.NDArray[np.int64]
    state: npt.NDArray[np.uint8]
    embeddings: FloatArray | None
    scores: npt.NDArray[np.float32] | None
    reasons: Mapping[int, str] = field(default_factory=dict)


def encode_segment(segment: Segment) -> bytes:
    """Make the file's bytes in memory. The same segment always gives the same bytes.

    Raises
    ------
    ValueError
        When the segment breaks a rule of `Segment`: a shape, a type, a number that is not finite.
    """
    problem = _problem(segment)
    if problem:
        raise ValueError(
            f"unit {segment.unit}: {problem}; this is a defect of the code that made it"
        )
    stream = BytesIO()
    # These object headers hold no times, so that the bytes depend on the content alone.
    with h5py.File(stream, "w", libver=("earliest", "v108"), userblock_size=USER_BLOCK) as file:
        _fill(file, segment)
    with stream.getbuffer() as image:
        image[:USER_BLOCK] = _header(image[USER_BLOCK:])
    return stream.getvalue()


def read_segment(path: Path, *, any_name: bool = False) -> Segment:
    """Read a segment and verify all of it: name, size, checksum, schema, shapes, finite numbers.

    Its arrays are read-only: they are views of the file's image. A file that stands in no run may
    have `any_name`.

    Raises
    ------
    DamagedSegmentError
        When the file is a segment, but not to the last byte what `commit_segment` wrote.
    SegmentError
        When it is no segment, cannot be read, or its name tells another unit.
    OSError
        When the machine and not the file is at fault, as when it is out of file handles.
    """
    image = _verified_image(path)
    try:
        segment = _decode(image)
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise DamagedSegmentError(
            f"{path}: holds no segment ({error}); delete it, then {_REDO}"
        ) from error
    if problem := _problem(segment):
        raise DamagedSegmentError(f"{path}: {problem}; delete it, then {_REDO}")
    if misnamed := "" if any_name else _misnamed(path, segment.unit):
        raise SegmentError(f"{path}: {misnamed}; give it back its name, or {_REDO}")
    return segment


def commit_segment(path: Path, segment: Segment) -> int:
    """Write a segment so that it lasts: beside, fsync, rename, fsync of the folder.

    Returns
    -------
    int
        The file's size in bytes.

    Raises
    ------
    ValueError
        As `encode_segment`.
    OSError
        When the file cannot be written; where space is short, its notes say how many bytes were
        wanted. What stood under `path` before is untouched.
    """
    data = encode_segment(segment)
    try:
        with write_file(path) as stream:
            stream.write(data)
    except OSError as error:
        if is_short_of_space(error):
            error.add_note(
                f"unit {segment.unit} needs {len(data):,} bytes of disk; free them, then --resume"
            )
        raise
    return len(data)


def _header(payload: memoryview | bytes) -> bytes:
    digest = hashlib.sha256(payload).hexdigest()
    text = f"{schema.MAGIC} {SCHEMA_VERSION}\nbytes {len(payload)}\nsha256 {digest}\n"
    return text.encode().ljust(USER_BLOCK - 1) + b"\n"


def _verified_image(path: Path) -> bytes:
    """Return the whole file, header included, when its header is the one its payload demands."""
    try:
        with path.open("rb", buffering=0) as stream:  # a buffer would copy the image once more
            _check_version(path, stream.read(USER_BLOCK), stream.read(len(_HDF5)))
            stream.seek(0)
            image = stream.read()
    except OSError as error:
        if error.errno in _UNREADABLE:
            raise SegmentError(f"{path}: cannot be read ({error.strerror}); {_REDO}") from error
        raise
    if image[:USER_BLOCK] != _header(memoryview(image)[USER_BLOCK:]):
        raise DamagedSegmentError(
            f"{path}: is torn or was altered (size or checksum differ); {_REDO}"
        )
    return image


def _check_version(path: Path, header: bytes, signature: bytes) -> None:
    """Tell a foreign file from a segment whose header was altered: an image follows the latter."""
    match = _HEADER.match(header)
    if len(header) < USER_BLOCK:
        raise DamagedSegmentError(f"{path}: is torn ({len(header)} bytes); {_REDO}")
    if match is None and signature == _HDF5:
        raise DamagedSegmentError(f"{path}: its header was altered; {_REDO}")
    if match is None:
        raise SegmentError(
            f"{path}: is no segment of virnucpro; move it out of the run, then {_REDO}"
        )
    if int(match[1]) != SCHEMA_VERSION:
        raise SegmentError(
            f"{path}: has schema version {int(match[1])}, this program knows {SCHEMA_VERSION}; "
            "go on with the version that wrote it, or start a new run"
        )


def _fill(file: h5py.File, segment: Segment) -> None:
    file.attrs[schema.FORMAT] = schema.SEGMENT_FORMAT
    file.attrs[schema.VERSION] = SCHEMA_VERSION
    file.attrs[schema.UNIT] = segment.unit
    file.attrs[schema.FINGERPRINT] = segment.fingerprint
    reasons = json.dumps({str(row): why for row, why in sorted(segment.reasons.items())})
    columns = {
        schema.ROWS: segment.rows,
        schema.STATE: segment.state,
        schema.REASONS: np.frombuffer(reasons.encode(), np.uint8),
        schema.EMBEDDINGS: segment.embeddings,
        schema.SCORES: segment.scores,
    }
    for name, values in columns.items():
        if values is not None:
            file.create_dataset(name, data=values, track_times=False)


def _decode(image: bytes) -> Segment:
    with h5py.File(BytesIO(image), "r") as file:
        if file.attrs[schema.FORMAT] != schema.SEGMENT_FORMAT:
            raise ValueError(f"format {file.attrs[schema.FORMAT]!r}")
        columns = {name.decode(): _column(h5py.h5d.open(file.id, name), image) for name in file.id}
        reasons = json.loads(columns[schema.REASONS].tobytes())
        return Segment(
            unit=int(file.attrs[schema.UNIT]),
            fingerprint=str(file.attrs[schema.FINGERPRINT]),
            rows=columns[schema.ROWS],
            state=columns[schema.STATE],
            embeddings=columns.get(schema.EMBEDDINGS),
            scores=columns.get(schema.SCORES),
            reasons={int(row): str(why) for row, why in reasons.items()},
        )


def _column(dataset: h5py.h5d.DatasetID, image: bytes) -> npt.NDArray[Any]:
    """Look at a contiguous dataset where it lies in the image.

    A read would take twice as long, and h5py's objects twice as long again in small segments.
    """
    shape = dataset.shape
    values = np.frombuffer(image, dataset.dtype, math.prod(shape), dataset.get_offset())
    return values.reshape(shape)


def _misnamed(path: Path, unit: int) -> str:
    match = _NAME.fullmatch(path.name)
    if match and int(match[1]) == unit:
        return ""
    return f"is named {path.name} and holds unit {unit}"


def _problem(segment: Segment) -> str:
    """Say which rule of `Segment` is broken; empty when none is."""
    rows, state = segment.rows, segment.state
    if rows.dtype != np.int64 or rows.ndim != 1 or not rows.size or (np.diff(rows) <= 0).any():
        return "rows are not ascending int64 (n,), n >= 1"
    if state.dtype != np.uint8 or state.shape != rows.shape or (state > RowState.QUARANTINED).any():
        return "state is not uint8 (n,) of RowState.DONE or RowState.QUARANTINED"
    quarantined = state == RowState.QUARANTINED
    if not set(segment.reasons) <= set(rows[quarantined].tolist()):
        return "reasons are given for rows that are not quarantined"
    return _embeddings_problem(segment.embeddings, quarantined) or _scores_problem(
        segment.scores, quarantined
    )


def _embeddings_problem(embeddings: FloatArray | None, quarantined: npt.NDArray[np.bool_]) -> str:
    if embeddings is None:
        return ""
    if embeddings.dtype not in _FLOATS or embeddings.ndim != 2 or not embeddings.shape[1]:
        return "embeddings are not float16 or float32 (n, D)"
    return _numbers_problem("embeddings", embeddings, quarantined)


def _scores_problem(scores: FloatArray | None, quarantined: npt.NDArray[np.bool_]) -> str:
    if scores is None:
        return ""
    if scores.dtype != np.float32 or scores.ndim != 2 or scores.shape[1] != 2:
        return "scores are not float32 (n, 2)"
    return _numbers_problem("scores", scores, quarantined)


def _numbers_problem(name: str, values: FloatArray, quarantined: npt.NDArray[np.bool_]) -> str:
    if len(values) != len(quarantined):
        return f"{name} have {len(values)} rows, the unit {len(quarantined)}"
    if not finite_rows(values).all():
        return f"{name} are not all finite"
    if values[quarantined].any():
        return f"{name} of quarantined rows are not zero"
    return ""


def finite_rows(values: FloatArray) -> npt.NDArray[np.bool_]:
    """Say of each row of `values`, float16 or float32 (n, D), whether all its numbers are finite.

    In float16 it reads the exponents as integers: that is six times as fast as ``np.isfinite``.

    Returns
    -------
    numpy.ndarray
        bool (n,).
    """
    whole = np.empty(len(values), np.bool_)
    for first in range(0, len(values), _CACHED_ROWS):
        block = values[first : first + _CACHED_ROWS]
        if block.dtype == np.float16:
            finite = (np.ascontiguousarray(block).view(np.uint16) & _ONES) != _ONES
        else:
            finite = np.isfinite(block)
        whole[first : first + _CACHED_ROWS] = finite.all(axis=1)
    return whole
