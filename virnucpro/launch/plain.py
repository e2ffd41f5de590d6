"""What a worker returned, as plain data: any table and any JSON file can hold it. Pure."""

import math
import numbers
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

__all__ = ["DEEPEST", "plain_result"]

DEEPEST = 32
"""Levels of lists and dicts within each other; what holds itself has more than any number."""


def plain_result(data: object) -> dict[str, Any]:
    """Give a worker's result as a dict of plain data.

    Numbers of any kind become Python's own, those that are not finite their names; what is no
    number, text, list or mapping becomes its text. Anything but a mapping, and but None, stands
    under ``result``.

    Raises
    ------
    ValueError
        When a key is no text and no number, two keys become the same, or it is nested too deep.
    Exception
        Whatever an object's own ``__str__`` or iteration raises.
    """
    content = data if isinstance(data, Mapping) else {"result": data}
    return _plain_mapping(content, 1)


def _plain(value: object, depth: int) -> object:
    if isinstance(value, Mapping | list | tuple | AbstractSet):
        if depth > DEEPEST:
            raise ValueError(f"it is nested deeper than {DEEPEST} levels, or holds itself")
        if isinstance(value, Mapping):
            return _plain_mapping(value, depth + 1)
        return [_plain(one, depth + 1) for one in value]
    return _plain_scalar(value)


def _plain_scalar(value: object) -> bool | int | float | str | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    return str(value)


def _plain_mapping(mapping: Mapping[Any, object], depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in mapping.items():
        if not isinstance(key, str | numbers.Real):
            raise ValueError(f"the key {key!r} is no text")  # noqa: TRY004 - as documented
        name = str(key)
        if name in made:
            raise ValueError(f"two of its keys are {name!r}")
        made[name] = _plain(value, depth)
    return made
