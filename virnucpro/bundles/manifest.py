"""bundle.json: its schema, and a reader that checks every field."""

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from virnucpro.bundles.checksums import FileDigest
from virnucpro.bundles.permissions import DENIED, advice_on_reading
from virnucpro.classifier.calibration import read_calibration
from virnucpro.encoders.registry import architectures
from virnucpro.errors import BundleError, UsageError
from virnucpro.sequences.spec import KIND_OF_ITEMS
from virnucpro.sequences.translation import genetic_code
from virnucpro.sequences.windows import TILINGS, WINDOWS, is_window

__all__ = ["MANIFEST", "EncoderEntry", "Manifest", "parse_manifest", "read_manifest"]

MANIFEST: Final = "bundle.json"
_SCHEMA_VERSION: Final = 1

_VIEWS: Final = ("nucleotide", "protein")
_ITEMS: Final = tuple(KIND_OF_ITEMS)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EncoderEntry:
    """One encoder in a manifest: an `EncoderSpec` without the folder."""

    name: str
    architecture: str
    view: str
    dim: int
    files: Mapping[str, str]
    config: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of bundle.json.

    Attributes
    ----------
    name, version, description
        Text for users.
    encoders
        The encoders, in the order in which their vectors are joined.
    head
        File name of the head's tensors; None for a bundle of encoders only, whose labels and
        thresholds are empty.
    window, tiling, genetic_code
        Window length in bases, tiling and NCBI genetic code number of the head's training data.
    labels
        Names of the head's two outputs.
    items
        What an item is: ``open_frames`` (every stop-free frame of a window, the published rule),
        ``longest_stretch`` (the longest stop-free stretch of at least 30 codons of a window) or
        ``window`` (the bases of a whole window). bundle.json may omit ``open_frames``.
    calibration
        Calibration of the records' logits, see `virnucpro.classifier.calibration`; None if the
        bundle has none, and ``thresholds`` apply to the score.
    classes
        Names of the head's classes if it has more than two; empty otherwise.
    thresholds
        Score limits for the calls of records: viral if the score is at least ``viral``, non-viral
        if it is below ``non_viral``, otherwise ambiguous.
    metrics
        Measured accuracy, as JSON of any structure. ``verified_precisions`` is a list of precisions
        (``"bf16"``, ``"fp16"``) whose results were compared with fp32 on these weights;
        ``--precision auto`` reads it.
    provenance
        Origin of the bundle, as JSON of any structure. ``sources`` is described in
        `virnucpro.bundles.provenance`.
    files
        Size and digest of every file of the bundle except the manifest, by file name.
    """

    name: str
    version: str
    description: str
    encoders: Sequence[EncoderEntry]
    head: str | None
    window: int
    tiling: str
    genetic_code: int
    labels: Sequence[str]
    thresholds: Mapping[str, float]
    files: Mapping[str, FileDigest] = field(default_factory=dict)
    metrics: Mapping[str, object] = field(default_factory=dict)
    provenance: Mapping[str, object] = field(default_factory=dict)
    items: str = "open_frames"
    calibration: Mapping[str, object] | None = None
    classes: Sequence[str] = ()
    schema_version: int = _SCHEMA_VERSION


def read_manifest(folder: Path) -> Manifest:
    """Return the checked content of the bundle.json in `folder`.

    Raises
    ------
    BundleError
        If the file is missing, is not JSON or has an unsupported schema version, or a field is
        missing or invalid; the message names the file and the field.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except OSError as error:
        otherwise = f"A bundle is a folder with a {MANIFEST}: check its path."
        advice = advice_on_reading(folder, error, otherwise)
        message = f"{path}: cannot be read ({error.strerror}). {advice}"
        raise BundleError(message) from (None if error.errno in DENIED else error)
    return parse_manifest(content, path)


