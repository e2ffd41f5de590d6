"""A bundle: encoders, head, window and thresholds, all that a prediction needs, in one folder."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import cast

from virnucpro.bundles.data_folder import data_folder
from virnucpro.bundles.made_here import parts_made_here
from virnucpro.bundles.manifest import MANIFEST, EncoderEntry, Manifest, printable, read_manifest
from virnucpro.bundles.permissions import who_opens
from virnucpro.bundles.published import published_names
from virnucpro.bundles.verify import digest, verify_file
from virnucpro.classify.head_tensors import layer_sizes
from virnucpro.durable import write_file
from virnucpro.encoders.base import EncoderSpec, View
from virnucpro.encoders.registry import config_of
from virnucpro.encoders.safetensors_header import read_shapes
from virnucpro.errors import BundleError, UsageError
from virnucpro.sequences.windows import Tiling

__all__ = [
    "Bundle",
    "bundle_names",
    "describe_bundle",
    "embedded_names",
    "find_bundle",
    "list_bundles",
    "open_bundle",
    "write_manifest",
]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle.

    Attributes
    ----------
    path
        Its folder.
    name, version, description
        For people.
    encoders
        In the order in which their vectors are joined.
    head
        The head's tensors, safetensors; None where the bundle is encoders alone.
    window, tiling, genetic_code
        How records are cut and translated unless a run asks for something else; bases, name,
        NCBI's number.
    labels
        Of the head's outputs: others, virus.
    thresholds
        ``viral`` and ``non_viral``, on a record's score.
    metrics, provenance
        How good it is, and where it comes from.
    fingerprint
        SHA-256 over everything in it that changes a number or a call, and over nothing else.
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
    thresholds: Mapping[str, float]
    metrics: Mapping[str, object]
    provenance: Mapping[str, object]
    fingerprint: str


def open_bundle(name_or_path: str) -> Bundle:
    """Open a bundle and verify every file of it.

    Parameters
    ----------
    name_or_path
        The name of an embedded or an installed bundle, or a bundle's folder. A name goes before a
        folder of the same name: write ``./mini`` for the folder.

    Raises
    ------
    UsageError
        When there is no such bundle.
    BundleError
        When its manifest is malformed, of a newer schema or asks for what this version lacks, when
        an encoder's settings make no sense or are not those of its weights, a file is missing or
        damaged, or the head does not fit the encoders.
    """
    folder = find_bundle(name_or_path)
    manifest = read_manifest(folder)
    for name, wanted in manifest.files.items():
        verify_file(folder, name, wanted)
    for entry in manifest.encoders:
        spec = _spec(folder, entry)
        weights = spec.file("weights")
        config_of(spec).require_weights(read_shapes(weights), weights)
    if manifest.head is not None:
        _check_head(folder / manifest.head, sum(encoder.dim for encoder in manifest.encoders))
    return _bundle(folder, manifest)


def find_bundle(name_or_path: str) -> Path:
    """Find a bundle's folder, as `open_bundle` takes it; nothing in it is read.

    Raises
    ------
    UsageError
        When there is no such bundle.
    BundleError
        When it may be there, behind a folder that is closed to this process.
    """
    if not name_or_path:  # as a path it would be the folder of now
        raise UsageError("the name of a bundle is empty: give one, or a bundle's folder")
    known = _known()
    folder = known.get(name_or_path, Path(name_or_path).absolute())
    if os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises where a folder is closed
        return folder
    installed = data_folder().bundle(Path(name_or_path).name)
    for place in (installed, folder):
        if (advice := who_opens(place / MANIFEST, whole=place)) is not None:
            raise BundleError(f"{name_or_path}: cannot be looked for. {advice}")
    fetch = f" Get it by: virnucpro bundle fetch {name_or_path}." * (
        name_or_path in published_names()
    )
    raise UsageError(
        f"{name_or_path}: there is no such bundle.{fetch} Give one that is installed "
        f"({', '.join(sorted(known)) or 'none'}) or a bundle's folder."
    )


def embedded_names() -> tuple[str, ...]:
    """List the bundles that come with the package; no other can be installed under their names."""
    return tuple(sorted(_embedded()))


def bundle_names() -> tuple[str, ...]:
    """List the names of what is embedded and installed; no file is read for it."""
    return tuple(sorted(_known()))


def list_bundles() -> dict[str, Bundle | BundleError]:
    """Read what is embedded and installed; files of gigabytes are not verified for it.

    Returns
    -------
    dict
        By the name that opens it, in order; what is wrong where a manifest cannot be read.
    """
    return {name: _listed(folder) for name, folder in sorted(_known().items())}


def _listed(folder: Path) -> Bundle | BundleError:
    try:
        return _bundle(folder, read_manifest(folder))
    except BundleError as error:
        return error


def write_manifest(folder: Path, manifest: Manifest) -> Bundle:
    """Make a bundle of a folder: digest every file in it, write its bundle.json, open it.

    Parameters
    ----------
    folder
        Holds everything but the manifest.
    manifest
        All that is to be said of the bundle; its `files` are replaced by what is there.

    Raises
    ------
    BundleError
        When what was written is no valid bundle.
    """
    members = sorted(p.name for p in folder.iterdir() if p.is_file() and p.name != MANIFEST)
    whole = replace(manifest, files={member: digest(folder / member) for member in members})
    with write_file(folder / MANIFEST) as stream:
        stream.write(json.dumps(asdict(whole), indent=2, ensure_ascii=False).encode() + b"\n")
    return open_bundle(str(folder.absolute()))


def describe_bundle(bundle: Bundle) -> str:
    """Say what is in a bundle, a few lines for people, its card behind them where it has one."""
    encoders = [
        f"  {spec.view}: {spec.name} ({spec.architecture}, {spec.dim} numbers)"
        for spec in bundle.encoders
    ]
    lines = [
        f"{bundle.name} {bundle.version}: {bundle.description}",
        f"folder {bundle.path}",
        f"fingerprint {bundle.fingerprint}",
        *_classification(bundle),
        "encoders, in the order of the joined vector:",
        *encoders,
    ]
    if bundle.path not in _embedded().values() and not parts_made_here(data_folder(), bundle.path):
        lines.append("not made here: what it says of itself is the word of whoever made it")
    card = bundle.path / "CARD.md"
    if card.is_file():
        text = card.read_text(encoding="utf-8", errors="replace")
        lines += ["", *map(printable, text.splitlines())]
    return "\n".join(lines)


def _classification(bundle: Bundle) -> list[str]:
    if bundle.head is None:
        return ["encoders alone: no classifier"]
    viral, non_viral = (bundle.thresholds[name] for name in ("viral", "non_viral"))
    return [
        f"window {bundle.window} bases, tiling {bundle.tiling}, genetic code {bundle.genetic_code}",
        f"viral from a score of {viral:.3f}, non-viral below {non_viral:.3f}",
    ]


def _known() -> dict[str, Path]:
    """Find every bundle that has a name; what is embedded goes first."""
    return data_folder().installed() | _embedded()


def _embedded() -> dict[str, Path]:
    """Find the bundles in the package; it is always installed as plain files, never zipped."""
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
        thresholds=manifest.thresholds,
        metrics=manifest.metrics,
        provenance=manifest.provenance,
        fingerprint=_fingerprint(manifest),
    )


def _spec(folder: Path, entry: EncoderEntry) -> EncoderSpec:
    view = cast("View", entry.view)
    return EncoderSpec(
        entry.name, entry.architecture, view, entry.dim, folder, entry.files, entry.config
    )


def _fingerprint(manifest: Manifest) -> str:
    def content(name: str) -> str:
        return manifest.files[name].sha256

    numbers = {
        "encoders": [
            {
                "architecture": entry.architecture,
                "view": entry.view,
                "dim": entry.dim,
                "config": entry.config,
                "files": {role: content(name) for role, name in entry.files.items()},
            }
            for entry in manifest.encoders
        ],
        "head": None if manifest.head is None else content(manifest.head),
        "window": manifest.window,
        "tiling": manifest.tiling,
        "genetic_code": manifest.genetic_code,
        "labels": manifest.labels,
        "thresholds": manifest.thresholds,
    }
    canonical = json.dumps(numbers, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _check_head(path: Path, dim: int) -> None:
    """Hold the head's input against the encoders' output, by the header of its file alone."""
    wanted, *_ = layer_sizes(read_shapes(path), path)
    if wanted != dim:
        raise BundleError(
            f"{path}: the head reads vectors of {wanted} numbers, and the bundle's encoders give "
            f"{dim} together. Encoders and head are of different bundles: get the bundle again."
        )
