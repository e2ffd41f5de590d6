"""bundle.json: its schema, and the reading of it with every field checked."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from virnucpro.bundles.permissions import DENIED, advice_on_reading
from virnucpro.bundles.verify import FileDigest
from virnucpro.encoders.registry import architectures
from virnucpro.errors import BundleError, UsageError
from virnucpro.sequences.translation import genetic_code
from virnucpro.sequences.windows import TILINGS, WINDOWS, is_window

__all__ = [
    "MANIFEST",
    "SCHEMA_VERSION",
    "EncoderEntry",
    "Manifest",
    "parse_manifest",
    "printable",
    "read_manifest",
]

MANIFEST: Final = "bundle.json"
SCHEMA_VERSION: Final = 1

_VIEWS: Final = ("nucleotide", "protein")
_THRESHOLDS: Final = ("viral", "non_viral")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EncoderEntry:
    """One encoder as the manifest has it: an `EncoderSpec` without its folder."""

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
        For people.
    encoders
        In the order in which their vectors are joined.
    head
        File name of the head's tensors; None where a bundle is encoders alone, whose labels and
        thresholds are empty then.
    window, tiling, genetic_code
        How records were cut and translated when the head was trained.
    labels
        Of the head's two outputs.
    thresholds
        ``viral`` and ``non_viral``: a record's score from the first on is viral, below the second
        non-viral, between them ambiguous.
    metrics, provenance
        How good the bundle is, and where it comes from; free form.
    files
        Every file of the bundle but the manifest itself: plain names in the bundle's folder.
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
    schema_version: int = SCHEMA_VERSION


def read_manifest(folder: Path) -> Manifest:
    """Read and check the bundle.json of `folder`.

    Raises
    ------
    BundleError
        When it is missing, no JSON, of a newer schema, or when a field is missing or makes no
        sense; the message names the file and the field.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except OSError as error:
        otherwise = f"A bundle is a folder with a {MANIFEST}: check its path."
        advice = advice_on_reading(path, error, otherwise)
        message = f"{path}: cannot be read ({error.strerror}). {advice}"
        raise BundleError(message) from (None if error.errno in DENIED else error)
    return parse_manifest(content, path)


def parse_manifest(text: bytes, path: Path) -> Manifest:
    """Check the content of a bundle.json that stands at `path`.

    Raises
    ------
    BundleError
        As `read_manifest`, but for a missing file.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: is no JSON ({error}). Get the bundle again.") from error
    _refuse_control(path, content)
    reader = _Reader(path, content)
    version = reader.take("schema_version", int)
    if version != SCHEMA_VERSION:
        raise BundleError(
            f"{path}: is written in bundle schema {version}; this version of virnucpro reads "
            f"schema {SCHEMA_VERSION}. Use a version of virnucpro that knows schema {version}."
        )
    return _parse(reader)


def printable(text: str) -> str:
    """Write escapes for the letters that a manifest does not take and no terminal should get."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _refuse_control(path: Path, content: object) -> None:
    """Refuse text that would print as something else than it is, or not at all.

    Escape codes and line ends would show a user lines that this program never said; lone surrogates
    cannot be printed.
    """
    rest = [content]
    while rest:
        match rest.pop():
            case str(text) if any(_controls(letter) for letter in text):
                raise BundleError(
                    f"{path}: the manifest holds {_shortened(text)}, with control characters in "
                    "it. Get the bundle again."
                )
            case dict(fields):
                rest += [*fields, *fields.values()]
            case list(entries):
                rest += entries


def _controls(letter: str) -> bool:
    category = unicodedata.category(letter)
    return category.startswith("C") or category in {"Zl", "Zp"}


def _shortened(text: str) -> str:
    return ascii(text if len(text) <= 60 else f"{text[:57]}...")


