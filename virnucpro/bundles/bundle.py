"""Find, open, verify, save and describe bundles."""

import logging
import os
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from virnucpro.bundles.checksums import file_digest, unreadable, verify_file, writable_by_others
from virnucpro.bundles.data_folder import data_folder
from virnucpro.bundles.manifest import MANIFEST, Bundle, read_bundle
from virnucpro.bundles.published import published_names
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.head import CLASSES, VIRAL, head_sizes
from virnucpro.console import printable
from virnucpro.durable import write_bytes
from virnucpro.encoders.composition.config import CompositionConfig
from virnucpro.encoders.registry import config_of
from virnucpro.encoders.weights.shapes import read_shapes, read_tensors
from virnucpro.errors import BundleError, UsageError

_log: Final = logging.getLogger("virnucpro.bundles")

_TRAINED: Final = "bundle"
"""Folder of the bundle in the output folder of ``virnucpro train``."""


def open_bundle(name_or_path: str) -> Bundle:
    """Open a bundle and verify each of its files.

    The logger ``virnucpro.bundles`` warns if other users can change the bundle's files.

    Parameters
    ----------
    name_or_path
        Name of an embedded bundle (part of the Python package) or of an installed bundle, the
        folder of a bundle, or the output folder of ``virnucpro train``. A name has priority over a
        folder: write ``./mini`` for the folder.

    Raises
    ------
    UsageError
        If there is no such bundle.
    BundleError
        If the manifest is malformed, has an unsupported schema version or names an unknown
        architecture, view or tiling; if an encoder's settings are invalid or do not match its
        weights; if a file is missing or damaged; if the head does not fit the encoders.
    """
    bundle = read_bundle(find_bundle(name_or_path))
    for name, wanted in bundle.files.items():
        verify_file(bundle.path, name, wanted)
    pieces = bundle.record
    for spec in (*bundle.encoders, *(pieces.encoders if pieces else ())):
        config = config_of(spec)
        if not isinstance(config, CompositionConfig):  # which has no weights
            weights = spec.file("weights")  # the first of several files, if the model is large
            files = [spec.file(role) for role in spec.files if role.startswith("weights")]
            shapes = {name: shape for path in files for name, shape in read_shapes(path).items()}
            config.require_weights(shapes, weights)
    if bundle.head is not None:
        dim = sum(encoder.dim for encoder in bundle.encoders)
        classes = len(bundle.classes) or CLASSES
        _check_head(bundle.head, range(dim, dim + 1), classes)
        if pieces is not None:
            _check_head(pieces.head, range(1, pieces.dim + 1), classes)
    warning = writable_by_others(bundle.path, (MANIFEST, *bundle.files))
    if warning is not None and bundle.path not in _embedded().values():
        _log.warning("warning: bundle %s: %s", bundle.name, warning)
    return bundle


def viral_classes(bundle: Bundle) -> tuple[str, ...]:
    """Return the names of the viral classes; empty for a classifier of two classes or none.

    Raises
    ------
    BundleError
        If the file of the classifier cannot be read.
    """
    if bundle.head is None or not bundle.classes:
        return ()
    viral = read_tensors(bundle.head, (VIRAL,))[VIRAL]
    return tuple(name for name, is_viral in zip(bundle.classes, viral, strict=True) if is_viral)


def find_bundle(name_or_path: str) -> Path:
    """Return the folder of a bundle without reading a file of the bundle.

    The argument is a name or a folder, as for `open_bundle`.

    Raises
    ------
    UsageError
        If there is no such bundle.
    BundleError
        If a parent folder cannot be read, so that it is unknown whether the bundle exists.
    """
    if not name_or_path or "\0" in name_or_path:  # Path("") is the current folder
        raise UsageError(
            "the name of a bundle is empty or has a NUL: give a name, or a bundle's folder"
        )
    known = _known()
    if name_or_path in known:
        return known[name_or_path]
    folder = Path(name_or_path).absolute()
    places = (folder, folder / _TRAINED)
    data = data_folder()
    hidden = data.hidden
    installed = [] if hidden else [data.bundle(Path(name_or_path).name)]
    for candidate in (*installed, *places):
        try:
            (candidate / MANIFEST).stat()
        except PermissionError as error:
            raise unreadable(candidate, candidate, error, "") from None
        except OSError:
            continue
        if candidate in places:
            return candidate
    if os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises if the name is too long
        return folder
    published = name_or_path in published_names()
    fetch = f" To download it, run: virnucpro bundle fetch {name_or_path}." if published else ""
    unread = f" {data.bundles} cannot be read; VIRNUCPRO_DATA can name another folder." * hidden
    raise UsageError(
        f"{name_or_path}: there is no such bundle.{fetch} Give the name of an installed bundle "
        f"({', '.join(sorted(known)) or 'none'}) or the folder of a bundle.{unread}"
    )


