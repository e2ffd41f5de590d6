"""Optional packages, which the extras of pyproject.toml install."""

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from virnucpro import __version__
from virnucpro.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "anndata": ("anndata",),
    "bam": ("pysam",),
    "models": ("torch", "tokenizers"),
    "parquet": ("pyarrow",),
    "plot": ("matplotlib",),
    "ray": ("ray",),
    "ui": ("shtab",),
}
"""Packages of an extra whose absence is an error."""


def require_extra(extra: str, purpose: str) -> None:
    """Check that the packages of an extra are installed, without importing them.

    Parameters
    ----------
    purpose
        Subject of the message, such as ``"bundle mini-deep"``.

    Raises
    ------
    UsageError
        If a package is missing.
    """
    missing = [name for name in _PACKAGES[extra] if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{purpose} needs {' and '.join(missing)}: pip install 'virnucpro[{extra}]'"
        )


@cache
def versions_of(*packages: str) -> Mapping[str, str]:
    """Return the versions of virnucpro, Python and packages, ``"not installed"`` if one is not."""
    python = "{}.{}.{}".format(*sys.version_info)
    return {
        "virnucpro": __version__,
        "python": python,
        **{name: _version(name) for name in packages},
    }


def entry_points(group: str) -> Iterable["EntryPoint"]:
    """Return what the installed packages offer in a group."""
    from importlib import metadata  # noqa: PLC0415 - takes as long as Python's start

    return metadata.entry_points(group=group)


def _version(package: str) -> str:
    spec = find_spec(package)
    if spec is None:
        return "not installed"
    # The folder's name has it: the metadata in it take long to parse.
    beside = Path(spec.origin or "").parent.parent
    found = [path.name for path in beside.glob(f"{package}-*.dist-info")]
    if len(found) == 1:
        return found[0].removesuffix(".dist-info").partition("-")[2]
    from importlib import metadata  # noqa: PLC0415 - see entry_points

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a folder of this name, without an installation
        return "not installed"
