"""Install a bundle from converted parts: write CARD.md and manifest, then rename the folder."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from virnucpro import __version__
from virnucpro.bundles.bundle import embedded_names, save_bundle
from virnucpro.bundles.checksums import verify_file
from virnucpro.bundles.data_folder import DataFolder, check_name
from virnucpro.bundles.manifest import Bundle
from virnucpro.bundles.provenance import record_converted_here
from virnucpro.bundles.published import origin_of
from virnucpro.encoders.base import EncoderSpec
from virnucpro.errors import BundleError

_CARD: Final = """\
# {name}

{description}.

Weights of other authors, converted to safetensors with unchanged numbers.{licences} The
accuracy was not measured on this machine: see the publications of the authors.

| part | made from | identified by | published in |
|---|---|---|---|
{sources}
"""


@dataclass(slots=True)
class Parts:
    """The parts of a new bundle, collected while its files are converted into a folder.

    A part is an encoder or the head.

    Attributes
    ----------
    name, description
        Text for users.
    head
        File name of the head; None for a bundle of encoders only.
    window
        Window length in bases.
    encoders
        The encoders, in the order in which their vectors are joined.
    sources
        Source files by part (view of an encoder, or ``head``): the digest of each file by name.
    unverified
        Parts that another machine converted, so that their sources are not verified.
    """

    name: str
    description: str
    head: str | None = None
    window: int = 500
    encoders: list[EncoderSpec] = field(default_factory=list)
    sources: dict[str, Mapping[str, str]] = field(default_factory=dict)
    unverified: set[str] = field(default_factory=set)


def check_free(data: DataFolder, name: str) -> None:
    """Raise BundleError if a bundle's name is malformed or already in use."""
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
    """Yield a folder for the converted parts; install it as a bundle when the block succeeds.

    The caller must hold the data folder's lock. If the block fails, nothing is installed.

    Raises
    ------
    BundleError
        If the folder is not a valid bundle after the block; then nothing is installed.
    """
    with data.staging(parts.name) as folder:
        yield folder
        _write_card(folder, parts)
        save_bundle(_bundle(folder, parts))
        record_converted_here(data, folder, parts.sources.keys() - parts.unverified)


def _write_card(folder: Path, parts: Parts) -> None:
    names: dict[str, str] = {entry.view: f"{entry.view}: {entry.name}" for entry in parts.encoders}
    rows, works = [], set()
    for part, files in parts.sources.items():
        for file, digest in (files or {"unknown": ""}).items():
            work = origin_of(digest)
            if part in parts.unverified:
                work = "not verified: the bundle of the encoders is from another machine"
            elif work is not None:
                works.add(work)
            rows.append((names.get(part, part), file, digest, work or "unknown"))
    known = ", ".join(sorted(works))
    licences = f" The licences of these publications apply: {known}." if known else ""
    card = _CARD.format(
        name=parts.name,
        description=parts.description,
        licences=licences,
        sources="\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows),
    )
    (folder / "CARD.md").write_text(card, encoding="utf-8")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _bundle(folder: Path, parts: Parts) -> Bundle:
    classifies = parts.head is not None
    return Bundle(
        path=folder,
        name=parts.name,
        version="1",
        description=parts.description,
        encoders=tuple(parts.encoders),
        head=None if parts.head is None else folder / parts.head,
        window=parts.window,
        tiling="published",
        genetic_code=1,
        labels=("others", "virus") if classifies else (),
        # the published tool: viral if the virus score is the higher one
        thresholds={"viral": 0.5, "non_viral": 0.5} if classifies else {},
        provenance={"sources": parts.sources, "converted_by": f"virnucpro {__version__}"},
    )


def copy_encoders(bundle: Bundle, folder: Path) -> list[EncoderSpec]:
    """Verify the encoders of a bundle, and copy their files into `folder`; return the copies.

    Raises
    ------
    BundleError
        If a file is damaged.
    """
    for spec in bundle.encoders:
        for name in spec.files.values():
            verify_file(bundle.path, name, bundle.files[name])
            shutil.copyfile(bundle.path / name, folder / name)
    return [replace(spec, folder=folder) for spec in bundle.encoders]
