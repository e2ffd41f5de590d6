"""What bundles say that they were made from, held against what was published."""

from collections.abc import Mapping

from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.golden_figures import PROJECTIONS
from virnucpro.bundles.made_here import parts_made_here
from virnucpro.bundles.manifest import Manifest, read_manifest
from virnucpro.bundles.published import HEAD_PART, Recipe, published_names, recipe_of
from virnucpro.errors import BundleError

__all__ = [
    "claimed_sources",
    "refuse_other_content",
    "same_content",
    "told_of_trust",
]


def claimed_sources(manifest: Manifest) -> dict[str, Mapping[str, str]]:
    """Read name and digest of the files that each part was made from, by its bundle's own word.

    Provenance is free in its form: a part of which it says nothing has no files.
    """
    said = manifest.provenance.get("sources")
    known = said if isinstance(said, dict) else {}
    parts = [encoder.view for encoder in manifest.encoders]
    if manifest.head is not None:
        parts.append(HEAD_PART)
    return {part: _texts(known.get(part)) for part in parts}


def _texts(files: object) -> dict[str, str]:
    if not isinstance(files, dict):
        return {}
    return {name: digest for name, digest in files.items() if isinstance(digest, str)}


def same_content(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Say whether these are the same files, whatever they are called."""
    return sorted(one.values()) == sorted(other.values())


def refuse_other_content(
    name: str, sources: Mapping[str, Mapping[str, str]], window: int, advice: str
) -> None:
    """Refuse what bears the name of a published bundle and says itself that it is something else.

    Parameters
    ----------
    name
        Of a bundle; any is right that is no published one.
    sources
        Name and digest of the files of each of its parts.
    window
        Bases of its windows.
    advice
        What to do: ends the message.

    Raises
    ------
    BundleError
        When it differs from what was published under that name.
    """
    if name not in published_names():
        return
    problem = _difference(recipe_of(name), sources, window)
    if problem is not None:
        raise BundleError(f"{name} is the name of a published bundle, and {problem}. {advice}")


def told_of_trust(data: DataFolder, name: str) -> str | None:
    """Say that nobody here knows whether an installed bundle is the published one of that name.

    Returns
    -------
    str or None
        A sentence or two; None where all of it was made here, or nothing is published of that name.
    """
    folder = data.bundle(name)
    parts = claimed_sources(read_manifest(folder)).keys()
    if name not in published_names() or parts <= parts_made_here(data, folder):
        return None
    recorded = {encoder for encoder, _ in PROJECTIONS}
    known = all(encoder.name in recorded for encoder in recipe_of(name).encoders)
    golden = f" What it must compute is known here: virnucpro bundle verify {name} --golden."
    return (
        f"{name} was not made here of verified files: that it holds what was published is the "
        f"word of whoever packed it.{golden * known} To have it made here, remove {folder} and "
        "fetch it."
    )


def _difference(
    recipe: Recipe, sources: Mapping[str, Mapping[str, str]], window: int
) -> str | None:
    wanted = recipe.sources
    for part in (*wanted, *(part for part in sources if part not in wanted)):
        if part not in sources:
            return f"this one has no {part} part"
        if part not in wanted:
            return f"this one has a {part} part, which the published one has not"
        if not same_content(sources[part], wanted[part]):
            of = ", ".join(sources[part].values()) or "files that nobody knows"
            return f"the {part} part of this one was made from other files ({of})"
    if recipe.head is not None and window != recipe.window:
        return f"this one has windows of {window} bases, the published one of {recipe.window}"
    return None
