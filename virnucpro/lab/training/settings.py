"""Parameters of the networks that a training fits.

This module imports quickly, because the command line needs it.
"""

from argparse import ArgumentTypeError
from dataclasses import dataclass

from virnucpro.option import inner_share, option, positive, share

_GROUP = "network"


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
    members: int = option(
        3,
        "--members",
        metavar="N",
        parse=positive,
        group=_GROUP,
        help="networks whose outputs are averaged, each with its own seed",
    )
    draws: int = option(
        500_000,
        "--draws",
        metavar="N",
        parse=positive,
        group=_GROUP,
        help="maximum training windows that a network draws, with replacement",
    )
    epochs: int = option(
        20,
        "--epochs",
        metavar="N",
        parse=positive,
        group=_GROUP,
        help="maximum draws of a network for each training window, on average",
    )
    batch: int = option(
        512,
        "--batch",
        metavar="N",
        parse=positive,
        group=_GROUP,
        help="training windows of a step",
    )
    learning_rate: float = option(
        1.4e-3,
        "--learning-rate",
        metavar="X",
        parse=inner_share,
        group=_GROUP,
        help="highest learning rate of AdamW; it falls to 0 as a cosine",
    )
    warm_up: int = option(
        50,
        "--warm-up",
        metavar="N",
        parse=positive,
        group=_GROUP,
        help="steps until the learning rate is reached",
    )
    weight_decay: float = option(
        0.05,
        "--weight-decay",
        metavar="X",
        parse=share,
        group=_GROUP,
        help="weight decay of AdamW",
    )
    dropout: float = option(
        0.3,
        "--dropout",
        metavar="P",
        parse=_dropout,
        group=_GROUP,
        help="dropout after each hidden layer",
    )
    label_smoothing: float = option(
        0.1,
        "--label-smoothing",
        metavar="P",
        parse=share,
        group=_GROUP,
        help="label smoothing",
    )
    weight_average: float = option(
        0.996,
        "--weight-average",
        metavar="X",
        parse=share,
        group=_GROUP,
        help="decay of the moving average of the weights",
    )
    moved_share: float = option(
        0.5,
        "--moved-share",
        metavar="P",
        parse=share,
        group=_GROUP,
        help="share of the training windows that are moved towards another group of their side",
    )
    moved_distance: float = option(
        1.0,
        "--moved-distance",
        metavar="X",
        parse=share,
        group=_GROUP,
        help="longest such move, as a share of the way between both groups' means",
    )
    side_loss: float = option(
        0.5,
        "--side-loss",
        metavar="P",
        parse=share,
        group=_GROUP,
        help="share of the loss of viral or not; the rest is that of the classes",
    )
