"""What is trained, and on what."""

from collections.abc import Sequence
from dataclasses import dataclass

from virnucpro.evaluation.fragments import Excluded
from virnucpro.evaluation.labels import Source
from virnucpro.training.draw import CROPS, Crops

__all__ = ["Training"]


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
        As for `virnucpro.pipeline.training.model.choose_model`.
    crops
        Lengths of the windows for training.
    name, version, description
        Name, version and description of the new bundle.
    seed
        Seed of windows, folds and initial weights.
    notes
        Markdown text that is appended to the card.
    allow_similar
        Warn of nearly equal sequences of different groups, or on both sides, instead of refusing.
    """

    sources: Sequence[Source]
    held_out: Sequence[Source]
    excluded: Excluded
    encoders: Sequence[str]
    name: str
    version: str
    description: str
    seed: int
    notes: str = ""
    items: str | None = None
    window: int | None = None
    crops: Crops = CROPS
    allow_similar: bool = False
