"""Settings of a model, read out of JSON or of a checkpoint and checked one by one."""

from collections.abc import Mapping
from pathlib import Path

from virnucpro.errors import BundleError

__all__ = ["flag", "positive_integer", "positive_number"]


def _setting(config: Mapping[str, object], key: str, source: Path) -> object:
    if key not in config:
        raise BundleError(
            f"{source}: the encoder's settings lack {key!r}; they hold "
            f"{', '.join(sorted(config)) or 'nothing'}. Is this the right architecture?"
        )
    return config[key]


def _refuse(key: str, value: object, wanted: str, source: Path) -> BundleError:
    return BundleError(
        f"{source}: the encoder's setting {key!r} is {value!r}, which is not {wanted}. "
        "Get the encoder's files again."
    )


def positive_integer(config: Mapping[str, object], key: str, source: Path) -> int:
    """Read a whole number of at least 1.

    Raises
    ------
    BundleError
        When it is not there or is something else; the message names `source`.
    """
    value = _setting(config, key, source)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refuse(key, value, "a positive whole number", source)
    return value


def positive_number(config: Mapping[str, object], key: str, source: Path) -> float:
    """Read a number above 0.

    Raises
    ------
    BundleError
        When it is not there or is something else; the message names `source`.
    """
    value = _setting(config, key, source)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise _refuse(key, value, "a positive number", source)
    return float(value)


def flag(config: Mapping[str, object], key: str, source: Path) -> bool:
    """Read true or false.

    Raises
    ------
    BundleError
        When it is not there or is something else; the message names `source`.
    """
    value = _setting(config, key, source)
    if not isinstance(value, bool):
        raise _refuse(key, value, "true or false", source)
    return value
