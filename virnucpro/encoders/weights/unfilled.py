"""Modules that are built to be filled: no memory is taken for their numbers, and none is drawn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["unfilled"]


@contextmanager
def unfilled() -> Iterator[None]:
    """Build modules on the ``meta`` device inside, for `virnucpro.encoders.weights.fill.fill`.

    Starting values would be lost anyway, and drawing them there makes torch import its compiler
    and sympy, which takes as long again as torch itself.
    """
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    """Leaves tensors alone that ``torch.nn.init`` was to fill."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function gives
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)
