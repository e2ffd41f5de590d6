"""The recall of virus families in the cross-validations of a bundle, as a table."""

from difflib import get_close_matches
from typing import Any

from virnucpro.bundles.manifest import Bundle
from virnucpro.console import shortened
from virnucpro.errors import UsageError

_LENGTHS = range(1_000, 10_001)
"""Bases of the pieces that are shown."""
_SCHEMES = ("unseen", "relatives")


def family_rows(families: dict[str, Any]) -> list[list[str]]:
    """Return the header and a row for each family: genomes, recall unseen and as relatives."""
    shown = {bases for one in families.values() for name in _SCHEMES for bases in one[name]}
    lengths = [bases for bases in sorted(shown, key=int) if int(bases) in _LENGTHS]
    columns = [(name, bases) for name in _SCHEMES for bases in lengths]
    rows = [["family", "genomes", *(f"{name}_{bases}" for name, bases in columns)]]
    for family, one in sorted(families.items()):
        shares = (one[name].get(bases) for name, bases in columns)
        cells = ["-" if share is None else f"{share:.2f}" for share in shares]
        rows.append([family, str(one["genomes"]), *cells])
    return rows


def families_table(bundle: Bundle, name: str) -> str:
    """Return the rows of a family, or of all if `name` is empty, separated by tabs.

    Raises
    ------
    UsageError
        If the bundle has no figures of families, or not of this one.
    """
    families: Any = bundle.metrics.get("families") or {}
    if not families:
        raise UsageError(
            f"{bundle.name}: has no figures of virus families. A bundle that this version trained "
            "has them (virnucpro train)."
        )
    header, *rows = family_rows(families)
    chosen = [row for row in rows if name.lower() in ("", row[0].lower())]
    if not chosen:
        close = get_close_matches(name, families, n=3, cutoff=0.8)
        advice = f" Similar names: {', '.join(close)}." if close else ""
        raise UsageError(
            f"the training of {bundle.name} had no family {shortened(name)}.{advice} "
            f"virnucpro bundle show {bundle.name} --families prints all families."
        )
    return "\n".join("\t".join(row) for row in (header, *chosen))
