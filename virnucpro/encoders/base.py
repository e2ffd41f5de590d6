"""Types for encoders: token ids, view, precision, and `EncoderSpec`. Does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.pooling import Pooling
from virnucpro.errors import BundleError

__all__ = ["EncoderSpec", "IntArray", "Precision", "View"]

IntArray: TypeAlias = npt.NDArray[np.int64]

View: TypeAlias = Literal["nucleotide", "protein"]
"""Kind of sequence that an encoder reads."""

Precision: TypeAlias = Literal["fp32", "fp16", "bf16"]
"""Type of the weights and of the arithmetic; vectors are pooled in fp32 with any of them."""


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """Description of an encoder for `load_encoder`, small enough to send to a worker process.

    Attributes
    ----------
    name
        Name of the encoder in messages.
    architecture
        Key of the encoder registry.
    view, dim
        Kind of sequence that the encoder reads, and length of its vectors, which join all layers
        of `pooling`.
    folder
        Folder of the encoder's files.
    files
        File name in `folder` for each role. The roles are ``weights`` and, for some
        architectures, ``tokenizer``.
    config
        Settings of the architecture.
    pooling
        How tokens become vectors; from `Pooling.of_model`.
    """

    name: str
    architecture: str
    view: View
    dim: int
    folder: Path
    files: Mapping[str, str]
    config: Mapping[str, object] = field(default_factory=dict)
    pooling: Pooling = field(default_factory=Pooling)

    def file(self, role: str) -> Path:
        """Return the path of the encoder's file for `role`, such as ``weights``.

        Raises
        ------
        BundleError
            If the spec has no file with this role.
        """
        if role not in self.files:
            raise BundleError(
                f"{self.folder}: the {self.architecture} encoder {self.name!r} has no {role!r} "
                f"file; its files are {', '.join(sorted(self.files)) or 'none'}. Get the bundle "
                "again."
            )
        return self.folder / self.files[role]