def embedded_names() -> tuple[str, ...]:
    """Return the names of the embedded bundles, which are part of the Python package.

    Installed bundles cannot use these names.
    """
    return tuple(sorted(_embedded()))


def bundle_names() -> tuple[str, ...]:
    """Return the names of embedded and installed bundles without reading a file."""
    return tuple(sorted(_known()))


def list_bundles() -> dict[str, Bundle | BundleError]:
    """Read the manifests of embedded and installed bundles; other files are not verified.

    Returns
    -------
    dict
        The bundles by name, sorted. If a manifest cannot be read, the value is the error.
    """
    return {name: _listed(folder) for name, folder in sorted(_known().items())}


def _listed(folder: Path) -> Bundle | BundleError:
    try:
        return read_bundle(folder)
    except BundleError as error:
        return error


def save_bundle(bundle: Bundle) -> Bundle:
    """Write bundle.json with the digests of all files in the folder; return the opened bundle.

    Parameters
    ----------
    bundle
        The content to write, except `files`, which is replaced by the files of the folder.

    Raises
    ------
    BundleError
        If the result is not a valid bundle.
    """
    folder = bundle.path
    members = sorted(p.name for p in folder.iterdir() if p.is_file() and p.name != MANIFEST)
    whole = replace(bundle, files={member: file_digest(folder / member) for member in members})
    write_bytes(folder / MANIFEST, whole.as_json())
    return open_bundle(str(folder.absolute()))


def describe_bundle(bundle: Bundle) -> str:
    """Return a description of a bundle for users: a few lines, then its CARD.md, if any."""
    encoders = [
        f"  {spec.view}: {spec.name} ({spec.architecture}, vectors of {spec.dim} numbers)"
        for spec in bundle.encoders
    ]
    if bundle.record is not None:
        encoders += [
            f"  records: {spec.name} ({spec.architecture}, pieces of up to {bundle.piece:,} bases)"
            for spec in bundle.record.encoders
        ]
    lines = [
        f"{bundle.name} {bundle.version}: {bundle.description}",
        f"folder {bundle.path}",
        f"fingerprint {bundle.fingerprint}",
        *_classification(bundle),
        "encoders, in the order of their parts in the joined vector:",
        *encoders,
    ]
    card = bundle.path / "CARD.md"
    if card.is_file():
        text = card.read_text(encoding="utf-8", errors="replace")
        lines += ["", *map(printable, text.splitlines())]
    return "\n".join(lines)


def _classification(bundle: Bundle) -> list[str]:
    if bundle.head is None:
        return ["encoders only, no classifier"]
    viral, non_viral = (bundle.thresholds[name] for name in ("viral", "non_viral"))
    lines = [
        f"window {bundle.window} bases, tiling {bundle.tiling}, genetic code {bundle.genetic_code}",
        f"items {bundle.items}",
    ]
    if bundle.calibration is None:
        return [*lines, f"viral from a score of {viral:.3f}, non-viral below {non_viral:.3f}"]
    calibration = read_calibration(bundle.calibration, bundle.path / MANIFEST)
    for name, preset in calibration.presets.items():
        lines.append(
            f"preset {name}: viral from a probability of {preset.viral:.3f}, non-viral below "
            f"{preset.non_viral:.3f}"
        )
    return [*lines, "probabilities are those at the prevalence of the input (--prevalence)"]


def _known() -> dict[str, Path]:
    """Return the folders of embedded and installed bundles by name; embedded bundles come first."""
    return data_folder().installed() | _embedded()


def _embedded() -> dict[str, Path]:
    """Return the folder of each bundle in the package, with the bundle's name as key."""
    root = Path(str(files(__package__)))
    return {path.parent.name: path.parent for path in root.glob(f"*/{MANIFEST}")}


def _check_head(path: Path, dims: range, classes: int) -> None:
    """Raise BundleError if the head has another number of inputs than `dims`, or of `classes`.

    Only the header of the file is read.
    """
    wanted, found = head_sizes(read_shapes(path), path)
    if found != classes:
        raise BundleError(
            f"{path}: the classifier has {found} classes, but the manifest of the bundle names "
            f"{classes}. Get the bundle again."
        )
    if wanted not in dims:
        raise BundleError(
            f"{path}: the classifier needs vectors of {wanted} numbers, but its encoders give "
            f"vectors of {dims[-1]}. Classifier and encoders are from different bundles. "
            "Get the bundle again."
        )