class _Reader:
    """Takes fields out of a JSON object, each of the type that it must have."""

    def __init__(self, path: Path, content: object, place: str = "") -> None:
        self._path = path
        self._place = place
        if not isinstance(content, dict):
            raise self.error("is no object with fields")
        self._content = content

    def error(self, problem: str) -> BundleError:
        where = f" at {self._place!r}" if self._place else ""
        return BundleError(f"{self._path}: the manifest{where} {problem}. Get the bundle again.")

    def take(self, key: str, kind: type[T]) -> T:
        value = self._content.get(key)
        # True is an int to Python, and 1 is no float
        if isinstance(value, bool) or not isinstance(value, kind):
            raise self.error(f"needs a field {key!r} of type {kind.__name__}, not {value!r}")
        return value

    def inside(self, key: str) -> "_Reader":
        return _Reader(self._path, self._content.get(key), f"{self._place}/{key}".lstrip("/"))

    def each(self, key: str) -> list["_Reader"]:
        entries = self.take(key, list)
        return [_Reader(self._path, entry, f"{key}[{i}]") for i, entry in enumerate(entries)]

    def strings(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(f"needs strings alone in {key!r}, not {values!r}")
        return tuple(values)

    def keys(self) -> list[str]:
        return list(self._content)

    def is_null(self, key: str) -> bool:
        return key in self._content and self._content[key] is None


def _parse(reader: _Reader) -> Manifest:
    files = _files(reader.inside("files"))
    manifest = Manifest(
        name=reader.take("name", str),
        version=reader.take("version", str),
        description=reader.take("description", str),
        encoders=tuple(_encoder(entry, files) for entry in reader.each("encoders")),
        head=_head(reader, files),
        window=reader.take("window", int),
        tiling=reader.take("tiling", str),
        genetic_code=reader.take("genetic_code", int),
        labels=reader.strings("labels"),
        thresholds=_thresholds(reader),
        metrics=reader.take("metrics", dict),
        provenance=reader.take("provenance", dict),
        files=files,
    )
    _check(reader, manifest)
    return manifest


def _files(reader: _Reader) -> dict[str, FileDigest]:
    files = {}
    for name in reader.keys():  # noqa: SIM118 - a reader is no mapping
        if name != Path(name).name or name in ("", ".", "..", MANIFEST) or "\\" in name:
            raise reader.error(f"lists {name!r}, which is no plain file name of the bundle's own")
        entry = reader.inside(name)
        files[name] = FileDigest(entry.take("sha256", str), entry.take("bytes", int))
    return files


def _encoder(reader: _Reader, files: Mapping[str, FileDigest]) -> EncoderEntry:
    architecture, view = reader.take("architecture", str), reader.take("view", str)
    if architecture not in architectures():
        raise reader.error(
            f"asks for the architecture {architecture!r}, and this version of virnucpro knows "
            f"{', '.join(architectures())}; use one that knows it"
        )
    if view not in _VIEWS:
        raise reader.error(f"asks for the view {view!r}, which is none of {', '.join(_VIEWS)}")
    roles = reader.inside("files")
    names = {role: _listed(roles, roles.take(role, str), files) for role in roles.keys()}  # noqa: SIM118 - as above
    dim = reader.take("dim", int)
    return EncoderEntry(
        reader.take("name", str), architecture, view, dim, names, reader.take("config", dict)
    )


def _head(reader: _Reader, files: Mapping[str, FileDigest]) -> str | None:
    if reader.is_null("head"):
        return None
    return _listed(reader, reader.take("head", str), files)


def _listed(reader: _Reader, name: str, files: Mapping[str, FileDigest]) -> str:
    if name not in files:
        raise reader.error(f"uses the file {name!r}, which its list of files lacks")
    return name


def _thresholds(manifest: _Reader) -> dict[str, float]:
    reader = manifest.inside("thresholds")
    if manifest.is_null("head"):
        return {}
    thresholds = {name: reader.take(name, float) for name in _THRESHOLDS}
    if not 0.0 <= thresholds["non_viral"] <= thresholds["viral"] <= 1.0:
        raise reader.error(f"needs 0 <= non_viral <= viral <= 1, not {thresholds}")
    return thresholds


def _check(reader: _Reader, manifest: Manifest) -> None:
    if not manifest.encoders:
        raise reader.error("names no encoder")
    views = [encoder.view for encoder in manifest.encoders]
    if len(set(views)) != len(views):
        raise reader.error(f"names two encoders of one view ({', '.join(views)}); one is possible")
    names = [encoder.name for encoder in manifest.encoders]
    if len(set(names)) != len(names):
        raise reader.error(f"names two encoders {names[0]!r}; each needs a name of its own")
    if not is_window(manifest.window):
        raise reader.error(
            f"needs a window of {WINDOWS[0]} to {WINDOWS[-1]:,} bases, not {manifest.window}"
        )
    if manifest.tiling not in TILINGS:
        raise reader.error(f"asks for the tiling {manifest.tiling!r}; known: {', '.join(TILINGS)}")
    if manifest.head is not None and len(manifest.labels) != 2:
        raise reader.error(f"needs two labels (others, virus), not {manifest.labels}")
    try:
        genetic_code(manifest.genetic_code)
    except UsageError as error:
        raise reader.error(f"asks for an unknown genetic code ({error})") from error
