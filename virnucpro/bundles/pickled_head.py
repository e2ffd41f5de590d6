"""The published classifiers, read without running anything that they hold.

They are whole modules, pickled by ``torch.save``: a zip archive with ``data.pkl`` and one member a
storage. Source of the format: torch/serialization.py and torch/_utils.py of PyTorch 1.6 and later.
Of a pickle's names only those of `_ADMITTED` are understood, and none of them leads to the class or
the function of that name: each leads to a plain stand-in that keeps what it is given.
"""

import io
import math
import pickle
import pickletools
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.classify.head_tensors import CLASSES, OUTPUT, head_shapes, linear_of, norm_of
from virnucpro.errors import BundleError

__all__ = ["read_pickled_head"]

_TORCH_EPS: Final = 1e-5
"""torch's default of BatchNorm1d, and the only one that `classify.head.Head` computes with."""
_ONE_HIDDEN_LAYER: Final = (1, 1, CLASSES)
"""Sizes of a head with as many layers as a published classifier."""
_MOST_PICKLE_BYTES: Final = 1 << 20
_MOST_STORAGE_BYTES: Final = 1 << 30
"""Of all tensors together."""
_MOST_SHARED_TUPLES: Final = 16
"""A pickle of a hundred bytes can nest a tuple of two and twice itself forty times: to hash or to
print it would take for ever. A classifier's uses no tuple twice."""
_MEMOIZED: Final = -1
"""Of tuples that pickles of protocol 4 number themselves; torch.save writes protocol 2."""
_NO_TUPLES: Final = frozenset(
    {
        "BINUNICODE", "SHORT_BINUNICODE", "UNICODE", "GLOBAL", "STACK_GLOBAL", "EMPTY_DICT",
        "EMPTY_LIST", "EMPTY_SET", "REDUCE", "BINPERSID", "NEWOBJ",
    }
)  # fmt: skip
"""Opcodes that leave something else than a tuple on the stack, whatever they find there."""


Storage: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.int64]


class _Part:
    """Stands for an instance of an admitted class: keeps the state that it was pickled with."""

    state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Classifier(_Part):
    pass


class _Linear(_Part):
    pass


class _BatchNorm(_Part):
    pass


class _Dropout(_Part):
    pass


@dataclass(frozen=True, slots=True)
class _StorageKind:
    """Stands for a storage class: the type of its numbers."""

    dtype: str


class _NotAdmittedError(Exception):
    """The pickle names something that is not admitted, or uses it in another way."""


def read_pickled_head(path: Path) -> dict[str, torch.Tensor]:
    """Read a published classifier into the tensors of `virnucpro.classify.head.Head`.

    Parameters
    ----------
    path
        ``torch.save`` of an ``MLPClassifier``: hidden_layer, bn1, output_layer.

    Returns
    -------
    float32 tensors by the names of `Head`

    Raises
    ------
    BundleError
        When the file is no such archive, names anything but the parts of such a module (nothing of
        it has run), or lacks one of them.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            module = _Reader(archive).load()
        return _tensors_of(module)
    except _NotAdmittedError as error:
        raise BundleError(
            f"{path}: {error}. Nothing of it was run. Get the classifier from its publisher again."
        ) from None
    except Exception as error:  # noqa: BLE001 - damaged pickles and archives raise nearly anything
        raise BundleError(
            f"{path}: cannot be read as a published classifier ({type(error).__name__}: {error}). "
            "Get the file again: a whole torch.save of an MLPClassifier is wanted."
        ) from None


class _Reader(pickle.Unpickler):
    """Understands the names of `_ADMITTED` and the storages of its archive, and nothing else."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        names = [name for name in archive.namelist() if name.count("/") == 1]
        pickles = [name for name in names if name.endswith("/data.pkl")]
        if len(pickles) != 1 or archive.getinfo(pickles[0]).file_size > _MOST_PICKLE_BYTES:
            raise _NotAdmittedError("is no archive of torch.save with one small data.pkl")
        pickled = archive.read(pickles[0])
        _refuse_what_grows(pickled)
        super().__init__(io.BytesIO(pickled))
        self._archive = archive
        self._storages: dict[str, tuple[_StorageKind, Storage]] = {}
        self._bytes_left = _MOST_STORAGE_BYTES
        self._root = pickles[0].removesuffix("/data.pkl")

    def find_class(self, module: str, name: str) -> object:
        try:
            return _ADMITTED[f"{module}.{name}"]
        except KeyError:
            raise _NotAdmittedError(
                f"names {f'{module}.{name}':.100}, which is no part of a published classifier"
            ) from None

    def persistent_load(self, pid: object) -> object:
        match pid:
            case ("storage", _StorageKind() as kind, str(key), str(), int()) if key.isalnum():
                if key not in self._storages:
                    self._storages[key] = kind, self._read(key, kind)
                known, storage = self._storages[key]
                if known != kind:
                    raise _NotAdmittedError("reads the same numbers as two types of number")
                return storage
        raise _NotAdmittedError("refers to something that is no storage of a tensor")

    def _read(self, key: str, kind: _StorageKind) -> "Storage":
        """Read one member, once; torch.save never compresses, so no small file holds much."""
        member = self._archive.getinfo(f"{self._root}/data/{key}")
        if member.compress_type != zipfile.ZIP_STORED:
            raise _NotAdmittedError("holds compressed numbers, which torch.save does not write")
        self._bytes_left -= member.file_size
        if self._bytes_left < 0:
            raise _NotAdmittedError("holds tensors of more than 1 GB")
        return np.frombuffer(self._archive.read(member), kind.dtype)


