"""Recognise segments that differ in arrays and unit only, so that HDF5 need not read each file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, Self

import h5py
import numpy as np
import numpy.typing as npt

from virnucpro.store.schema import USER_BLOCK

__all__ = ["MARKED_UNIT", "SegmentForm"]

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
    places : mapping of str to (numpy.dtype, tuple of int, int)
        Type, shape and position of each array.
    unit_at : int
        Position of the unit's number, int64.
    others : tuple of (int, bytes)
        Position and content of all other bytes after the user block.
    """

    fingerprint: str
    places: Mapping[str, tuple[np.dtype[Any], tuple[int, ...], int]]
    unit_at: int
    others: tuple[tuple[int, bytes], ...]

    @classmethod
    def of(cls, image: bytes) -> Self:
        """Return the form of an image; the unit is `MARKED_UNIT`."""
        with h5py.File(BytesIO(image), "r") as file:
            fingerprint = str(file.attrs["fingerprint"])
            arrays = {name.decode(): h5py.h5d.open(file.id, name) for name in file.id}
            places = {
                name: (one.dtype, one.shape, one.get_offset()) for name, one in arrays.items()
            }
            spans = [(one.get_offset(), one.get_storage_size()) for one in arrays.values()]
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

    def arrays_of(self, image: bytes) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of an image of this form, in the memory of `image`."""
        return {
            name: np.frombuffer(image, dtype, math.prod(shape), offset).reshape(shape)
            for name, (dtype, shape, offset) in self.places.items()
        }
