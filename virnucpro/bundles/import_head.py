"""A classifier from a file of one's own, with encoders that are installed or lie beside it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro.bundles.assemble import Parts, check_free, install
from virnucpro.bundles.bundle import Bundle, open_bundle
from virnucpro.bundles.checksums import digest_of
from virnucpro.bundles.claims import refuse_other_content
from virnucpro.bundles.convert import HEAD, convert_dnabert_s, convert_esm2, convert_head
from virnucpro.bundles.data_folder import DataFolder, require_text
from virnucpro.bundles.manifest import EncoderEntry, printable
from virnucpro.bundles.published import HEAD_PART, published_digest, published_names, recipe_of
from virnucpro.bundles.shared_files import InstalledEncoder, installed_encoders
from virnucpro.encoders.dnabert_s_config import FILES, DnabertSFiles, find_published, missing_files
from virnucpro.errors import BundleError, UsageError
from virnucpro.sequences.windows import WINDOWS, is_window

__all__ = ["OwnFiles", "import_classifier"]

_WINDOW: Final = re.compile(r"([0-9]{1,30})_model")


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Published encoders that lie in files: a DNABERT-S folder, a fair-esm checkpoint."""

    nucleotide: Path
    protein: Path


def import_classifier(
    classifier: Path,
    data: DataFolder,
    *,
    name: str | None = None,
    window: int | None = None,
    encoders: str | OwnFiles | None = None,
) -> Bundle:
    """Install a published classifier's file as a bundle. Nothing of it is run.

    Parameters
    ----------
    classifier
        A whole pickled ``MLPClassifier``, such as 500_model.pth.
    data
        Where to install.
    name
        What to call it; default: as it is published where it is a published one, else the file's
        name.
    window
        Bases of a window that it was trained on; default: as published, or as the file's name
        begins (500_model.pth).
    encoders
        An installed bundle that has them, or their files; default: an installed bundle of the
        published classifiers.

    Raises
    ------
    BundleError
        When the classifier is none, does not fit the encoders, or the name is taken, or is that of
        a published bundle of other files.
    UsageError
        When the window cannot be told or is none, or there are no encoders.
    """
    published = _published_name(classifier)
    chosen = name if name is not None else published or classifier.stem
    kind = "classifier of VirNucPro's layers" if published is None else "VirNucPro classifier"
    parts = Parts(
        chosen,
        f"a {kind}, imported from {printable(classifier.name)}",
        head=HEAD,
        window=_window(classifier, published, window),
    )
    with data.lock():
        check_free(data, chosen)
        found = _encoders(data, encoders)
        parts.sources = {HEAD_PART: _sources(classifier), **_sources_of_encoders(found)}
        refuse_other_content(
            chosen, parts.sources, parts.window, "Choose another name for it (--name)."
        )
        with install(data, parts) as folder:
            convert_head(classifier, folder)
            if isinstance(found, _OwnEncoders):
                parts.encoders += found.convert(folder)
            else:
                parts.encoders += [encoder.link_into(folder) for encoder in found]
                parts.word_of |= {
                    encoder.entry.view: encoder.folder.name
                    for encoder in found
                    if not encoder.made_here
                }
        return open_bundle(str(data.bundle(chosen)))


def _published_name(classifier: Path) -> str | None:
    """Recognise a published classifier by its content."""
    try:
        content = digest_of("git-blob", classifier)
    except OSError as error:
        raise BundleError(
            f"{classifier}: cannot be read ({error.strerror}). Check the classifier's path."
        ) from None
    for name in published_names():
        head = recipe_of(name).head
        if head is not None and head.checksum == content:
            return name
    return None


def _window(classifier: Path, published: str | None, wanted: int | None) -> int:
    if wanted is None and published is not None:
        return recipe_of(published).window
    match = _WINDOW.match(classifier.name)
    if wanted is None and match is not None:
        wanted = int(match[1])
    if wanted is None:
        raise UsageError(
            f"{classifier}: its name does not say which windows it was trained on: give --window."
        )
    if not is_window(wanted):
        raise UsageError(
            f"{classifier}: no window can have {wanted!r} bases: give --window, from {WINDOWS[0]} "
            f"to {WINDOWS[-1]:,}."
        )
    return wanted


def _encoders(
    data: DataFolder, encoders: str | OwnFiles | None
) -> "_OwnEncoders | list[InstalledEncoder]":
    if isinstance(encoders, OwnFiles):
        return _OwnEncoders.find(encoders)
    installed = data.installed()
    if encoders is not None:
        if encoders not in installed:
            raise UsageError(
                f"no bundle {encoders!r} is installed; there are "
                f"{', '.join(installed) or 'none'}. Choose one that has the encoders."
            )
        return installed_encoders(data, installed[encoders])
    for name in published_names():
        if name in installed and recipe_of(name).head is not None:
            return installed_encoders(data, installed[name])
    raise UsageError(
        "a classifier needs its encoders, and no bundle is installed that has the published ones: "
        "fetch one (virnucpro bundle fetch virnucpro-500), name one (--encoders), or give their "
        "files (--nucleotide and --protein)."
    )


@dataclass(frozen=True, slots=True)
class _OwnEncoders:
    """Encoders of one's own, found and named; each is called as its folder or its file is."""

    nucleotide: DnabertSFiles
    protein: Path
    names: tuple[str, str]

    @classmethod
    def find(cls, files: OwnFiles) -> "_OwnEncoders":
        for path in (files.nucleotide, files.protein):
            require_text(path)
        found = find_published(files.nucleotide)
        if found is None:
            lacking = ", ".join(missing_files(files.nucleotide))
            raise BundleError(
                f"{files.nucleotide}: is no DNABERT-S folder: it lacks {lacking}. Give one that "
                f"holds {FILES}."
            )
        names = printable(files.nucleotide.resolve().name), printable(files.protein.stem)
        if len(set(names)) == 1:
            raise BundleError(
                f"{files.nucleotide} and {files.protein}: both encoders would be called "
                f"{names[0]!r}. Rename the folder or the file."
            )
        return cls(found, files.protein, names)

    def sources(self) -> dict[str, Mapping[str, str]]:
        own = self.nucleotide
        return {
            "nucleotide": _sources(own.settings, own.tokenizer, own.weights),
            "protein": _sources(self.protein),
        }

    def convert(self, folder: Path) -> list[EncoderEntry]:
        nucleotide, protein = self.names
        return [
            convert_dnabert_s(nucleotide, self.nucleotide, folder),
            convert_esm2(protein, self.protein, folder),
        ]


def _sources_of_encoders(
    found: _OwnEncoders | list[InstalledEncoder],
) -> Mapping[str, Mapping[str, str]]:
    if isinstance(found, _OwnEncoders):
        return found.sources()
    return {encoder.entry.view: encoder.sources for encoder in found}


def _sources(*paths: Path) -> dict[str, str]:
    try:
        return {printable(path.name): published_digest(path) for path in paths}
    except OSError as error:
        raise BundleError(
            f"{error.filename}: cannot be read ({error.strerror}). Check its path."
        ) from None
