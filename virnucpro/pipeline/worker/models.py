"""Encoders and classifier of a job on their device: they outlive the index that they serve."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from virnucpro.classify.head import load_head
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.pipeline.worker.rank_encoder import RankEncoder
from virnucpro.pipeline.worker.rank_task import RankTask

__all__ = ["Models"]


class Models:
    """What takes long to load.

    Parameters
    ----------
    specs
        In the order in which their vectors are joined.
    head
        Weights of the classifier, or None where vectors are all that is wanted.
    device, precision
        As `load_encoder` takes them.
    first_budget
        Tokens of a batch of which nothing has been learnt.
    learnt
        What earlier budgets on such a device learnt.

    Attributes
    ----------
    encoders
        One of each specification.
    head
        The classifier, or None.

    Raises
    ------
    BundleError, DeviceError
        When the weights are damaged, or the device cannot be used.
    """

    def __init__(
        self,
        specs: Sequence[EncoderSpec],
        head: Path | None,
        device: str,
        precision: Precision,
        first_budget: int,
        learnt: Mapping[str, int] | None = None,
    ) -> None:
        self.encoders = [
            RankEncoder(number, spec, device, precision, first_budget, learnt or {})
            for number, spec in enumerate(specs)
        ]
        self.head = None if head is None else load_head(head, device)

    @classmethod
    def of(cls, task: RankTask, learnt: Mapping[str, int] | None = None) -> Self:
        """Load what a rank needs."""
        return cls(
            task.encoders, task.head, task.torch_device, task.precision, task.batch_tokens, learnt
        )
