"""A loaded encoder of another package; its results are checked."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np

from virnucpro.arrays import Float32Array, IntArray, IntegerArray
from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.encoders.plugin.config import ADVICE, PluginConfig, open_plugin
from virnucpro.encoders.plugin.interface import EncoderPlugin
from virnucpro.encoders.pooling import PoolingPlan
from virnucpro.errors import BundleError


@dataclass(frozen=True, slots=True)
class PluginEncoder(Encoder):
    """An encoder whose tokens and vectors come from `plugin`."""

    plugin: EncoderPlugin

    def collate(self, batch: Sequence[IntegerArray]) -> Sequence[IntArray]:
        """Return the batch, which the plugin tokenised: it does the rest."""
        return cast("Sequence[IntArray]", batch)

    def start(self, batch: Sequence[IntArray]) -> Callable[[], Float32Array]:
        """Compute the vectors; return a function that returns them, (n, dim) float32.

        Raises
        ------
        BundleError
            If the plugin returns anything else.
        """
        if not batch:
            return lambda: np.empty((0, self.dim), np.float32)
        with _naming(self.name):
            found = self.plugin.vectors(batch)
        _require(f"{self.name}: vectors()", found, f"float32 array {(len(batch), self.dim)}")
        vectors = found.copy()  # the plugin may use its array again
        return lambda: vectors


def load(
    spec: EncoderSpec, config: PluginConfig, device: str, precision: Precision
) -> PluginEncoder:
    """Load the encoder of another package.

    Raises
    ------
    BundleError
        If the package has been changed or removed since the run started.
    """
    found = open_plugin(config.name)
    if found is None or found[0] != config:
        raise BundleError(f"{spec.name}: the package is not that of the run. Install it again.")
    plugin = found[1]
    with _naming(spec.name):
        plugin.load(device, precision)

    def tokenise(sequences: Sequence[bytes]) -> list[IntegerArray]:
        with _naming(spec.name):
            tokens = list(plugin.tokenise(sequences))
        method = f"{spec.name}: tokenise()"
        if len(tokens) != len(sequences):
            raise BundleError(
                f"{method} returned {len(tokens)} arrays for {len(sequences)} sequences. {ADVICE}"
            )
        for ids in tokens:
            if getattr(ids, "ndim", 0) != 1 or ids.dtype.kind not in "iu" or not len(ids):
                _require(method, ids, "integer array (n,) with n > 0")
        return [ids.astype(np.int64) for ids in tokens]

    plan = PoolingPlan(spec.pooling, config.layout)
    return PluginEncoder(spec.name, config.dim, config.view, tokenise, plan=plan, plugin=plugin)


@contextmanager
def _naming(title: str) -> Iterator[None]:
    """Add the name of the encoder to an exception of its package."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by the encoder {title}")
        raise


def _require(method: str, found: object, wanted: str) -> None:
    """Raise BundleError if what a method returned is not the array that is wanted."""
    shown = type(found).__name__
    if isinstance(found, np.ndarray):
        shown = f"{found.dtype} array {found.shape}"
    if shown != wanted:
        raise BundleError(f"{method} returned {shown}, not {wanted}. {ADVICE}")
