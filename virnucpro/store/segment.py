"""Read (ahead, in threads) and write segments: result files of one unit each, with a checksum."""

import errno
import hashlib
import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import h5py
import numpy as np

from virnucpro.arrays import (
    AnyArray,
    BoolArray,
    ByteArray,
    Float32Array,
    IntArray,
    RealArray,
    finite_rows,
)
from virnucpro.durable import write_file
from virnucpro.errors import DamagedSegmentError, SegmentError
from virnucpro.joined import open_file
from virnucpro.store.schema import SCHEMA_VERSION, USER_BLOCK, RowState

RECOMPUTE: Final = "--resume recomputes the segment"
_FLOATS: Final = (np.dtype(np.float16), np.dtype(np.float32))
"""Types of stored vectors."""
Places: TypeAlias = Mapping[str, tuple[np.dtype[Any], tuple[int, ...], int]]
"""Type, shape and position in bytes of each array in an HDF5 image."""
MARKED_UNIT: Final = 0x6E75_0F5A_C3D2_71B4
"""Unit of an image for `SegmentForm.of`; its bytes show where an image has the unit's number."""


@dataclass(frozen=True, slots=True)
class SegmentForm:
    """All bytes of a segment's HDF5 image except those of its arrays and of the unit's number.

    Two images of one form have equal fingerprints, and arrays of equal types, shapes and positions.

    Attributes
    ----------
    fingerprint : str
        The run's fingerprint.
    places : Places
        Place of each array.
    unit_at : int
        Position of the unit's number, int64.
    others : tuple of (int, bytes)
        Position and content of all other bytes after the user block.
    """

    fingerprint: str
    places: Places
    unit_at: int
    others: tuple[tuple[int, bytes], ...]

    @classmethod
    def of(cls, image: bytes) -> Self:
        """Return the form of an image; the unit is `MARKED_UNIT`."""
        with h5py.File(BytesIO(image), "r") as file:
            fingerprint, places = str(file.attrs["fingerprint"]), _places(file)
        spans = [(at, math.prod(shape) * kind.itemsize) for kind, shape, at in places.values()]
        unit_at = image.index(MARKED_UNIT.to_bytes(8, "little"))
        others, end = [], USER_BLOCK
        for start, size in sorted([*spans, (unit_at, 8), (len(image), 0)]):
            others.append((end, image[end:start]))
            end = start + size
        return cls(fingerprint, places, unit_at, tuple(others))

    def unit_of(self, image: bytes) -> int | None:
        """Return the unit of an image of the same size; None if the image has another form."""
        if all(image.startswith(content, start) for start, content in self.others):
            return int.from_bytes(image[self.unit_at : self.unit_at + 8], "little", signed=True)
        return None


_FORMAT = "virnucpro segment"
_HEADER = re.compile(rb"virnucpro-segment ([0-9]{1,9})\n")
_UNREADABLE = {errno.EIO, errno.ENOENT, errno.EACCES, errno.EBADMSG, errno.ESTALE, errno.EISDIR}
_NAME = re.compile(r"unit-([0-9]+)\.h5")
_HDF5 = b"\x89HDF\r\n\x1a\n"
"""First bytes of every HDF5 image."""
_SMALL_BYTES: Final = 1 << 16
"""Bytes that are read before it is known whether the file is a segment: all of a small one."""
_SHORT_OF_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_QUARANTINED: Final = int(RowState.QUARANTINED)
_MOST_FORMS = 256
_FORMS: dict[int, SegmentForm | None] = {}
"""Form of the segments of each size in bytes; None after one segment of a size."""


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """Results of the rows of one unit.

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
        float16 or float32 (n, D), finite; zero for quarantined rows. With `counts`, (sum of counts,
        D): one vector per token, row by row. None in runs without embeddings.
    scores : numpy.ndarray or None
        float32 (n, 2), finite; zero for quarantined rows. None in runs without a classifier.
    reasons : mapping of int to str
        Text ``reason: evidence`` of each quarantined row, if known.
    counts : numpy.ndarray or None
        int64 (n,), number of vectors of each row; 0 for quarantined rows. None for one per row.
    """

    unit: int
    fingerprint: str
    rows: IntArray
    state: ByteArray
    embeddings: RealArray | None
    scores: Float32Array | None
    reasons: Mapping[int, str] = field(default_factory=dict)
    counts: IntArray | None = None


