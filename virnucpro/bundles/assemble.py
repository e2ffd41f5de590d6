"""Converted parts into an installed bundle: card, manifest, and the one rename that shows it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from virnucpro import __version__
from virnucpro.bundles.bundle import embedded_names, write_manifest
from virnucpro.bundles.data_folder import DataFolder, check_name
from virnucpro.bundles.made_here import write_record
from virnucpro.bundles.manifest import EncoderEntry, Manifest
from virnucpro.bundles.published import origin_of
from virnucpro.errors import BundleError

__all__ = ["Parts", "check_free", "install"]

PUBLISHED_LABELS: Final = ("others", "virus")
PUBLISHED_THRESHOLDS: Final = {"viral": 0.5, "non_viral": 0.5}
"""The published tool calls what scores higher as a virus than as something else."""

_UNKNOWN: Final = "no published file that is known"

_CARD: Final = """\
# {name}

{description}.

Weights of others, converted to safetensors without a change of their numbers.{licences} How good
they are is the word of those who made them: nothing was measured here.

| part | made from | identified by | published in |
|---|---|---|---|
{sources}
"""


@dataclass(slots=True)
class Parts:
    """What a bundle is to be made of; collected while its files are converted into a folder.

    Attributes
    ----------
    encoders
        In the order of the joined vector.
    sources
        For each encoder's view, and for ``head``: the published files behind it and their digests.
    word_of
        For a part that was taken from a bundle that was packed elsewhere: that bundle's name, whose
        word its sources are.
    """

    name: str
    description: str
    head: str | None = None
    window: int = 500
    encoders: list[EncoderEntry] = field(default_factory=list)
    sources: dict[str, Mapping[str, str]] = field(default_factory=dict)
    word_of: dict[str, str] = field(default_factory=dict)


def check_free(data: DataFolder, name: str) -> None:
    """Refuse a name that cannot be installed under, or is taken.

    Raises
    ------
    BundleError
        When the name is no plain one, an embedded bundle's, or that of an installed bundle.
    """
    check_name(name)
    if name in embedded_names():
        raise BundleError(f"{name}: is the name of an embedded bundle. Choose another name.")
    if data.bundle(name).exists():
        raise BundleError(
            f"{name}: a bundle of that name is installed ({data.bundle(name)}). "
            "Remove that folder first, or choose another name."
        )


@contextmanager
def install(data: DataFolder, parts: Parts) -> Iterator[Path]:
    """Give a folder to convert `parts` into; when the block ends well they are an installed bundle.

    Only while holding the data folder's lock.

    Raises
    ------
    BundleError
        When what was made is no valid bundle; nothing is installed then.
    """
    with data.staging(parts.name) as folder:
        yield folder
        _write_card(folder, parts)
        write_manifest(folder, _manifest(parts))
        write_record(data, folder, parts.sources.keys() - parts.word_of.keys())


def _write_card(folder: Path, parts: Parts) -> None:
    names = {entry.view: f"{entry.view}: {entry.name}" for entry in parts.encoders}
    rows = [
        (names.get(part, part), file, digest, _origin(digest, parts.word_of.get(part)))
        for part, files in parts.sources.items()
        for file, digest in (files or {"unknown": ""}).items()
    ]
    known = [
        None if part in parts.word_of else origin_of(digest)
        for part, files in parts.sources.items()
        for digest in files.values() or [""]
    ]
    card = _CARD.format(
        name=parts.name,
        description=parts.description,
        licences=_licences(known),
        sources="\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows),
    )
    (folder / "CARD.md").write_text(card, encoding="utf-8")


def _origin(digest: str, word_of: str | None) -> str:
    """Say whose work a file is, and who says so where that is not known here."""
    origin = origin_of(digest) or _UNKNOWN
    return origin if word_of is None else f"{origin}, by the word of the bundle {word_of}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _licences(origins: Sequence[str | None]) -> str:
    """Say whose licences hold, as far as digests tell whose work it is."""
    known = ", ".join(sorted({origin for origin in origins if origin is not None}))
    published = f" Under their publishers' own licences: {known}." if known else ""
    if None not in origins:
        return published
    rest = (
        "What is not known to be a published file"
        if known
        else "None of the files is known to be a published one: it"
    )
    return f"{published} {rest} is under the licence that its maker gives it."


def _manifest(parts: Parts) -> Manifest:
    classifies = parts.head is not None
    return Manifest(
        name=parts.name,
        version="1",
        description=parts.description,
        encoders=parts.encoders,
        head=parts.head,
        window=parts.window,
        tiling="published",
        genetic_code=1,
        labels=PUBLISHED_LABELS if classifies else (),
        thresholds=PUBLISHED_THRESHOLDS if classifies else {},
        provenance={"sources": parts.sources, "converted_by": f"virnucpro {__version__}"},
    )
