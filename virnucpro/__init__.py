"""Fault-tolerant, sharded classification of sequences as viral or non-viral.

The functions of the Python API are imported at their first use. This file must not import torch or
other large packages: a child process imports it before its CUDA_VISIBLE_DEVICES is set.
"""

from virnucpro.errors import (
    BundleError,
    DamagedSegmentError,
    DeviceError,
    EngineError,
    FingerprintError,
    IndexFormatError,
    InputError,
    NoLocksError,
    NotARunError,
    RunError,
    RunExistsError,
    RunLockedError,
    SegmentError,
    StoreError,
    UsageError,
    VirnucproError,
    WorkerError,
)
from virnucpro.lazy import imported_at_first_use

TYPE_CHECKING = False  # importing typing takes most of the time of this import
if TYPE_CHECKING:
    from virnucpro.api.classify import classify
    from virnucpro.api.embed import embed, embed_iter
    from virnucpro.api.embeddings import Embeddings, read_embeddings
    from virnucpro.api.model import Model, list_bundles, load
    from virnucpro.api.result import Result
    from virnucpro.api.tables import read_predictions, read_regions, read_windows

__version__ = "0.1.0"

__all__ = [
    "BundleError",
    "DamagedSegmentError",
    "DeviceError",
    "Embeddings",
    "EngineError",
    "FingerprintError",
    "IndexFormatError",
    "InputError",
    "Model",
    "NoLocksError",
    "NotARunError",
    "Result",
    "RunError",
    "RunExistsError",
    "RunLockedError",
    "SegmentError",
    "StoreError",
    "UsageError",
    "VirnucproError",
    "WorkerError",
    "__version__",
    "classify",
    "embed",
    "embed_iter",
    "list_bundles",
    "load",
    "read_embeddings",
    "read_predictions",
    "read_regions",
    "read_windows",
]

_MODULES = {
    "Embeddings": "embeddings",
    "Result": "result",
    "classify": "classify",
    "Model": "model",
    "embed": "embed",
    "embed_iter": "embed",
    "list_bundles": "model",
    "load": "model",
    "read_embeddings": "embeddings",
    "read_predictions": "tables",
    "read_regions": "tables",
    "read_windows": "tables",
}
"""Module in `virnucpro.api` of each name that is imported at its first use."""

if not TYPE_CHECKING:  # type checkers would accept every name
    __getattr__ = imported_at_first_use(__name__, _MODULES, "virnucpro.api")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
