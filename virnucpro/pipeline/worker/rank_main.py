"""The target of a rank's process: its share of the plan, unit by unit, into its shard.

Light to import: whatever reads the device mask is imported inside, after the mask is set.
"""

import gc
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from virnucpro.pipeline.worker.rank_task import RankChannel, RankTask, Share

if TYPE_CHECKING:
    from virnucpro.pipeline.worker.models import Models

__all__ = ["run_rank"]


def run_rank(
    rank: int,
    world_size: int,
    results: RankChannel,
    task: RankTask,
    shares: Mapping[int, Share],
    models: "Models | None" = None,
) -> None:
    """Embed, score and commit the units of ``shares[rank]`` that have no valid segment yet.

    With `models` of the task that were loaded before, nothing is loaded.

    Puts ``{"rank", "device", "learnt": {budget: tokens}}`` whenever it learns how large a batch may
    be, and when done ``{"rank", "units", "rows", "seconds": {stage: s}, "again": {precision: rows},
    "filling"}``, the last how full its batches were. A rank that is killed loses the unit that it
    computes and the one that is on its way to the disk.

    Raises
    ------
    BundleError, IndexFormatError, OSError
        As the parts raise them; committed segments stay.
    """
    _rank_loop().RankLoop(rank, world_size, results, task, shares[rank], models).run()


def _rank_loop() -> ModuleType:
    """Import the rank's work, and torch with it: the device mask is set by now.

    The garbage collector is off meanwhile and ignores the modules' objects from then on: it would
    traverse half a million of them several times, a fifth of the import.

    Raises
    ------
    ImportError
        With advice; and whatever the imports raise.
    """
    name = f"{__package__}.rank_loop"
    if name in sys.modules:
        return sys.modules[name]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    except ImportError as error:
        error.add_note(
            "The installation is damaged, or the address space is too small to load it: torch "
            "needs about 2 GB (ulimit -v)."
        )
        raise
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
