"""What an encoder multiplies: the matrix products of its layers, and its attention."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Product", "Work"]


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of a layer: each token's `inputs` numbers become `outputs`."""

    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Work:
    """What an encoder multiplies. A multiplication and its addition are two operations.

    Attributes
    ----------
    n_layers
        How many layers do the same.
    width
        Numbers of a token between layers; of all attention heads together.
    products
        Matrix products of a layer as they are done: query, key and value in one, a gate and what
        it lets through in two.
    """

    n_layers: int
    width: int
    products: tuple[Product, ...]

    @property
    def linear(self) -> int:
        """Operations of the matrix products for one token."""
        return 2 * self.n_layers * sum(one.inputs * one.outputs for one in self.products)

    def attention(self, lengths: npt.ArrayLike) -> int:
        """Count the operations of queries with keys and of weights with values.

        Parameters
        ----------
        lengths
            (n,) tokens of each sequence.
        """
        squares = int((np.asarray(lengths, np.int64) ** 2).sum())
        return 4 * self.n_layers * self.width * squares

    def operations(self, lengths: npt.ArrayLike) -> int:
        """Count all operations for sequences of so many tokens each."""
        return self.linear * int(np.asarray(lengths, np.int64).sum()) + self.attention(lengths)
