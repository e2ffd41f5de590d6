"""Target function of a rank's process: computes its share of the plan into its shard.

Light to import: modules that read the device mask are imported inside, after the mask is set.
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
    """Embed, score and commit the units of ``shares[rank]`` without a valid segment.

    `models` are loaded models for the task; None to load them.

    Sends ``{"rank", "device", "learnt": {budget: tokens}}`` whenever a token budget changes, and
    at the end ``{"rank", "units", "rows", "seconds": {stage: s}, "again": {precision: rows},
    "filling"}``. A killed rank loses the unit that it computes and the one that it writes.

    Raises
    ------
    BundleError, IndexFormatError, OSError
        If a file is missing or damaged, or a segment cannot be written. Committed segments are
        kept.
    """
    _rank_loop().RankLoop(rank, world_size, results, task, shares[rank], models).run()


def _rank_loop() -> ModuleType:
    """Import the module with torch, after the device mask is set.

    The garbage collector is off during the import and ignores the modules' objects afterwards. It
    would traverse half a million of them several times: a fifth of the time.

    Raises
    ------
    ImportError
        With advice about the installation and the address space.
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
            "The installation is damaged, or the address space is too small: torch needs about "
            "2 GB (see ulimit -v)."
        )
        raise
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
