"""The target of a rank's process: its share of the plan, unit by unit, into its shard.

Light to import: whatever reads the device mask is imported inside, after the mask is set.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from virnucpro.pipeline.rank_task import RankChannel, RankTask, Share
from virnucpro.runtime.imports import import_ahead

if TYPE_CHECKING:
    from virnucpro.pipeline.models import Models

__all__ = ["import_work", "run_rank"]


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
    import_work()
    from virnucpro.pipeline.share_work import ShareWork  # noqa: PLC0415 - see `import_work`

    ShareWork(rank, world_size, results, task, shares[rank], models).run()


def import_work() -> None:
    """Import what a rank's work is in, and torch with it: the device mask must be set by then.

    Raises
    ------
    ImportError
        With what may be the matter; and whatever the imports raise.
    """
    try:
        import_ahead(["virnucpro.pipeline.share_work"])
    except ImportError as error:
        error.add_note(
            "either the installation is damaged, or there is too little address space to load it: "
            "torch needs about 2 GB (ulimit -v)"
        )
        raise
