"""Encoders and classifier of a job on a device. Several runs may share them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from virnucpro.classify.head import load_head
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.pipeline.worker.rank_encoder import RankEncoder

__all__ = ["Models"]


class Models:
    """The models, loaded.

    Parameters
    ----------
    specs
        In the order in which their vectors are joined.
    head
        Weights of the classifier; None for vectors only.
    device, precision
        As `load_encoder` takes them.
    first_budget
        Tokens of a batch before anything is learnt.
    learnt
        Budgets learnt on such a device.

    Attributes
    ----------
    encoders
        One for each spec.
    head
        The classifier, or None.

    Raises
    ------
    BundleError, DeviceError
        If the weights are damaged, or the device cannot be used.
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
