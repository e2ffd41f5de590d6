"""What is trained on what; encoders, items and windows of the new bundle."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from virnucpro.encoders.composition.config import CompositionConfig
from virnucpro.encoders.huggingface.config import HuggingFaceConfig
from virnucpro.errors import UsageError
from virnucpro.lab.evaluation.input_table import Excluded
from virnucpro.lab.evaluation.labels import Source
from virnucpro.lab.training.draw import CROPS, WINDOW, Crops
from virnucpro.lab.training.settings import NetworkSettings
from virnucpro.run.embed_job import NamedEncoder, find_encoder
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import KIND_OF_ITEMS, IndexSpec

_MOST_BASES: Final = 1 << 30
"""A window of this length contains every record that is drawn for a training."""
_WINDOWS: Final = range(100, 10_001)
"""Allowed windows; shorter records have no call."""
_GENETIC_CODE: Final = 11
"""Genetic code of a bundle whose encoders are not from bundles."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained on what.

    Attributes
    ----------
    sources
        Labelled files of the training set.
    held_out
        Labelled files that must not be similar to the training set; empty to skip this check.
    excluded
        Regions of records that are left out.
    encoders, items, window
        As for `choose_model`.
    crops
        Lengths of the windows for training.
    name, version, description
        Name, version and description of the new bundle.
    seed
        Seed of windows, folds and initial weights.
    network
        Parameters of the networks.
    notes
        Markdown text that is appended to the card.
    records
        Whether to train a record head, which scores whole records by their genes, if the bundle
        can have one; see `Model.has_records`.
    allow_similar
        Warn of nearly equal sequences of different groups, or on both sides, instead of refusing.
    tables
        Files of the user beside the sequences, which the training must not replace.
    """

    sources: Sequence[Source]
    held_out: Sequence[Source]
    excluded: Excluded
    encoders: Sequence[str]
    name: str
    version: str
    description: str
    seed: int
    network: NetworkSettings
    notes: str = ""
    items: str | None = None
    window: int | None = None
    crops: Crops = CROPS
    records: bool = True
    allow_similar: bool = False
    tables: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """Encoders of a new bundle, and what they read.

    Attributes
    ----------
    encoders
        At most one of each view, in the order in which their vectors are joined.
    items
        ``window`` or ``longest_stretch``; see `virnucpro.bundles.manifest.Bundle`.
    window
        Window length in bases of the bundle.
    genetic_code
        Number of the genetic code of the bundle: that of the first encoder's bundle, else 11.
    """

    encoders: tuple[NamedEncoder, ...]
    items: str
    window: int
    genetic_code: int

    @property
    def has_records(self) -> bool:
        """Whether the bundle can have a record head: if its items are windows of composition."""
        architectures = [encoder.spec.architecture for encoder in self.encoders]
        return self.items == "window" and architectures == [CompositionConfig.architecture]

    @property
    def index(self) -> IndexSpec:
        """Return the rules that divide drawn windows into items: at most one of each record."""
        if self.items == "window":
            return IndexSpec("whole", Alphabet.NUCLEOTIDE)
        kind = KIND_OF_ITEMS[self.items]
        return IndexSpec(kind, Alphabet.NUCLEOTIDE, _MOST_BASES, "even", self.genetic_code)


def choose_model(names: Sequence[str], items: str | None, window: int | None) -> Model:
    """Return the model of these encoders.

    Parameters
    ----------
    names
        Encoders of bundles and Hugging Face folders, as for `find_encoder`.
    items
        None for ``window`` if all encoders read nucleotides, else ``longest_stretch``.
    window
        None for the window of the first encoder's bundle; 500 if no encoder is of a bundle.

    Raises
    ------
    UsageError
        If there is no such encoder, two have the same view or name, one is neither in a bundle nor
        a Hugging Face folder, or the encoders cannot read the items. If the window is
        too short or too long.
    BundleError
        If a bundle is damaged.
    """
    encoders = tuple(map(find_encoder, names))
    for name, encoder in zip(names, encoders, strict=True):
        if encoder.bundle is None and encoder.spec.architecture != HuggingFaceConfig.architecture:
            raise UsageError(
                f"{name}: a new bundle cannot contain a checkpoint of {encoder.spec.architecture}. "
                "Give the encoder of a bundle, such as mini/nucleotide, or a Hugging Face folder "
                "of a BERT, ESM or T5 model. For ESM-2 and DNABERT-S run virnucpro bundle fetch "
                "first."
            )
    if sum(encoder.bundle is None for encoder in encoders) > 1:
        raise UsageError(
            f"{', '.join(names)}: a bundle has at most one Hugging Face folder, whose files keep "
            "their names. Give an encoder of a bundle for the other view."
        )
    for encoder, other in combinations(encoders, 2):
        if encoder.spec.view == other.spec.view or encoder.spec.name == other.spec.name:
            raise UsageError(
                f"{encoder.name} and {other.name}: a bundle has at most one {encoder.spec.view} "
                "encoder. Give one encoder of each view."
            )
    protein = next((encoder.name for encoder in encoders if encoder.spec.view == "protein"), None)
    items = items or ("window" if protein is None else "longest_stretch")
    if items == "window" and protein is not None:
        raise UsageError(f"{protein}: cannot read whole windows. Use the items longest_stretch.")
    first = next((encoder.bundle for encoder in encoders if encoder.bundle is not None), None)
    if window is None:
        window = WINDOW if first is None else first.window
    if window not in _WINDOWS:
        raise UsageError(
            f"a window of {window:,} bases cannot be trained: give {_WINDOWS[0]} to "
            f"{_WINDOWS[-1]:,} bases"
        )
    code = _GENETIC_CODE if first is None else first.genetic_code
    return Model(encoders, items, window, code)
