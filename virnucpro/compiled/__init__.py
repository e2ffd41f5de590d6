"""Compiled forms of functions that NumPy computes elsewhere, with equal results.

The C files are compiled when the package is installed, see `hatch_build.py`. Where there was no
compiler, every function is computed by NumPy: slower, with the same bytes as results.
"""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint8, c_uint64
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from virnucpro.arrays import AnyArray

SOURCES: Final = Path(__file__).parent
LIBRARY: Final = Path(__file__).with_name("functions.shared")


Tables = TypeVar("Tables", bound=Structure)


class CompositionTables(Structure):
    """What the features of windows look up; ``Composition`` in composition.c has the meanings."""

    _fields_ = (
        ("numbers", c_uint8 * 256),
        ("fours", c_uint8 * 256),
        ("threes", c_uint8 * 64),
        ("residues", c_uint8 * 64),
        ("coded", c_uint8 * 64),
        ("stops", c_uint8 * 3),
        ("start", c_uint8),
        ("weights", c_int64 * 64 * 2),
        ("properties", c_int32 * 20 * 3),
    )


class GeneTables(Structure):
    """What the evidence of spans looks up; ``GeneTables`` in genes.c has the meanings."""

    _fields_ = (
        ("numbers", c_uint8 * 256),
        ("fours", c_uint8 * 256),
        ("residues", c_uint8 * 64),
        ("is_stop", c_uint8 * 64),
        ("starts", c_uint8 * 3),
        ("stops", c_uint8 * 3),
        ("motifs", c_uint8 * 6 * 6),
        ("seed", c_uint8 * 12),
        ("letters", c_uint8 * 64),
        ("hydropathy", c_int32 * 64),
        ("charge", c_int32 * 64),
        ("n_letters", c_int64),
        ("mix", c_uint64),
    )


def filled(kind: type[Tables], **values: AnyArray | bytes | int) -> Tables:
    """Return tables with these fields, from arrays, bytes or numbers of the same sizes."""
    tables = kind()
    for name, _ in tables._fields_:  # type: ignore[misc]  # all fields are pairs
        value = values.pop(name)
        if isinstance(value, int):
            setattr(tables, name, value)
            continue
        field = np.ctypeslib.as_array(getattr(tables, name))
        field[:] = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value
    assert not values, f"unknown fields: {', '.join(values)}"
    return tables


def library_mark(library: bytes, sources: Path) -> bytes:
    """Return the last bytes of a library: the SHA-256 of the others and of the C files in a folder.

    `hatch_build.py` appends them.
    """
    files = (path.read_bytes() for path in sorted(sources.glob("*.[ch]")))
    return sha256(b"".join((library, *files))).digest()


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled functions; None if there are none, or they are of other files.

    Arrays of another type, or not contiguous, are refused with ctypes.ArgumentError.
    """
    try:
        content = LIBRARY.read_bytes()
        # One that is cut off would end the process when it is loaded.
        if content[-32:] != library_mark(content[:-32], SOURCES):
            return None
        found = ctypes.CDLL(str(LIBRARY))
    except OSError:  # not compiled, or for another machine
        return None
    n = c_int64
    uint8, int16, uint16, uint32, int32, int64, float32, boolean = (
        np.ctypeslib.ndpointer(kind, flags="C_CONTIGUOUS")
        for kind in ("u1", "i2", "u2", "u4", "i4", "i8", "f4", "?")
    )
    found.virnucpro_features.argtypes = (
        POINTER(CompositionTables), c_char_p, int64, n, float32, n,
    )  # fmt: skip
    found.virnucpro_scan.argtypes = (
        POINTER(GeneTables), int16, c_char_p, int64, n, uint16, uint32, int64,
    )  # fmt: skip
    found.virnucpro_scan.restype = c_int64
    found.virnucpro_count_words.argtypes = (uint32, uint8, int32, n, int64, uint32, n, n, int64)
    found.virnucpro_count_words.restype = None
    found.virnucpro_standardise.argtypes = (
        float32, n, n, float32, float32, c_float, c_float, int16,
    )  # fmt: skip
    found.virnucpro_products.argtypes = (int16, n, n, int16, n, n, int32)
    found.virnucpro_products.restype = None
    found.virnucpro_hidden.argtypes = (
        int32, n, n, float32, float32, float32, c_float, c_float, int16,
    )  # fmt: skip
    found.virnucpro_hidden.restype = None
    found.virnucpro_quality.argtypes = (
        c_char_p, int64, n, c_char_p, ctypes.c_double, n, int64, boolean,
    )  # fmt: skip
    return found
