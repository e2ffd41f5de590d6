"""A classifier from a file of one's own, with encoders that are installed or lie beside it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro.bundles.assemble import Parts, check_free, install
from virnucpro.bundles.bundle import Bundle, open_bundle
from virnucpro.bundles.checksums import digest_of
from virnucpro.bundles.convert import HEAD, convert_dnabert_s, convert_esm2, convert_head
from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.published import published_digest, published_names, recipe_of
from virnucpro.bundles.shared_files import InstalledEncoder, installed_encoders
from virnucpro.encoders.dnabert_s_config import FILES, find_published
from virnucpro.errors import BundleError, UsageError

__all__ = ["OwnFiles", "import_classifier"]

_WINDOW: Final = re.compile(r"(\d+)_model")


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
        When the classifier is none, does not fit the encoders, or the name is taken.
    UsageError
        When the window cannot be told, or there are no encoders.
    """
    published = _published_name(classifier)
    chosen = name or published or classifier.stem
    kind = "classifier of VirNucPro's layers" if published is None else "VirNucPro classifier"
    parts = Parts(
        chosen,
        f"a {kind}, imported from {classifier.name}",
        head=HEAD,
        window=window or _window_of(classifier, published),
    )
    with data.lock():
        check_free(data, chosen)
        found = _encoders(data, encoders)
        with install(data, parts) as folder:
            parts.sources["head"] = _sources(classifier)
            convert_head(classifier, folder)
            if isinstance(found, OwnFiles):
                _convert_own(found, parts, folder)
            else:
                for encoder in found:
                    parts.encoders.append(encoder.link_into(folder))
                    parts.sources[encoder.entry.name] = encoder.sources
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


def _window_of(classifier: Path, published: str | None) -> int:
    if published is not None:
        return recipe_of(published).window
    match = _WINDOW.match(classifier.name)
    if not match or not int(match[1]):
        raise UsageError(
            f"{classifier}: its name does not say which windows it was trained on: give --window."
        )
    return int(match[1])


def _encoders(
    data: DataFolder, encoders: str | OwnFiles | None
) -> OwnFiles | list[InstalledEncoder]:
    if isinstance(encoders, OwnFiles):
        return encoders
    installed = data.installed()
    if encoders is not None:
        if encoders not in installed:
            raise UsageError(
                f"no bundle {encoders!r} is installed; there are "
                f"{', '.join(installed) or 'none'}. Choose one that has the encoders."
            )
        return installed_encoders(installed[encoders])
    for name in published_names():
        if name in installed and recipe_of(name).head is not None:
            return installed_encoders(installed[name])
    raise UsageError(
        "a classifier needs its encoders, and no bundle is installed that has the published ones: "
        "fetch one (virnucpro bundle fetch virnucpro-500), name one (--encoders), or give their "
        "files (--nucleotide and --protein)."
    )


def _convert_own(files: OwnFiles, parts: Parts, folder: Path) -> None:
    found = find_published(files.nucleotide)
    if found is None:
        raise BundleError(
            f"{files.nucleotide}: is no DNABERT-S folder. Give one that holds {FILES}."
        )
    nucleotide = convert_dnabert_s(files.nucleotide.resolve().name, found, folder)
    protein = convert_esm2(files.protein.stem, files.protein, folder)
    parts.encoders += [nucleotide, protein]
    parts.sources[nucleotide.name] = _sources(found.settings, found.tokenizer, found.weights)
    parts.sources[protein.name] = _sources(files.protein)


def _sources(*paths: Path) -> dict[str, str]:
    return {path.name: published_digest(path) for path in paths}