def encode_segment(segment: Segment) -> bytes:
    """Return the content of the segment file. Equal segments give equal bytes.

    Raises
    ------
    ValueError
        If an array of the segment has a wrong shape or type, or contains NaN or infinity.
    """
    problem = _problem(segment)
    if problem:
        raise ValueError(f"unit {segment.unit}: {problem}; this is a bug in virnucpro")
    reasons = json.dumps({str(row): why for row, why in sorted(segment.reasons.items())})
    stream = BytesIO()
    # This version of object headers has no times, so that the bytes depend on the content alone.
    with h5py.File(stream, "w", libver=("earliest", "v108"), userblock_size=USER_BLOCK) as file:
        file.attrs["format"] = _FORMAT
        file.attrs["schema_version"] = SCHEMA_VERSION
        file.attrs["unit"] = segment.unit
        file.attrs["fingerprint"] = segment.fingerprint
        for name, values in (
            ("rows", segment.rows),
            ("state", segment.state),
            ("reasons", np.frombuffer(reasons.encode(), np.uint8)),
            ("embeddings" if segment.counts is None else "residues", segment.embeddings),
            ("scores", segment.scores),
            ("counts", segment.counts),
        ):
            if values is not None:
                file.create_dataset(name, data=values, track_times=False)
    with stream.getbuffer() as image:
        image[:USER_BLOCK] = _header(image[USER_BLOCK:])
    return stream.getvalue()


def read_segment(path: Path, *, any_name: bool = False) -> Segment:
    """Read a segment; verify file name, size, checksum, schema, shapes and finite numbers.

    The arrays are read-only and share the memory of the file content. With `any_name`, the file
    name is not verified; this is for segments outside of a run.

    Raises
    ------
    DamagedSegmentError
        If the file is a segment with altered or missing bytes.
    SegmentError
        If the file is not a segment, cannot be read, or has the name of another unit.
    OSError
        If an error does not depend on the file, such as too many open files.
    """
    image = _verified_image(path)
    try:
        segment = _decode(image)
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise DamagedSegmentError(
            f"{path}: invalid content of a segment ({error}). Delete the file, then {RECOMPUTE}."
        ) from error
    if problem := _problem(segment):
        raise DamagedSegmentError(f"{path}: {problem}. Delete the file, then {RECOMPUTE}.")
    if not any_name and named_unit(path) != segment.unit:
        raise SegmentError(
            f"{path}: the name is that of another unit, but the content is unit {segment.unit}. "
            f"Rename the file to unit-{segment.unit:06d}.h5 or move it out of the run, "
            f"then {RECOMPUTE}."
        )
    return segment


