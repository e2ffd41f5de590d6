"""A bundle, and the reader of its bundle.json, which checks every field."""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final, TypeVar, cast

from virnucpro.bundles.checksums import DENIED, FileDigest, unreadable
from virnucpro.classifier.calibration import read_calibration
from virnucpro.encoders.base import EncoderSpec, View
from virnucpro.encoders.registry import architectures
from virnucpro.errors import BundleError, UsageError
from virnucpro.sequences.spec import KIND_OF_ITEMS
from virnucpro.sequences.translation import genetic_code
from virnucpro.sequences.windows import TILINGS, WINDOWS, Tiling, is_window

MANIFEST: Final = "bundle.json"
_SCHEMA_VERSION: Final = 1

_VIEWS: Final = ("nucleotide", "protein")
_ITEMS: Final = tuple(KIND_OF_ITEMS)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Classifier:
    """Encoders and head that score items of one kind, or pieces of records.

    Attributes
    ----------
    encoders
        Encoders, in the order in which their vectors are joined.
    head
        Weight file of the classifier. It scores the first numbers of the joined vectors; the
        others, if any, are facts that are stored as they are.
    fingerprint
        Digest of encoders and head, or of their bundle.
    """

    encoders: tuple[EncoderSpec, ...]
    head: Path
    fingerprint: str

    @property
    def dim(self) -> int:
        """Length of the joined vectors."""
        return sum(encoder.dim for encoder in self.encoders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle: its folder and the content of its bundle.json.

    `open_bundle` verifies its files; `read_bundle` and `list_bundles` do not.

    Attributes
    ----------
    path
        Folder of the bundle.
    name, version, description
        Text for users.
    encoders
        The encoders, in the order in which their vectors are joined.
    head
        Safetensors file of the head (the classifier's tensors); None for a bundle of encoders only,
        whose labels and thresholds are empty.
    window, tiling, genetic_code
        Window length in bases, tiling and NCBI genetic code number of the head's training data.
    labels
        Names of the head's two outputs: others, virus.
    items
        What an item is: ``open_frames`` (every stop-free frame of a window, the published rule),
        ``longest_stretch`` (the longest stop-free stretch of at least 30 codons of a window) or
        ``window`` (the bases of a whole window). bundle.json may omit ``open_frames``.
    calibration
        Calibration of the records' logits, see `virnucpro.classifier.calibration`; None if the
        bundle has none, and ``thresholds`` apply to the score.
    classes
        Names of the head's classes if it has more than two; empty otherwise.
    record, piece
        Classifier of the pieces of records, and maximum bases of a piece; None for a bundle that
        scores windows only. The classifier has the classes of the head.
    thresholds
        Score limits for the calls of records: viral if the score is at least ``viral``, non-viral
        if it is below ``non_viral``, otherwise ambiguous.
    metrics
        Measured accuracy, as JSON of any structure.
    provenance
        Origin of the bundle, as JSON of any structure. ``sources`` of a published bundle has the
        digests of the files of each part.
    files
        Size and digest of every file of the bundle except the manifest, by file name.
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
    files: Mapping[str, FileDigest] = field(default_factory=dict)
    metrics: Mapping[str, object] = field(default_factory=dict)
    provenance: Mapping[str, object] = field(default_factory=dict)
    items: str = "open_frames"
    calibration: Mapping[str, object] | None = None
    classes: tuple[str, ...] = ()
    record: Classifier | None = None
    piece: int | None = None

    @property
    def encoder_contents(self) -> list[dict[str, object]]:
        """For each encoder what its vectors depend on: settings, and digests of its files."""
        return _contents(self.encoders, self.files)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the content that affects vectors, scores or calls."""
        numbers: dict[str, object] = {
            "encoders": self.encoder_contents,
            "head": None if self.head is None else self.files[self.head.name].sha256,
            "window": self.window,
            "tiling": self.tiling,
            "genetic_code": self.genetic_code,
            "labels": self.labels,
            "thresholds": self.thresholds,
        }
        if self.items != "open_frames":
            numbers["items"] = self.items
        if self.calibration is not None:
            numbers["calibration"] = self.calibration
        if self.record is not None:
            numbers["record"] = [self.record.fingerprint, self.piece]
        return _digest(numbers)

    def as_json(self) -> bytes:
        """Return the content of bundle.json."""
        names = (
            entry.name for entry in fields(self) if entry.name not in {"path", "piece", "record"}
        )
        content = {name: getattr(self, name) for name in names}
        if self.record is not None:
            content["record"] = {
                "piece": self.piece,
                "encoders": [encoder_entry(spec) for spec in self.record.encoders],
                "head": self.record.head.name,
            }
        content |= {
            "encoders": [encoder_entry(spec) for spec in self.encoders],
            "head": None if self.head is None else self.head.name,
            "files": {name: asdict(digest) for name, digest in self.files.items()},
            "schema_version": _SCHEMA_VERSION,
        }
        return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"


def _contents(
    encoders: Iterable[EncoderSpec], files: Mapping[str, FileDigest]
) -> list[dict[str, object]]:
    return [
        {
            "architecture": spec.architecture,
            "view": spec.view,
            "dim": spec.dim,
            "config": spec.config,
            "files": {role: files[name].sha256 for role, name in spec.files.items()},
        }
        for spec in encoders
    ]


def _digest(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def encoder_entry(spec: EncoderSpec) -> dict[str, object]:
    """Return the entry of an encoder in bundle.json."""
    names = ("name", "architecture", "view", "dim", "files", "config")
    return {name: getattr(spec, name) for name in names}


def read_bundle(folder: Path) -> Bundle:
    """Return the bundle in `folder` after a check of its bundle.json; other files are not read.

    Raises
    ------
    BundleError
        If the file is missing, is not JSON or has an unsupported schema version, or a field is
        missing or invalid; the message names the file and the field.
    """
    path = folder / MANIFEST
    try:
        if path.exists() and not path.is_file():  # a named pipe would block the reader
            raise BundleError(f"{path}: is not a file. Get the bundle again.")
        content = path.read_bytes()
    except OSError as error:
        advice = f"A bundle is a folder with a {MANIFEST}: check its path."
        cause = None if error.errno in DENIED else error
        raise unreadable(path, folder, error, advice) from cause
    return parse_manifest(content, folder)


def parse_manifest(text: bytes, folder: Path) -> Bundle:
    """Return the bundle in `folder` whose bundle.json has this content.

    Raises
    ------
    BundleError
        As `read_bundle`, except for a missing file.
    """
    path = folder / MANIFEST
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
            case str(text) if not text.isprintable() and any(map(_controls, text)):
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
        location = f"{self._location}/{key}".lstrip("/")
        return [_Reader(self.path, entry, f"{location}[{i}]") for i, entry in enumerate(entries)]

    def strings(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(f"needs strings only in {key!r}, not {values!r}")
        return tuple(values)


def _parse(reader: _Reader) -> Bundle:
    folder = reader.path.parent
    files = _files(reader.inside("files"))
    with_head = reader.content.get("head", "") is not None
    head = _listed(reader, reader.take("head", str), files) if with_head else None
    thresholds = reader.inside("thresholds")
    names = ("viral", "non_viral") if with_head else ()
    record = reader.inside("record") if reader.content.get("record") else None
    bundle = Bundle(
        path=folder,
        name=reader.take("name", str),
        version=reader.take("version", str),
        description=reader.take("description", str),
        encoders=tuple(_encoder(entry, files, folder) for entry in reader.each("encoders")),
        head=None if head is None else folder / head,
        window=reader.take("window", int),
        tiling=cast("Tiling", reader.take("tiling", str)),
        genetic_code=reader.take("genetic_code", int),
        labels=reader.strings("labels"),
        thresholds={name: thresholds.take(name, float) for name in names},
        metrics=reader.take("metrics", dict),
        provenance=reader.take("provenance", dict),
        files=files,
        items=reader.take("items", str) if "items" in reader.content else _ITEMS[0],
        calibration=reader.content.get("calibration") and reader.take("calibration", dict),
        classes=reader.strings("classes") if reader.content.get("classes") else (),
        record=None if record is None else _record(record, files, folder),
        piece=None if record is None else record.take("piece", int),
    )
    for problem in _problems(bundle):
        raise reader.error(problem)
    if bundle.calibration is not None:
        read_calibration(bundle.calibration, reader.path)
    return bundle


def _record(reader: _Reader, files: Mapping[str, FileDigest], folder: Path) -> Classifier:
    """Return the classifier of pieces."""
    encoders = tuple(_encoder(entry, files, folder) for entry in reader.each("encoders"))
    head = _listed(reader, reader.take("head", str), files)
    digest = _digest([_contents(encoders, files), files[head].sha256])
    return Classifier(encoders, folder / head, digest)


def _files(reader: _Reader) -> dict[str, FileDigest]:
    files = {}
    for name in reader.content:
        if name != Path(name).name or name in ("", ".", "..", MANIFEST) or "\\" in name:
            raise reader.error(f"lists {name!r}, which is not a plain file name")
        entry = reader.inside(name)
        files[name] = FileDigest(entry.take("sha256", str), entry.take("bytes", int))
    return files


def _encoder(reader: _Reader, files: Mapping[str, FileDigest], folder: Path) -> EncoderSpec:
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
    name, config = reader.take("name", str), reader.take("config", dict)
    return EncoderSpec(name, architecture, cast("View", view), dim, folder, names, config)


def _listed(reader: _Reader, name: str, files: Mapping[str, FileDigest]) -> str:
    if name not in files:
        raise reader.error(f"uses the file {name!r}, which is not in its list of files")
    return name


def _problems(bundle: Bundle) -> Iterator[str]:
    """Yield a description of each invalid field of a bundle; types were checked before."""
    if not bundle.encoders:
        yield "lists no encoder"
    for what in ("view", "name"):
        values = [getattr(encoder, what) for encoder in bundle.encoders]
        if len(set(values)) != len(values):
            yield f"has two encoders of the {what} {values[0]!r}"
    if not is_window(bundle.window):
        yield f"needs a window of {WINDOWS[0]} to {WINDOWS[-1]:,} bases, not {bundle.window}"
    yield from _item_problems(bundle)
    if bundle.tiling not in TILINGS:
        yield f"has the unknown tiling {bundle.tiling!r}; known are {', '.join(TILINGS)}"
    if bundle.head is not None and len(bundle.labels) != 2:
        yield f"needs two labels (others, virus), not {bundle.labels}"
    viral, non_viral = (bundle.thresholds.get(name, 1.0) for name in ("viral", "non_viral"))
    if bundle.thresholds and not 0.0 <= non_viral <= viral <= 1.0:
        yield f"needs thresholds with 0 <= non_viral <= viral <= 1, not {bundle.thresholds}"
    try:
        genetic_code(bundle.genetic_code)
    except UsageError as error:
        yield f"has an unknown genetic code ({error})"


def _item_problems(bundle: Bundle) -> Iterator[str]:
    if bundle.items not in _ITEMS:
        yield f"has the unknown items {bundle.items!r}; known are {', '.join(_ITEMS)}"
    if bundle.items == "window" and any(spec.view == "protein" for spec in bundle.encoders):
        yield "has a protein encoder, which cannot read whole windows"
    if bundle.record is not None and bundle.piece is not None:
        if bundle.piece < bundle.window:
            yield f"needs pieces of at least a window, not of {bundle.piece} bases"
        if [spec.view for spec in bundle.record.encoders] != ["nucleotide"]:
            yield "needs one encoder of nucleotides for records"
