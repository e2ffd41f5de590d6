"""Parameters of the networks that a training fits.

This module imports quickly, because the command line needs it.
"""

from argparse import ArgumentTypeError
from dataclasses import dataclass
from functools import partial

from virnucpro.option import inner_share, option, positive, share

_GROUP = "network"
_count = partial(option, metavar="N", parse=positive, group=_GROUP)
_share = partial(option, metavar="X", parse=share, group=_GROUP)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(positive, text.split(",")))


def _dropout(text: str) -> float:
    number = share(text)
    if number == 1:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to below 1")
    return number


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Options of ``virnucpro train`` for its networks: layers, optimiser and augmentation."""

    hidden: tuple[int, ...] = option(
        (256, 256),
        "--hidden",
        metavar="LIST",
        parse=_sizes,
        group=_GROUP,
        help="sizes of the hidden layers of a network, separated by commas",
    )
    members: int = _count(
        3, "--members", help="networks whose outputs are averaged, each with its own seed"
    )
    draws: int = _count(
        500_000, "--draws", help="maximum training windows that a network draws, with replacement"
    )
    epochs: int = _count(
        20, "--epochs", help="maximum draws of a network for each training window, on average"
    )
    learning_rate: float = option(
        1.4e-3,
        "--learning-rate",
        metavar="X",
        parse=inner_share,
        group=_GROUP,
        help="highest learning rate of AdamW; it falls to 0 as a cosine",
    )
    dropout: float = option(
        0.3,
        "--dropout",
        metavar="X",
        parse=_dropout,
        group=_GROUP,
        help="dropout after each hidden layer",
    )
    label_smoothing: float = _share(0.1, "--label-smoothing", help="label smoothing")
