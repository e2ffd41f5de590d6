"""A bundle: encoders, head, window and thresholds of a prediction, in one folder."""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Final, cast

from virnucpro.bundles.checksums import file_digest, verify_file
from virnucpro.bundles.data_folder import data_folder
from virnucpro.bundles.manifest import MANIFEST, EncoderEntry, Manifest, read_manifest
from virnucpro.bundles.permissions import advice_on_reading, writable_by_others
from virnucpro.bundles.provenance import parts_converted_here
from virnucpro.bundles.published import published_names
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.head_tensors import CLASSES, head_sizes
from virnucpro.console import printable
from virnucpro.durable import write_file
from virnucpro.encoders.base import EncoderSpec, View
from virnucpro.encoders.composition.config import CompositionConfig
from virnucpro.encoders.registry import config_of
from virnucpro.encoders.weights.shapes import read_shapes
from virnucpro.errors import BundleError, UsageError
from virnucpro.sequences.windows import Tiling

__all__ = [
    "Bundle",
    "bundle_names",
    "describe_bundle",
    "embedded_names",
    "encoder_contents",
    "find_bundle",
    "list_bundles",
    "open_bundle",
    "write_manifest",
]

_log: Final = logging.getLogger("virnucpro.bundles")


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle. Its files are verified by `open_bundle`, but not by `list_bundles`.

    Attributes
    ----------
    path
        Folder of the bundle.
    name, version, description
        Text for users.
    encoders
        The encoders, in the order in which their vectors are joined.
    head
        Safetensors file of the head (the classifier's tensors); None for a bundle of encoders only.
    window, tiling, genetic_code
        Defaults of a run: window length in bases, tiling, NCBI number of the genetic code.
    labels
        Names of the head's outputs: others, virus.
    thresholds
        Score limits for the calls of records: ``viral`` and ``non_viral``; see `Manifest`.
    items, calibration, classes
        Kind of items, calibration as JSON, and names of more than two classes; see `Manifest`.
    metrics, provenance
        Measured accuracy, and origin; see `Manifest`.
    fingerprint
        SHA-256 over the content that affects vectors, scores or calls.
    """

    path: Path
    name: str
    version: str
    description: str
    encoders: tuple[EncoderSpec, ...]
    head: Path | None
    window: int
    tiling: Tiling
    genetic_code: int
    labels: tuple[str, ...]
    items: str
    thresholds: Mapping[str, float]
    calibration: Mapping[str, object] | None
    classes: tuple[str, ...]
    metrics: Mapping[str, object]
    provenance: Mapping[str, object]
    fingerprint: str

    @property
    def verified_precisions(self) -> tuple[str, ...]:
        """Precisions whose results on this bundle's weights were compared with fp32 results."""
        listed = self.metrics.get("verified_precisions")
        return tuple(map(str, listed)) if isinstance(listed, list) else ()


def open_bundle(name_or_path: str) -> Bundle:
    """Open a bundle and verify each of its files.

    The logger ``virnucpro.bundles`` warns if other users can change the bundle's files.

    Parameters
    ----------
    name_or_path
        Name of an embedded bundle (part of the Python package) or of an installed bundle, or the
        folder of a bundle. A name has priority over a folder: write ``./mini`` for the folder.

    Raises
    ------
    UsageError
        If there is no such bundle.
    BundleError
        If the manifest is malformed, has an unsupported schema version or names an unknown
        architecture, view or tiling; if an encoder's settings are invalid or do not match its
        weights; if a file is missing or damaged; if the head does not fit the encoders.
    """
    folder = find_bundle(name_or_path)
    manifest = read_manifest(folder)
    for name, wanted in manifest.files.items():
        verify_file(folder, name, wanted)
    for entry in manifest.encoders:
        spec = _spec(folder, entry)
        config = config_of(spec)
        if not isinstance(config, CompositionConfig):  # which has no weights
            weights = spec.file("weights")
            config.require_weights(read_shapes(weights), weights)
    if manifest.head is not None:
        dim = sum(encoder.dim for encoder in manifest.encoders)
        _check_head(folder / manifest.head, dim, len(manifest.classes) or CLASSES)
    warning = writable_by_others(folder, (MANIFEST, *manifest.files))
    if warning is not None and folder not in _embedded().values():
        _log.warning("warning: bundle %s: %s", manifest.name, warning)
    return _bundle(folder, manifest)


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
    if not name_or_path:  # Path("") is the current folder
        raise UsageError("the name of a bundle is empty: give a name, or a bundle's folder")
    known = _known()
    if name_or_path in known:
        return known[name_or_path]
    folder = Path(name_or_path).absolute()
    for candidate in (data_folder().bundle(Path(name_or_path).name), folder):
        try:
            (candidate / MANIFEST).stat()
        except PermissionError as error:
            advice = advice_on_reading(candidate, error, "")
            raise BundleError(f"{candidate}: cannot be read ({error.strerror}). {advice}") from None
        except OSError:
            continue
    if os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises if the name is too long
        return folder
    published = name_or_path in published_names()
    fetch = f" To download it, run: virnucpro bundle fetch {name_or_path}." if published else ""
    raise UsageError(
        f"{name_or_path}: there is no such bundle.{fetch} Give the name of an installed bundle "
        f"({', '.join(sorted(known)) or 'none'}) or the folder of a bundle."
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
        return _bundle(folder, read_manifest(folder))
    except BundleError as error:
        return error


def write_manifest(folder: Path, manifest: Manifest) -> Bundle:
    """Write bundle.json with the digests of all files in `folder`; return the opened bundle.

    Parameters
    ----------
    folder
        Contains all files except the manifest.
    manifest
        The content to write, except `files`, which is replaced by the files of the folder.

    Raises
    ------
    BundleError
        If the result is not a valid bundle.
    """
    members = sorted(p.name for p in folder.iterdir() if p.is_file() and p.name != MANIFEST)
    whole = replace(manifest, files={member: file_digest(folder / member) for member in members})
    with write_file(folder / MANIFEST) as stream:
        stream.write(json.dumps(asdict(whole), indent=2, ensure_ascii=False).encode() + b"\n")
    return open_bundle(str(folder.absolute()))


def describe_bundle(bundle: Bundle) -> str:
    """Return a description of a bundle for users: a few lines, then its CARD.md, if any."""
    encoders = [
        f"  {spec.view}: {spec.name} ({spec.architecture}, vectors of {spec.dim} numbers)"
        for spec in bundle.encoders
    ]
    lines = [
        f"{bundle.name} {bundle.version}: {bundle.description}",
        f"folder {bundle.path}",
        f"fingerprint {bundle.fingerprint}",
        *_classification(bundle),
        f"precisions compared with fp32: {', '.join(bundle.verified_precisions) or 'none'}",
        "encoders, in the order of their parts in the joined vector:",
        *encoders,
    ]
    if bundle.path not in _embedded().values() and not parts_converted_here(
        data_folder(), bundle.path
    ):
        lines.append("description and accuracy are those of its author, and are not verified")
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
            f"{preset.non_viral:.3f} (prevalence {calibration.prevalence:g})"
        )
    return lines


def _known() -> dict[str, Path]:
    """Return the folders of embedded and installed bundles by name; embedded bundles come first."""
    return data_folder().installed() | _embedded()


def _embedded() -> dict[str, Path]:
    """Return the folder of each bundle in the package, with the bundle's name as key."""
    root = Path(str(files(__package__)))
    return {path.parent.name: path.parent for path in root.glob(f"*/{MANIFEST}")}


def _bundle(folder: Path, manifest: Manifest) -> Bundle:
    return Bundle(
        path=folder,
        name=manifest.name,
        version=manifest.version,
        description=manifest.description,
        encoders=tuple(_spec(folder, entry) for entry in manifest.encoders),
        head=None if manifest.head is None else folder / manifest.head,
        window=manifest.window,
        tiling=cast("Tiling", manifest.tiling),
        genetic_code=manifest.genetic_code,
        labels=tuple(manifest.labels),
        items=manifest.items,
        thresholds=manifest.thresholds,
        calibration=manifest.calibration,
        classes=tuple(manifest.classes),
        metrics=manifest.metrics,
        provenance=manifest.provenance,
        fingerprint=_fingerprint(manifest),
    )


def _spec(folder: Path, entry: EncoderEntry) -> EncoderSpec:
    view = cast("View", entry.view)
    return EncoderSpec(
        entry.name, entry.architecture, view, entry.dim, folder, entry.files, entry.config
    )


def encoder_contents(manifest: Manifest) -> list[dict[str, object]]:
    """Return for each encoder what its vectors depend on: settings, and digests of its files."""
    return [
        {
            "architecture": entry.architecture,
            "view": entry.view,
            "dim": entry.dim,
            "config": entry.config,
            "files": {role: manifest.files[name].sha256 for role, name in entry.files.items()},
        }
        for entry in manifest.encoders
    ]


def _fingerprint(manifest: Manifest) -> str:
    numbers: dict[str, object] = {
        "encoders": encoder_contents(manifest),
        "head": None if manifest.head is None else manifest.files[manifest.head].sha256,
        "window": manifest.window,
        "tiling": manifest.tiling,
        "genetic_code": manifest.genetic_code,
        "labels": manifest.labels,
        "thresholds": manifest.thresholds,
    }
    if manifest.items != "open_frames":
        numbers["items"] = manifest.items
    if manifest.calibration is not None:
        numbers["calibration"] = manifest.calibration
    canonical = json.dumps(numbers, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _check_head(path: Path, dim: int, classes: int) -> None:
    """Raise BundleError if the head has not `dim` inputs and `classes` outputs.

    Only the header of the file is read.
    """
    wanted, found = head_sizes(read_shapes(path), path)
    if found != classes:
        raise BundleError(
            f"{path}: the classifier has {found} classes, but the manifest of the bundle names "
            f"{classes}. Get the bundle again."
        )
    if wanted != dim:
        raise BundleError(
            f"{path}: the classifier needs vectors of {wanted} numbers, but the encoders of the "
            f"bundle give vectors of {dim}. Classifier and encoders are from different bundles. "
            "Get the bundle again."
        )
