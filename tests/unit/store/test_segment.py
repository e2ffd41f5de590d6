import dataclasses
import hashlib
import io
import os
import resource
import sys
import time

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from programs import run_captured

from virnucpro.arrays import finite_rows
from virnucpro.errors import SegmentError
from virnucpro.store.schema import SCHEMA_VERSION, USER_BLOCK, RowState
from virnucpro.store.segment import (
    Segment,
    commit_segment,
    encode_segment,
    read_segment,
)


def assert_equal(left: Segment, right: Segment) -> None:
    for column in dataclasses.fields(Segment):
        one, other = getattr(left, column.name), getattr(right, column.name)
        assert type(one) is type(other)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert one.tobytes() == other.tobytes()
        else:
            assert one == other


@st.composite
def segments(draw) -> Segment:
    n = draw(st.integers(1, 20))
    first = draw(st.integers(0, 2**40))
    dtype = draw(st.sampled_from(["f2", "f4"]))
    state = draw(hnp.arrays("u1", n, elements=st.integers(0, 1)))
    quarantined = state == RowState.QUARANTINED
    embeddings = draw(
        st.none()
        | hnp.arrays(
            dtype,
            st.tuples(st.just(n), st.integers(1, 9)),
            elements=st.floats(allow_nan=False, allow_infinity=False, width=int(dtype[1]) * 8),
        )
    )
    scores = draw(
        st.none()
        | hnp.arrays(
            "f4", st.tuples(st.just(n), st.integers(2, 5)), elements=st.floats(0, 1, width=32)
        )
    )
    for values in (embeddings, scores):
        if values is not None:
            values[quarantined] = 0
    rows = np.arange(first, first + n)
    reasons = {int(row): draw(st.text(max_size=20)) for row in rows[quarantined]}
    return Segment(
        unit=draw(st.integers(0, 10**7)),
        fingerprint=draw(st.text("0123456789abcdef", min_size=1, max_size=64)),
        rows=rows,
        state=state,
        embeddings=embeddings,
        scores=scores,
        reasons=reasons,
    )


@given(segment=segments())
def test_a_committed_segment_is_read_back_bit_for_bit(segment, tmp_path_factory):
    path = tmp_path_factory.mktemp("shard") / f"unit-{segment.unit:06d}.h5"
    commit_segment(path, segment)
    assert_equal(read_segment(path), segment)
    path.unlink()


def test_the_same_segment_gives_the_same_bytes_a_second_later(make_segment):
    image = encode_segment(make_segment())
    second = int(time.time())
    while int(time.time()) == second:
        time.sleep(0.01)
    assert encode_segment(make_segment()) == image


def test_any_hdf5_tool_opens_the_file(tmp_path, make_segment):
    path = tmp_path / "unit-000000.h5"
    commit_segment(path, make_segment(dtype="f2"))
    with h5py.File(path) as file:
        assert file.userblock_size == USER_BLOCK
        assert file["embeddings"].dtype == np.float16
        assert file.attrs["schema_version"] == SCHEMA_VERSION


def test_the_header_is_text_with_the_checksum(make_segment):
    image = encode_segment(make_segment())
    lines = image[:USER_BLOCK].decode("ascii").splitlines()
    assert lines[:3] == [
        f"virnucpro-segment {SCHEMA_VERSION}",
        f"bytes {len(image) - USER_BLOCK}",
        f"sha256 {hashlib.sha256(image[USER_BLOCK:]).hexdigest()}",
    ]


def test_a_flip_of_any_byte_is_detected(tmp_path, make_segment):
    path = tmp_path / "unit-000000.h5"
    commit_segment(path, make_segment(last=2, dim=2))
    size = path.stat().st_size
    with path.open("r+b", buffering=0) as stream:
        for position in [*range(USER_BLOCK), *range(USER_BLOCK, size, 7), size - 1]:
            [byte] = os.pread(stream.fileno(), 1, position)
            os.pwrite(stream.fileno(), bytes([byte ^ 1 << position % 8]), position)
            with pytest.raises(SegmentError):
                read_segment(path)
            os.pwrite(stream.fileno(), bytes([byte]), position)
    assert_equal(read_segment(path), make_segment(last=2, dim=2))


