"""index.json: what a sequence index is, and what its column files must be."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from virnucpro.durable import write_file
from virnucpro.errors import IndexFormatError, UsageError
from virnucpro.sequences.columns import ADVICE, COLUMNS, ColumnFile, checksum, column_path
from virnucpro.sequences.spec import SCHEMA_VERSION, IndexSpec, InputFile, fingerprint

__all__ = ["Header", "changed_columns", "read_header", "verify_columns", "write_header"]

_FORMAT = "virnucpro sequence index"
_NAME = "index.json"


@dataclass(frozen=True, slots=True)
class Header:
    """What index.json says.

    Attributes
    ----------
    spec, inputs
        What the index was built by, and from.
    files
        What every column's file must have.
    """

    spec: IndexSpec
    inputs: tuple[InputFile, ...]
    files: Mapping[str, ColumnFile]

    @property
    def fingerprint(self) -> str:
        """Digest of the inputs' content, the specification and the schema."""
        return fingerprint(self.inputs, self.spec)


def write_header(folder: Path, header: Header) -> None:
    """Write index.json, with a digest of itself."""
    content = {
        "format": _FORMAT,
        "schema": SCHEMA_VERSION,
        "fingerprint": header.fingerprint,
        "spec": header.spec.as_json(),
        "inputs": [asdict(file) for file in header.inputs],
        "files": {name: asdict(file) for name, file in header.files.items()},
    }
    signed = {**content, "sha256": _digest(content)}
    with write_file(folder / _NAME) as stream:
        stream.write(json.dumps(signed, indent=1).encode())


def read_header(folder: Path) -> Header:
    """Read index.json, and compare the sizes of all column files with it.

    Raises
    ------
    IndexFormatError
        When there is no index, it is of an unknown version, was changed, or lacks a part.
    """
    content = _read_json(folder)
    if content.get("format") != _FORMAT:
        raise IndexFormatError(f"{folder}: this is no sequence index; {ADVICE}")
    if content.get("schema") != SCHEMA_VERSION:
        raise IndexFormatError(
            f"{folder}: a sequence index of version {content.get('schema')}, while this program "
            f"reads version {SCHEMA_VERSION}; use the version that wrote it, or {ADVICE}"
        )
    if content.pop("sha256", None) != _digest(content):
        raise IndexFormatError(f"{folder / _NAME}: changed since it was written; {ADVICE}")
    try:
        header = Header(
            IndexSpec.from_json(content["spec"]),
            tuple(InputFile(**file) for file in content["inputs"]),
            {name: ColumnFile(**content["files"][name]) for name in COLUMNS},
        )
    except (KeyError, TypeError, UsageError) as error:
        raise IndexFormatError(f"{folder / _NAME}: lacks a part ({error}); {ADVICE}") from error
    _check_sizes(folder, header)
    return header


def verify_columns(folder: Path, header: Header) -> None:
    """Read every column file whole and compare its checksum.

    Raises
    ------
    IndexFormatError
        Naming the first file that was changed.
    """
    for path, reason in changed_columns(folder, header):
        raise IndexFormatError(f"{path}: {reason}; {ADVICE}")


def changed_columns(folder: Path, header: Header) -> Iterator[tuple[Path, str]]:
    """Read every column file whole; name each that was changed since it was written, and how."""
    for name, file in header.files.items():
        path = column_path(folder, name)
        try:
            if checksum(folder, name) != file.crc32:
                yield path, "changed since it was written"
        except IndexFormatError as error:
            yield path, str(error)


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / _NAME
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise IndexFormatError(f"{folder}: holds no sequence index; {ADVICE}") from error
    except ValueError as error:
        raise IndexFormatError(f"{path}: cannot be read ({error}); {ADVICE}") from error
    return content if isinstance(content, dict) else {}


def _check_sizes(folder: Path, header: Header) -> None:
    for name, file in header.files.items():
        path = column_path(folder, name)
        size = path.stat().st_size if path.is_file() else 0
        if size != file.bytes:
            raise IndexFormatError(f"{path}: has {size} bytes, not {file.bytes}; {ADVICE}")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
