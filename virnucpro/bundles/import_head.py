"""Import a classifier from a file, with encoders that are installed or given as files."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from virnucpro.bundles.bundle import open_bundle
from virnucpro.bundles.convert import (
    Isolate,
    call_directly,
    convert_encoder,
    convert_head,
    convert_isolated,
)
from virnucpro.bundles.data_folder import DataFolder, require_utf8
from virnucpro.bundles.install import Parts, check_free, copy_encoders, install
from virnucpro.bundles.manifest import Bundle, read_bundle
from virnucpro.bundles.provenance import (
    claimed_sources,
    parts_converted_here,
    refuse_other_content,
)
from virnucpro.bundles.published import (
    HEAD_PART,
    published_digest,
    published_name,
    published_names,
    recipe_of,
)
from virnucpro.console import printable
from virnucpro.encoders.dnabert_s.config import FILES, find_published, missing_files
from virnucpro.errors import BundleError, UsageError
from virnucpro.extras import require_extra
from virnucpro.sequences.windows import WINDOWS, is_window

_WINDOW: Final = re.compile(r"([0-9]{1,30})_model")


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Paths of the user's own encoder files, in the formats of the encoders' publishers.

    Attributes
    ----------
    nucleotide
        A DNABERT-S folder.
    protein
        A fair-esm checkpoint of ESM-2.
    """

    nucleotide: Path
    protein: Path


def import_classifier(
    classifier: Path,
    data: DataFolder,
    *,
    name: str | None = None,
    window: int | None = None,
    encoders: str | OwnFiles | None = None,
    isolate: Isolate = call_directly,
) -> Bundle:
    """Install a classifier file in VirNucPro's format as a bundle; return the bundle.

    Code in the file is not executed.

    Parameters
    ----------
    classifier
        A pickled ``MLPClassifier`` module, such as 500_model.pth.
    data
        Data folder to install into.
    name
        Name of the bundle; default: for a published classifier its published name, otherwise the
        file's name without suffix.
    window
        Window length of the training data in bases; default: for a published classifier its
        published length, otherwise the number at the start of the file's name (500_model.pth).
    encoders
        Name of an installed bundle with the encoders, or the encoders' files; default: the first
        installed bundle that has a published name and a classifier.
    isolate
        Calls the functions that read the files; see `virnucpro.bundles.convert.Isolate`.

    Raises
    ------
    BundleError
        If the file is not a classifier or does not fit the encoders; if the bundle's name is
        already in use; if a published bundle with other files has this name.
    UsageError
        If the window is unknown or out of range, no encoders are found, or torch is not installed.
    """
    require_extra("models", "bundle import")
    require_utf8(classifier)
    sources = _sources(classifier)
    published = published_name(HEAD_PART, sources.values())
    chosen = name if name is not None else published or classifier.stem
    kind = "classifier of VirNucPro's layers" if published is None else "VirNucPro classifier"
    parts = Parts(
        chosen,
        f"a {kind}, imported from {printable(classifier.name)}",
        window=_window(classifier, published, window),
        sources={HEAD_PART: sources},
    )
    with data.lock():
        check_free(data, chosen)
        own: list[_OwnEncoder] = []
        installed: Bundle | None = None
        if isinstance(encoders, OwnFiles):
            own = _own_encoders(encoders)
            parts.sources |= {encoder.view: _sources(*encoder.paths) for encoder in own}
        else:
            installed = _installed(data, encoders)
            known = claimed_sources(installed)
            views = [spec.view for spec in installed.encoders]
            parts.sources |= {view: known[view] for view in views}
            parts.unverified |= set(views) - parts_converted_here(data, installed.path)
        refuse_other_content(
            chosen, parts.sources, parts.window, "Choose another name for the bundle (--name)."
        )
        with install(data, parts) as folder:
            parts.head = convert_isolated(isolate, classifier, convert_head, classifier, folder)
            parts.encoders += [
                convert_encoder(isolate, encoder.architecture, encoder.name, encoder.paths, folder)
                for encoder in own
            ]
            if installed is not None:
                parts.encoders += copy_encoders(installed, folder)
        return open_bundle(str(data.bundle(chosen)))


def _window(classifier: Path, published: str | None, wanted: int | None) -> int:
    if wanted is None and published is not None:
        return recipe_of(published).window
    match = _WINDOW.match(classifier.name)
    if wanted is None and match is not None:
        wanted = int(match[1])
    if wanted is None:
        raise UsageError(
            f"{classifier}: the file's name does not start with a window length: give --window."
        )
    if not is_window(wanted):
        raise UsageError(
            f"{classifier}: a window cannot have {wanted!r} bases: give --window, from "
            f"{WINDOWS[0]} to {WINDOWS[-1]:,}."
        )
    return wanted


def _installed(data: DataFolder, bundle: str | None) -> Bundle:
    """Return the installed bundle named `bundle`, whose encoders are used.

    If `bundle` is None, use the first installed bundle that has a published name and a classifier,
    in the order of `published_names`.
    """
    installed = data.installed()
    if bundle is not None:
        if bundle not in installed:
            raise UsageError(
                f"bundle {bundle!r} is not installed. Give the name of an installed bundle that "
                f"has the encoders. Installed bundles: {', '.join(installed) or 'none'}."
            )
        return read_bundle(installed[bundle])
    for name in published_names():
        if name in installed and recipe_of(name).head is not None:
            return read_bundle(installed[name])
    raise UsageError(
        "a classifier needs its encoders, but no bundle with a published classifier is installed. "
        "Fetch one (virnucpro bundle fetch virnucpro-500), choose an installed bundle with the "
        "encoders (--encoders), or give the encoder files (--nucleotide and --protein)."
    )


class _OwnEncoder(NamedTuple):
    """An encoder that the user gives as files, instead of an encoder of an installed bundle."""

    view: str
    architecture: str
    name: str
    paths: tuple[Path, ...]


def _own_encoders(files: OwnFiles) -> list[_OwnEncoder]:
    """Return the user's two encoders, named after the DNABERT-S folder and the ESM-2 file."""
    for path in (files.nucleotide, files.protein):
        require_utf8(path)
    found = find_published(files.nucleotide)
    if found is None:
        missing = ", ".join(missing_files(files.nucleotide))
        raise BundleError(
            f"{files.nucleotide} is not a DNABERT-S folder: {missing} is missing. "
            f"Give a folder with {FILES}."
        )
    names = printable(files.nucleotide.resolve().name), printable(files.protein.stem)
    if len(set(names)) == 1:
        raise BundleError(
            f"{files.nucleotide} and {files.protein}: both encoders would have the name "
            f"{names[0]!r}. Rename the folder or the file."
        )
    paths = (found.settings, found.tokenizer, found.weights)
    return [
        _OwnEncoder("nucleotide", "dnabert_s", names[0], paths),
        _OwnEncoder("protein", "esm2", names[1], (files.protein,)),
    ]


def _sources(*paths: Path) -> dict[str, str]:
    try:
        return {printable(path.name): published_digest(path) for path in paths}
    except OSError as error:
        raise BundleError(
            f"{error.filename}: cannot be read ({error.strerror}). Check its path."
        ) from None