@pytest.mark.parametrize("make", ["mkdir", "nothing"])
def test_unreadable_files_are_rejected(tmp_path, make):
    path = tmp_path / "unit-000000.h5"
    if make == "mkdir":
        path.mkdir()
    with pytest.raises(SegmentError, match="cannot be read"):
        read_segment(path)


def sealed(fill) -> bytes:
    """Return the HDF5 image of `fill` with a valid header."""
    stream = io.BytesIO()
    with h5py.File(stream, "w", userblock_size=USER_BLOCK) as file:
        fill(file)
    payload = stream.getvalue()[USER_BLOCK:]
    digest = hashlib.sha256(payload).hexdigest()
    header = f"virnucpro-segment {SCHEMA_VERSION}\nbytes {len(payload)}\nsha256 {digest}\n"
    return header.encode().ljust(USER_BLOCK - 1) + b"\n" + payload


def lacking(name, *, unit=0, n_scores=2):
    def fill(file):
        file.attrs.update({"format": "virnucpro segment", "unit": unit, "fingerprint": "f"})
        file["rows"], file["state"] = np.arange(2), np.zeros(2, "u1")
        file["reasons"] = np.frombuffer(b"{}", "u1")
        file["scores"] = np.full((n_scores, 2), 0.5, "f4")
        for parts in (file, file.attrs):
            if name in parts:
                del parts[name]

    return sealed(fill)


def foreign(_image):
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file["rows"] = np.arange(500)
    return stream.getvalue()


def of_a_newer_schema(image):
    old, new = f"segment {SCHEMA_VERSION}\n", f"segment {SCHEMA_VERSION + 1}\n"
    return image.replace(old.encode(), new.encode(), 1)


def with_ones_for_zeros(image):
    position = image.rindex(b"\0\0")
    return image[:position] + b"\xff\xff" + image[position + 2 :]


REJECTED = {
    "nothing": (lambda _: b"", r"truncated.* --resume"),
    "one byte": (lambda image: image[:1], r"truncated.* --resume"),
    "part of the header": (lambda image: image[: USER_BLOCK - 1], r"truncated.* --resume"),
    "the header": (lambda image: image[:USER_BLOCK], r"truncated.* --resume"),
    "the header and a byte": (lambda image: image[: USER_BLOCK + 1], r"truncated.* --resume"),
    "all but the last byte": (lambda image: image[:-1], r"truncated.* --resume"),
    "a trailing byte": (lambda image: image + b"\0", "truncated"),
    "ones for zeros": (with_ones_for_zeros, "checksum"),
    "a foreign file": (foreign, "not a segment"),
    "a newer schema": (of_a_newer_schema, "schema version 2.*the virnucpro version that wrote the"),
    "another unit": (
        lambda _: lacking("nothing", unit=1),
        "the name is that of another unit, but the content is unit 1",
    ),
    **{
        f"no {name}": (lambda _, name=name: lacking(name), "invalid content")
        for name in ("format", "unit", "fingerprint", "rows", "state", "reasons")
    },
    "too many scores": (
        lambda _: lacking("nothing", n_scores=3),
        "scores have 3 rows, but the unit has 2",
    ),
}


@pytest.mark.parametrize("case", REJECTED)
def test_a_damaged_or_foreign_file_is_rejected_with_its_name(tmp_path, make_segment, case):
    change, message = REJECTED[case]
    path = tmp_path / "unit-000000.h5"
    path.write_bytes(change(encode_segment(make_segment(dtype="f2"))))
    with pytest.raises(SegmentError, match=rf"unit-000000\.h5: .*{message}"):
        read_segment(path)


