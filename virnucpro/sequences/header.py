"""index.json: parameters and inputs of a sequence index, sizes and checksums of its columns."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from virnucpro.durable import write_file
from virnucpro.errors import IndexFormatError
from virnucpro.sequences.columns import ADVICE, COLUMNS, ColumnFile, column_path
from virnucpro.sequences.spec import SCHEMA_VERSION, IndexSpec, InputFile, fingerprint

__all__ = ["Header", "read_header", "write_header"]

_FORMAT = "virnucpro sequence index"
_NAME = "index.json"


@dataclass(frozen=True, slots=True)
class Header:
    """Content of index.json.

    Attributes
    ----------
    spec, inputs
        Parameters and input files of the index.
    files
        Size and checksum of every column file.
    """

    spec: IndexSpec
    inputs: tuple[InputFile, ...]
    files: Mapping[str, ColumnFile]

    @property
    def fingerprint(self) -> str:
        """Digest of the inputs' content, the specification and the schema."""
        return fingerprint(self.inputs, self.spec)


def write_header(folder: Path, header: Header) -> None:
    """Write index.json, with a digest of its content."""
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
        When the folder has no index, an index of another version, or a damaged one.
    """
    path = folder / _NAME
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise IndexFormatError(f"{folder}: no sequence index found; {ADVICE}") from error
    except ValueError as error:
        raise IndexFormatError(f"{path}: not valid JSON ({error}); {ADVICE}") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise IndexFormatError(f"{path}: not the header of a sequence index; {ADVICE}")
    if content.get("schema") != SCHEMA_VERSION:
        raise IndexFormatError(
            f"{folder}: a sequence index of version {content.get('schema')}, but this program "
            f"reads version {SCHEMA_VERSION}; use the version that wrote it, or {ADVICE}"
        )
    if content.pop("sha256", None) != _digest(content):
        raise IndexFormatError(f"{path}: changed since it was written; {ADVICE}")
    header = Header(
        IndexSpec.from_json(content["spec"]),
        tuple(InputFile(**file) for file in content["inputs"]),
        {name: ColumnFile(**content["files"][name]) for name in COLUMNS},
    )
    for name, file in header.files.items():
        path = column_path(folder, name)
        size = path.stat().st_size if path.is_file() else 0
        if size != file.bytes:
            raise IndexFormatError(f"{path}: has {size} bytes instead of {file.bytes}; {ADVICE}")
    return header


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