def _refuse_what_grows(pickled: bytes) -> None:
    """Refuse a small pickle that takes much memory or time, before anything is made of it.

    Tuples that are used again and again are one way. Another is an object that is put away under a
    large number: the unpickler makes as many places. A pickler numbers from 0, without a gap.

    Raises
    ------
    ValueError
        When it is no pickle.
    """
    memo: set[int] = set()
    last, shared = "", 0
    for place, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        match opcode.name:
            case "PUT" | "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                number = argument if isinstance(argument, int) else _MEMOIZED
                if number > place:
                    raise _NotAdmittedError(
                        f"puts an object away as number {number:,}, and has fewer than that"
                    )
                if last not in _NO_TUPLES:
                    memo.add(number)
                continue
            case "GET" | "BINGET" | "LONG_BINGET":
                shared += argument in memo or _MEMOIZED in memo
            case "DUP":
                shared += 1
        last = opcode.name
        if shared > _MOST_SHARED_TUPLES:
            raise _NotAdmittedError("uses the same tuples again and again")


def _rebuild_tensor(
    storage: object, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_rest: object
) -> torch.Tensor:
    """Lay a tensor over its storage, row by row, in memory of its own."""
    if not isinstance(storage, np.ndarray):
        raise _NotAdmittedError("rebuilds a tensor from something that is no storage")
    count = math.prod(size)
    rows = tuple(math.prod(size[axis + 1 :]) for axis in range(len(size)))
    inside = offset >= 0 and min(size, default=1) > 0 and offset + count <= storage.size
    if not inside or stride != rows:
        raise _NotAdmittedError("lays a tensor over its storage in another way than row by row")
    return torch.from_numpy(storage[offset : offset + count].reshape(size).copy())


def _rebuild_parameter(data: object, *_rest: object) -> torch.Tensor:
    if not isinstance(data, torch.Tensor):
        raise _NotAdmittedError("makes a parameter of something that is no tensor")
    return data


def _new_mapping() -> dict[object, object]:
    """Stand for OrderedDict: it is made empty, and filled item by item."""
    return {}


def _new_set(names: object) -> list[object]:
    """Stand for set: of a module's buffers that are not saved."""
    if not isinstance(names, list):
        raise _NotAdmittedError("makes a set of something that is no list")
    return names


_ADMITTED: Final[Mapping[str, object]] = {
    "__main__.MLPClassifier": _Classifier,
    "torch.nn.modules.linear.Linear": _Linear,
    "torch.nn.modules.batchnorm.BatchNorm1d": _BatchNorm,
    "torch.nn.modules.dropout.Dropout": _Dropout,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch.FloatStorage": _StorageKind("<f4"),
    "torch.LongStorage": _StorageKind("<i8"),
    "collections.OrderedDict": _new_mapping,
    "__builtin__.set": _new_set,
    "builtins.set": _new_set,
}


def _tensors_of(module: object) -> dict[str, torch.Tensor]:
    """Give the tensors of the three layers the names of `classify.head.Head`."""
    if not isinstance(module, _Classifier):
        raise _NotAdmittedError("holds no MLPClassifier")
    parts = _field(module, "_modules")
    hidden, norm, output = (
        _part(parts, name, kind)
        for name, kind in (
            ("hidden_layer", _Linear),
            ("bn1", _BatchNorm),
            ("output_layer", _Linear),
        )
    )
    if _state(norm).get("eps") != _TORCH_EPS:
        raise _NotAdmittedError(f"has a batch norm whose eps is not {_TORCH_EPS}")
    layers = {linear_of(0): hidden, norm_of(0): norm, OUTPUT: output}
    tensors = {}
    for name in head_shapes(_ONE_HIDDEN_LAYER):
        layer, _, own = name.rpartition(".")
        field = "_buffers" if own.startswith("running_") else "_parameters"
        tensors[name] = _tensor(layers[layer], field, own)
    _check_shapes(tensors)
    return tensors


def _check_shapes(tensors: Mapping[str, torch.Tensor]) -> None:
    wide = tensors[f"{linear_of(0)}.weight"].shape[-1]
    narrow = len(tensors[f"{linear_of(0)}.bias"])
    for name, shape in head_shapes((wide, narrow, CLASSES)).items():
        found = tuple(tensors[name].shape)
        if found != shape:
            raise _NotAdmittedError(f"has {found} numbers in {name}, where {shape} fit")


def _state(part: _Part) -> dict[str, object]:
    if not isinstance(part.state, dict):
        raise _NotAdmittedError("has a layer without a state")
    return part.state


def _field(part: _Part, name: str) -> dict[str, object]:
    field = _state(part).get(name)
    if not isinstance(field, dict):
        raise _NotAdmittedError(f"has a layer without {name}")
    return field


def _part(parts: Mapping[str, object], name: str, kind: type[_Part]) -> _Part:
    part = parts.get(name)
    if not isinstance(part, kind):
        raise _NotAdmittedError(f"lacks the layer {name!r} of a published classifier")
    return part


def _tensor(part: _Part, field: str, name: str) -> torch.Tensor:
    tensor = _field(part, field).get(name)
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32:
        raise _NotAdmittedError(f"has a layer without {name!r} in float32")
    return tensor
