"""What every encoder promises, and what it takes to open one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.errors import BundleError

if TYPE_CHECKING:
    import torch

    from virnucpro.encoders.packed import Packed

__all__ = ["Encoder", "EncoderSpec", "IntArray", "Precision", "View"]

IntArray: TypeAlias = npt.NDArray[np.int64]

View: TypeAlias = Literal["nucleotide", "protein"]
"""Which kind of sequence an encoder reads."""

Precision: TypeAlias = Literal["fp32", "fp16", "bf16"]
"""The type of the weights and of the arithmetic; vectors are pooled in fp32 with any of them."""


class Encoder(Protocol):
    """Turns sequences of one view into vectors."""

    @property
    def name(self) -> str:
        """What the bundle or the weights' file calls it."""

    @property
    def dim(self) -> int:
        """Length of a vector."""

    @property
    def view(self) -> View:
        """Which kind of sequence it reads."""

    def tokenise(self, sequences: Sequence[bytes]) -> list[IntArray]:
        """Turn letters into token ids, special tokens included.

        Parameters
        ----------
        sequences
            Letters in either case. One that the encoder does not know becomes its unknown token.

        Returns
        -------
        list of (n_tokens,) int64
            In the order of `sequences`.

        Raises
        ------
        InputError
            When a sequence has no letter: there is nothing to take the mean of.
        """

    def collate(self, batch: Sequence[IntArray]) -> "Packed":
        """Lay tokenised sequences out on the encoder's device, ready for `encode`.

        It may be called from another thread than `encode`, so that a batch is laid out while the
        one before it is computed; a GPU gets it by a copy that nobody waits for.

        Parameters
        ----------
        batch
            Token ids as `tokenise` gives them, of any mixture of lengths.
        """

    def encode(self, batch: "Packed") -> "torch.Tensor":
        """Turn sequences into vectors, all of them in one pass.

        The vector of a sequence depends on its neighbours by floating-point rounding alone.

        Parameters
        ----------
        batch
            What `collate` made of them.

        Returns
        -------
        (n, dim) float32
            On the encoder's device, in the order of `batch`.
        """


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """All that it takes to open an encoder; plain data that travels to a worker process.

    Attributes
    ----------
    name
        Name for people.
    architecture
        Key of the registry.
    view, dim
        What the encoder reads, and how long its vectors are.
    folder
        Where the files are.
    files
        File name in `folder` by role: ``weights``, and for some architectures ``tokenizer``.
    config
        The architecture's own settings.
    """

    name: str
    architecture: str
    view: View
    dim: int
    folder: Path
    files: Mapping[str, str]
    config: Mapping[str, object] = field(default_factory=dict)

    def file(self, role: str) -> Path:
        """Name the file that plays `role`.

        Raises
        ------
        BundleError
            When the spec names none.
        """
        if role not in self.files:
            raise BundleError(
                f"{self.folder}: the {self.architecture} encoder {self.name!r} names no {role!r} "
                f"file; it names {', '.join(sorted(self.files)) or 'none'}. Add it to the bundle."
            )
        return self.folder / self.files[role]