def named_unit(path: Path) -> int | None:
    """Return the unit in the name of a segment file; None for another name."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def commit_segment(path: Path, segment: Segment) -> None:
    """Write a segment atomically and flush it to disk.

    Raises
    ------
    ValueError
        As for `encode_segment`.
    OSError
        If the file cannot be written. An earlier file at `path` is unchanged. If disk space is
        short, a note on the error has the number of bytes needed.
    """
    data = encode_segment(segment)
    try:
        with write_file(path) as stream:
            stream.write(data)
    except OSError as error:
        if is_short_of_space(error):
            error.add_note(
                f"unit {segment.unit} needs {len(data):,} bytes of disk; "
                "free disk space, then resume"
            )
        raise


def is_short_of_space(error: OSError) -> bool:
    """Return True if a full disk, a quota or a file size limit caused the error."""
    return error.errno in _SHORT_OF_SPACE


def _header(payload: memoryview | bytes) -> bytes:
    digest = hashlib.sha256(payload).hexdigest()
    text = f"virnucpro-segment {SCHEMA_VERSION}\nbytes {len(payload)}\nsha256 {digest}\n"
    return text.encode().ljust(USER_BLOCK - 1) + b"\n"


def _verified_image(path: Path) -> bytes:
    """Return all bytes of a segment file; raise SegmentError if header or checksum are wrong."""
    try:
        with open_file(path) as stream:  # a buffer would copy the content again
            image = stream.read(_SMALL_BYTES)
            _check_version(path, image[:USER_BLOCK], image[USER_BLOCK : USER_BLOCK + len(_HDF5)])
            if len(image) != stream.seek(0, os.SEEK_END):
                stream.seek(0)
                image = stream.read()
    except OSError as error:
        if error.errno in _UNREADABLE:
            raise SegmentError(
                f"{path}: cannot be read ({error.strerror}). {RECOMPUTE}."
            ) from error
        raise
    if image[:USER_BLOCK] != _header(memoryview(image)[USER_BLOCK:]):
        raise DamagedSegmentError(
            f"{path}: truncated or altered (size or checksum differ); {RECOMPUTE}"
        )
    return image


def _check_version(path: Path, header: bytes, signature: bytes) -> None:
    """Raise SegmentError if a file's header is not a segment header of this format version.

    A file with an HDF5 image but without a valid header is a damaged segment.
    """
    match = _HEADER.match(header)
    if len(header) < USER_BLOCK:
        raise DamagedSegmentError(f"{path}: truncated to {len(header)} bytes; {RECOMPUTE}")
    if match is None and signature == _HDF5:
        raise DamagedSegmentError(f"{path}: altered header; {RECOMPUTE}")
    if match is None:
        raise SegmentError(
            f"{path}: not a segment of virnucpro. Move it out of the run, then {RECOMPUTE}."
        )
    if int(match[1]) != SCHEMA_VERSION:
        raise SegmentError(
            f"{path}: has schema version {int(match[1])}, but this program reads {SCHEMA_VERSION}. "
            "Resume with the virnucpro version that wrote the file, or start a new run."
        )


def _decode(image: bytes) -> Segment:
    """Return the content of a verified image.

    From the third image of a size on, HDF5 reads only images of another form than the second one.
    """
    size = len(image)
    known = _FORMS.get(size)
    if known is not None and (unit := known.unit_of(image)) is not None:
        return _segment(unit, known.fingerprint, _arrays(image, known.places))
    segment = _decode_hdf5(image)
    if size not in _FORMS:
        if len(_FORMS) >= _MOST_FORMS:
            _FORMS.clear()
        _FORMS[size] = None
    elif known is None and not _problem(segment):
        _FORMS[size] = SegmentForm.of(encode_segment(replace(segment, unit=MARKED_UNIT)))
    return segment


def _decode_hdf5(image: bytes) -> Segment:
    with h5py.File(BytesIO(image), "r") as file:
        if file.attrs["format"] != _FORMAT:
            raise ValueError(f"format {file.attrs['format']!r}")
        unit, fingerprint = int(file.attrs["unit"]), str(file.attrs["fingerprint"])
        return _segment(unit, fingerprint, _arrays(image, _places(file)))


def _segment(unit: int, fingerprint: str, columns: Mapping[str, AnyArray]) -> Segment:
    reasons = json.loads(columns["reasons"].tobytes())
    return Segment(
        unit,
        fingerprint,
        rows=columns["rows"],
        state=columns["state"],
        embeddings=columns.get("embeddings", columns.get("residues")),
        scores=columns.get("scores"),
        reasons={int(row): str(why) for row, why in reasons.items()},
        counts=columns.get("counts"),
    )


def _places(file: h5py.File) -> Places:
    """Return the place of each array in an image; the objects of h5py take twice the time."""
    datasets = {name.decode(): h5py.h5d.open(file.id, name) for name in file.id}
    return {name: (one.dtype, one.shape, one.get_offset()) for name, one in datasets.items()}


def _arrays(image: bytes, places: Places) -> dict[str, AnyArray]:
    """Return the arrays of an image, in its memory."""
    return {
        name: np.frombuffer(image, kind, math.prod(shape), at).reshape(shape)
        for name, (kind, shape, at) in places.items()
    }


def _problem(segment: Segment) -> str:  # noqa: PLR0911 - a list of rules
    """Return a text that describes an invalid array of the segment; "" if all arrays are valid."""
    rows, state = segment.rows, segment.state
    if rows.dtype != np.int64 or rows.ndim != 1 or not rows.size or (np.diff(rows) <= 0).any():
        return "rows are not ascending int64 (n,), n >= 1"
    if state.dtype != np.uint8 or state.shape != rows.shape or (state > _QUARANTINED).any():
        return "state is not uint8 (n,) of RowState.DONE or RowState.QUARANTINED"
    quarantined = state == _QUARANTINED
    if segment.reasons and not set(segment.reasons) <= set(rows[quarantined].tolist()):
        return "reasons are given for rows that are not quarantined"
    vectors, scores, counts = segment.embeddings, segment.scores, segment.counts
    if vectors is not None and not (
        vectors.dtype in _FLOATS and vectors.ndim == 2 and vectors.shape[1]
    ):
        return "embeddings are not float16 or float32 (n, D)"
    if scores is not None and not (
        scores.dtype == np.float32 and scores.ndim == 2 and scores.shape[1] >= 2
    ):
        return "scores are not float32 (n, 2) or wider"
    if counts is not None and (
        counts.dtype != np.int64
        or counts.shape != rows.shape
        or (counts < 0).any()
        or counts[quarantined].any()
    ):
        return "counts are not int64 (n,), at least 0, and 0 for quarantined rows"
    owners = quarantined if counts is None else np.repeat(quarantined, counts)
    return _numbers_problem("embeddings", vectors, owners) or _numbers_problem(
        "scores", scores, quarantined
    )


Returned = TypeVar("Returned")

_READERS: Final = 4
"""Threads that read and verify the next files; each thread keeps one result in memory."""
_LONG_S: Final = 0.0005
"""Seconds per file from which on threads pay: four take 2.5 times as long for small files in the
page cache.
"""
_LONG_FILES: Final = 8
"""Files that take that long, one after another, before threads read; HDF5 reads the first."""
_FILES_IN_THREADS: Final = 256
"""Files that threads read before this is measured again."""


_FETCHED: Final = 64
"""Files that one call of `_fetch` names to the system; one by one, the thread would cost more."""


def read_ahead(
    read: Callable[[Path], Returned], paths: Iterable[Path]
) -> Iterator[tuple[Path, Returned]]:
    """Call `read` with each path, in prefetch threads if that pays; yield path and result in order.

    Small files are read in this thread: Python's lock makes threads slower there. Meanwhile the
    system loads the next ones. If eight files take longer, because they are large or the disk is
    slow, threads read the next 256.

    An exception of `read` is raised at its path. The results of up to five paths are in memory.
    """
    with ThreadPoolExecutor(1, "segment-fetcher") as fetcher:
        rest, long_ones = _fetched(fetcher, paths), 0
        for path in rest:
            started = time.perf_counter()
            result = read(path)
            long_ones = long_ones + 1 if time.perf_counter() - started > _LONG_S else 0
            yield path, result
            del result
            if long_ones == _LONG_FILES:
                yield from _in_threads(read, islice(rest, _FILES_IN_THREADS))
                long_ones = 0


def _fetched(fetcher: ThreadPoolExecutor, paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths; begin to load the first bytes of the next 64 files meanwhile."""
    rest = iter(paths)
    part, loading = [*islice(rest, _FETCHED)], None
    while part:
        following = [*islice(rest, _FETCHED)]
        if following and (loading is None or loading.done()):
            loading = fetcher.submit(_fetch, following)
        yield from part
        part = following


