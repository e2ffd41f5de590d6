"""Optional packages, which the extras of pyproject.toml install."""

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final

from virnucpro import __version__
from virnucpro.errors import UsageError

_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "anndata": ("anndata",),
    "bam": ("pysam",),
    "evaluate": ("matplotlib",),
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
    versions = {"virnucpro": __version__, "python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions
