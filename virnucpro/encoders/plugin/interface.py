"""Interface of an encoder of another package. Imports neither torch nor other rooms."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import Precision, View


class EncoderPlugin(ABC):
    """Converts sequences to one vector each. Subclass it, and name the class as an entry point.

    The class is called without arguments: once to read the attributes, and again in each worker.
    Put slow work, such as reading weights, into `load`. An exception in a method ends the worker.
    It is restarted, and a single sequence that ends workers again is listed in quarantine.tsv.

    Attributes
    ----------
    alphabet : str
        ``nucleotide`` or ``protein``: what the encoder reads.
    dim : int
        Length of a vector.
    max_tokens : int
        Maximum number of tokens of a sequence; longer ones are listed in quarantine.tsv. 0: no
        limit.
    n_weights : int
        Number of weights of a model of torch, from which the memory is estimated. 0: the encoder
        does not use torch, and runs on the CPU.
    settings : mapping
        What else determines the vectors, as JSON: k, a checksum of weights. A resume with other
        settings, or with another version of the package, is refused.
    """

    alphabet: View
    dim: int
    max_tokens: int = 0
    n_weights: int = 0
    settings: Mapping[str, Any] = {}

    def load(self, device: str, precision: Precision) -> None:  # noqa: B027 - most load nothing
        """Load weights in a worker, before any other method; by default, do nothing.

        Parameters
        ----------
        device
            torch's name of the device: ``cpu`` or ``cuda``, of which a worker sees one.
        precision
            ``fp32``, ``fp16`` or ``bf16``: of weights and arithmetic.
        """

    @abstractmethod
    def tokenise(self, sequences: Sequence[bytes]) -> Sequence[npt.NDArray[np.integer[Any]]]:
        """Convert sequences to tokens. Another thread may call this while `vectors` runs.

        Parameters
        ----------
        sequences
            Letters of the alphabet in either case, also ambiguous ones (N, X); none is empty.

        Returns
        -------
        sequence of (n_tokens,) integer arrays
            One for each sequence, in order, with at least one token.
        """

    @abstractmethod
    def vectors(self, batch: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Return the vectors of a batch of tokenised sequences.

        A vector must depend on its own sequence alone, up to rounding: after a failure, batches
        are divided in another way. On a GPU, batches grow until the memory is full: raise torch's
        error or MemoryError, and the batch is divided.

        Returns
        -------
        (n, dim) float32
            In the order of the batch. A sequence with NaN or infinity is encoded again alone, and
            listed in quarantine.tsv if that does not help.
        """
