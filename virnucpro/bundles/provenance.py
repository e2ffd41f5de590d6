"""Source files of a bundle's parts, and the parts that this machine converted.

A part is an encoder or the head. Its sources are the published files that it was converted from.
The manifest lists the sources of each part. This list is only a claim of the author:
converted tensors cannot be compared with the digests of published files. Therefore this machine
lists the parts that it converted itself ("here") in a file outside of the bundle. The SHA-256 of
the manifest is the name of this file. The manifest contains the digests of all files of the bundle,
so the list is valid for this content only, independent of the bundle's name and folder.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from virnucpro.bundles.checksums import file_digest
from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.manifest import MANIFEST, Bundle, read_bundle
from virnucpro.bundles.published import HEAD_PART, Recipe, published_names, recipe_of
from virnucpro.durable import write_bytes
from virnucpro.errors import BundleError


def record_converted_here(data: DataFolder, folder: Path, parts: Collection[str]) -> None:
    """Save the names of the parts (views, ``head``) of a bundle that this machine converted."""
    data.records.mkdir(exist_ok=True)
    write_bytes(_record(data, folder), json.dumps({"made_here": sorted(parts)}).encode() + b"\n")


def parts_converted_here(data: DataFolder, folder: Path) -> frozenset[str]:
    """Return the parts of a bundle that this machine converted; an empty set if unknown."""
    try:
        content = json.loads(_record(data, folder).read_bytes())
    except (OSError, ValueError, RecursionError):
        return frozenset()
    match content:
        case {"made_here": list(parts)}:
            return frozenset(part for part in parts if isinstance(part, str))
    return frozenset()


def _record(data: DataFolder, folder: Path) -> Path:
    return data.records / f"{file_digest(folder / MANIFEST).sha256}.json"


def claimed_sources(bundle: Bundle) -> dict[str, Mapping[str, str]]:
    """Return the source files of each part, as the manifest claims.

    The result has one dict for each part (view or ``head``): the digest of each source file by
    file name. The dict is empty if the manifest lists no sources of the part.
    """
    stated = bundle.provenance.get("sources")
    sources = stated if isinstance(stated, dict) else {}
    parts: list[str] = [encoder.view for encoder in bundle.encoders]
    if bundle.head is not None:
        parts.append(HEAD_PART)
    return {part: _digests(sources.get(part)) for part in parts}


def _digests(files: object) -> dict[str, str]:
    if not isinstance(files, dict):
        return {}
    return {name: digest for name, digest in files.items() if isinstance(digest, str)}


def refuse_other_content(
    name: str, sources: Mapping[str, Mapping[str, str]], window: int, advice: str
) -> None:
    """Raise BundleError if a bundle has a published name but other sources or another window.

    Parameters
    ----------
    name
        Name of the bundle.
    sources
        Claimed source files by part: the digest of each file by name.
    window
        Window length in bases.
    advice
        What the user can do: the last sentence of the error message.

    Raises
    ------
    BundleError
        If parts, sources or window differ from the published bundle of that name.
    """
    if name not in published_names():
        return
    problem = _difference(recipe_of(name), sources, window)
    if problem is not None:
        raise BundleError(f"{name} is the name of a published bundle, but {problem}. {advice}")


def trust_warning(data: DataFolder, name: str) -> str | None:
    """Return a warning if a bundle has a published name, but was not converted on this machine.

    Return None for any other bundle.
    """
    folder = data.bundle(name)
    parts = claimed_sources(read_bundle(folder)).keys()
    if name not in published_names() or parts <= parts_converted_here(data, folder):
        return None
    return (
        f"{name} was packed on another machine. It is not verified that it was made from the "
        f"published files. To check its results, run: virnucpro bundle verify {name} --golden. To "
        f"replace it, remove {folder} and run: virnucpro bundle fetch {name}"
    )


def _difference(
    recipe: Recipe, sources: Mapping[str, Mapping[str, str]], window: int
) -> str | None:
    wanted = recipe.sources
    if sources.keys() != wanted.keys():
        return f"this bundle has the parts {', '.join(sources)} instead of {', '.join(wanted)}"
    for part in wanted:  # the names of the files have no effect
        if sorted(sources[part].values()) != sorted(wanted[part].values()):
            files = ", ".join(sources[part].values()) or "unknown files"
            return f"the {part} part of this bundle was made from other files ({files})"
    if recipe.head is not None and window != recipe.window:
        return f"this bundle has windows of {window} bases instead of {recipe.window}"
    return None