def _fetch(paths: Iterable[Path]) -> None:
    """Ask the system to load the first bytes of files; who reads a file meets its error."""
    for path in paths:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would not open otherwise
            try:
                os.posix_fadvise(handle, 0, _SMALL_BYTES, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(handle)


def _in_threads(
    read: Callable[[Path], Returned], paths: Iterable[Path]
) -> Iterator[tuple[Path, Returned]]:
    ahead: deque[tuple[Path, Future[Returned]]] = deque()
    with ThreadPoolExecutor(_READERS, "segment-reader") as pool:
        try:
            for path in paths:
                ahead.append((path, pool.submit(read, path)))
                if len(ahead) > _READERS:
                    path, future = ahead.popleft()  # noqa: PLW2901 - the oldest one
                    yield path, future.result()
            for path, future in ahead:
                yield path, future.result()
        finally:
            for _, future in ahead:
                future.cancel()


def _numbers_problem(name: str, values: RealArray | None, quarantined: BoolArray) -> str:
    """Describe invalid numbers of rows; return "" if they are valid or None."""
    if values is None:
        return ""
    if len(values) != len(quarantined):
        return f"{name} have {len(values)} rows, but the unit has {len(quarantined)}"
    if not finite_rows(values).all():
        return f"{name} are not all finite"
    if values[quarantined].any():
        return f"{name} of quarantined rows are not zero"
    return ""