def test_an_image_with_a_valid_header_is_read(tmp_path):
    path = tmp_path / "unit-000000.h5"
    path.write_bytes(lacking("nothing"))
    assert read_segment(path).rows.tolist() == [0, 1]


@pytest.mark.parametrize("column", ["embeddings", "scores"])
@pytest.mark.parametrize(
    ("number", "kind", "problem"),
    [
        *((np.nan, {"dtype": dtype}, "are not all finite") for dtype in ("f2", "f4")),
        *((np.inf, {"dtype": dtype}, "are not all finite") for dtype in ("f2", "f4")),
        *((-np.inf, {"dtype": dtype}, "are not all finite") for dtype in ("f2", "f4")),
        (0.5, {"quarantined": [3]}, "of quarantined rows are not zero"),
    ],
    ids=["nan f2", "nan f4", "inf f2", "inf f4", "-inf f2", "-inf f4", "quarantined"],
)
def test_a_number_that_cannot_be_stored_is_refused(make_segment, column, number, kind, problem):
    segment = make_segment(**kind)
    getattr(segment, column)[3, 1] = number
    with pytest.raises(ValueError, match=f"{column} {problem}"):
        encode_segment(segment)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": np.array([], np.int64)}, "rows"),
        ({"rows": np.array([0, 1, 2, 4, 3])}, "rows"),
        ({"rows": np.arange(5, dtype="i4")}, "rows"),
        ({"state": np.zeros(4, "u1")}, "state"),
        ({"state": np.full(5, RowState.MISSING, "u1")}, "state"),
        ({"embeddings": np.zeros((5, 8))}, "embeddings are not float16"),
        ({"embeddings": np.zeros((5, 0), "f4")}, "embeddings are not float16"),
        ({"embeddings": np.zeros((4, 8), "f4")}, "embeddings have 4 rows"),
        ({"scores": np.zeros((5, 1), "f4")}, "scores are not float32"),
        ({"scores": np.zeros(5, "f4")}, "scores are not float32"),
        ({"scores": np.zeros((5, 2), "f2")}, "scores are not float32"),
        ({"reasons": {0: "no"}}, "reasons"),
    ],
)
def test_a_segment_that_breaks_a_rule_is_refused(make_segment, changes, message):
    with pytest.raises(ValueError, match=f"unit 0: {message}"):
        encode_segment(dataclasses.replace(make_segment(), **changes))


@given(
    values=st.sampled_from(["f2", "f4"]).flatmap(
        lambda dtype: hnp.arrays(dtype, st.tuples(st.integers(0, 5), st.integers(1, 5)))
    )
)
def test_finite_rows_agrees_with_numpy(values):
    np.testing.assert_array_equal(finite_rows(values), np.isfinite(values).all(axis=1))


FULL_DISK = """
import os, pathlib, sys
import numpy as np
from virnucpro.store.segment import Segment, commit_segment
path, n = pathlib.Path(sys.argv[1]), int(sys.argv[2])
try:
    embeddings = np.ones((n, 64), "f4")
    commit_segment(path, Segment(0, "f", np.arange(n), np.zeros(n, "u1"), embeddings, None))
except OSError as error:
    print(error.strerror, *error.__notes__)
    sys.exit(3)
"""


def test_a_full_disk_leaves_the_former_segment(tmp_path, make_segment):
    path = tmp_path / "unit-000000.h5"
    commit_segment(path, make_segment())
    limit = 100_000
    result = run_captured(
        sys.executable,
        "-c",
        FULL_DISK,
        path,
        "1000",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert result.returncode == 3, result.stderr
    assert f"{path} could not be written" in result.stdout
    assert "unit 0 needs 2" in result.stdout
    assert_equal(read_segment(path), make_segment())
    assert list(tmp_path.iterdir()) == [path]


def test_the_bytes_needed_are_named_only_if_space_is_short(tmp_path, make_segment):
    path = tmp_path / "unit-000000.h5"
    path.mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        commit_segment(path, make_segment())
    (note,) = caught.value.__notes__
    assert f"{path} could not be written" in note