def parse_manifest(text: bytes, path: Path) -> Manifest:
    """Return the checked content of a bundle.json; error messages name the file `path`.

    Raises
    ------
    BundleError
        As `read_manifest`, except for a missing file.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: is not JSON ({error}). Get the bundle again.") from error
    _refuse_control(path, content)
    reader = _Reader(path, content)
    version = reader.take("schema_version", int)
    if version != _SCHEMA_VERSION:
        raise BundleError(
            f"{path}: has bundle schema {version}; this version of virnucpro reads schema "
            f"{_SCHEMA_VERSION}. Use a version of virnucpro that reads schema {version}."
        )
    return _parse(reader)


def _refuse_control(path: Path, content: object) -> None:
    """Raise BundleError if a text has control characters, which can change terminal output."""
    remaining = [content]
    while remaining:
        match remaining.pop():
            case str(text) if any(_controls(letter) for letter in text):
                raise BundleError(
                    f"{path}: the manifest contains control characters in {text[:60]!a}. "
                    "Get the bundle again."
                )
            case dict(fields):
                remaining += [*fields, *fields.values()]
            case list(entries):
                remaining += entries


def _controls(letter: str) -> bool:
    category = unicodedata.category(letter)
    return category.startswith("C") or category in {"Zl", "Zp"}


class _Reader:
    """Reader of the fields of a JSON object, with checks of their types."""

    def __init__(self, path: Path, content: object, location: str = "") -> None:
        self.path = path
        self._location = location
        if not isinstance(content, dict):
            raise self.error("must be a JSON object")
        self.content = content

    def error(self, problem: str) -> BundleError:
        where = f" at {self._location!r}" if self._location else ""
        return BundleError(f"{self.path}: the manifest{where} {problem}. Get the bundle again.")

    def take(self, key: str, kind: type[T]) -> T:
        value = self.content.get(key)
        # bool is a subclass of int
        if isinstance(value, bool) or not isinstance(value, kind):
            raise self.error(f"needs a field {key!r} of type {kind.__name__}, not {value!r}")
        return value

    def inside(self, key: str) -> "_Reader":
        return _Reader(self.path, self.content.get(key), f"{self._location}/{key}".lstrip("/"))

    def each(self, key: str) -> list["_Reader"]:
        entries = self.take(key, list)
        return [_Reader(self.path, entry, f"{key}[{i}]") for i, entry in enumerate(entries)]

    def strings(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(f"needs strings only in {key!r}, not {values!r}")
        return tuple(values)


def _parse(reader: _Reader) -> Manifest:
    files = _files(reader.inside("files"))
    with_head = reader.content.get("head", "") is not None
    head = _listed(reader, reader.take("head", str), files) if with_head else None
    thresholds = reader.inside("thresholds")
    names = ("viral", "non_viral") if with_head else ()
    manifest = Manifest(
        name=reader.take("name", str),
        version=reader.take("version", str),
        description=reader.take("description", str),
        encoders=tuple(_encoder(entry, files) for entry in reader.each("encoders")),
        head=head,
        window=reader.take("window", int),
        tiling=reader.take("tiling", str),
        genetic_code=reader.take("genetic_code", int),
        labels=reader.strings("labels"),
        thresholds={name: thresholds.take(name, float) for name in names},
        metrics=reader.take("metrics", dict),
        provenance=reader.take("provenance", dict),
        files=files,
        items=reader.take("items", str) if "items" in reader.content else _ITEMS[0],
        calibration=reader.content.get("calibration") and reader.take("calibration", dict),
        classes=reader.strings("classes") if reader.content.get("classes") else (),
    )
    for problem in _problems(manifest):
        raise reader.error(problem)
    if manifest.calibration is not None:
        read_calibration(manifest.calibration, reader.path)
    return manifest


def _files(reader: _Reader) -> dict[str, FileDigest]:
    files = {}
    for name in reader.content:
        if name != Path(name).name or name in ("", ".", "..", MANIFEST) or "\\" in name:
            raise reader.error(f"lists {name!r}, which is not a plain file name")
        entry = reader.inside(name)
        files[name] = FileDigest(entry.take("sha256", str), entry.take("bytes", int))
    return files


def _encoder(reader: _Reader, files: Mapping[str, FileDigest]) -> EncoderEntry:
    architecture, view = reader.take("architecture", str), reader.take("view", str)
    if architecture not in architectures():
        raise reader.error(
            f"has the unknown architecture {architecture!r} (known: "
            f"{', '.join(architectures())}); a newer version of virnucpro may know it"
        )
    if view not in _VIEWS:
        raise reader.error(f"has the unknown view {view!r}; known are {', '.join(_VIEWS)}")
    roles = reader.inside("files")
    names = {role: _listed(roles, roles.take(role, str), files) for role in roles.content}
    dim = reader.take("dim", int)
    return EncoderEntry(
        reader.take("name", str), architecture, view, dim, names, reader.take("config", dict)
    )


def _listed(reader: _Reader, name: str, files: Mapping[str, FileDigest]) -> str:
    if name not in files:
        raise reader.error(f"uses the file {name!r}, which is not in its list of files")
    return name


def _problems(manifest: Manifest) -> Iterator[str]:
    """Yield a description of each invalid field of a manifest; types were checked before."""
    if not manifest.encoders:
        yield "lists no encoder"
    for what in ("view", "name"):
        values = [getattr(encoder, what) for encoder in manifest.encoders]
        if len(set(values)) != len(values):
            yield f"has two encoders of the {what} {values[0]!r}"
    if not is_window(manifest.window):
        yield f"needs a window of {WINDOWS[0]} to {WINDOWS[-1]:,} bases, not {manifest.window}"
    yield from _item_problems(manifest)
    if manifest.tiling not in TILINGS:
        yield f"has the unknown tiling {manifest.tiling!r}; known are {', '.join(TILINGS)}"
    if manifest.head is not None and len(manifest.labels) != 2:
        yield f"needs two labels (others, virus), not {manifest.labels}"
    viral, non_viral = (manifest.thresholds.get(name, 1.0) for name in ("viral", "non_viral"))
    if manifest.thresholds and not 0.0 <= non_viral <= viral <= 1.0:
        yield f"needs thresholds with 0 <= non_viral <= viral <= 1, not {manifest.thresholds}"
    try:
        genetic_code(manifest.genetic_code)
    except UsageError as error:
        yield f"has an unknown genetic code ({error})"


def _item_problems(manifest: Manifest) -> Iterator[str]:
    if manifest.items not in _ITEMS:
        yield f"has the unknown items {manifest.items!r}; known are {', '.join(_ITEMS)}"
    if manifest.items == "window" and any(one.view == "protein" for one in manifest.encoders):
        yield "has a protein encoder, which cannot read whole windows"
