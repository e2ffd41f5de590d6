"""Which parts of an installed bundle were made here, of files whose digests were taken here.

What a manifest says of its sources is its writer's word: of a bundle that was packed elsewhere,
tensors cannot be held against the digests of the files that they were converted from. So what is
made here is written down outside of it, under the SHA-256 of its manifest, which holds the digests
of all its files: such a record fits one content alone, wherever that lies and however it is called.
"""

import hashlib
import json
from collections.abc import Collection
from pathlib import Path

from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.manifest import MANIFEST
from virnucpro.durable import write_file

__all__ = ["parts_made_here", "write_record"]


def write_record(data: DataFolder, folder: Path, parts: Collection[str]) -> None:
    """Write down which parts of the bundle in `folder` (views, ``head``) were made here."""
    data.records.mkdir(exist_ok=True)
    with write_file(_record(data, folder)) as stream:
        stream.write(json.dumps({"made_here": sorted(parts)}).encode() + b"\n")


def parts_made_here(data: DataFolder, folder: Path) -> frozenset[str]:
    """Say which parts of the bundle in `folder` were made here; none where nobody knows."""
    try:
        content = json.loads(_record(data, folder).read_bytes())
    except (OSError, ValueError, RecursionError):
        return frozenset()
    match content:
        case {"made_here": list(parts)}:
            return frozenset(part for part in parts if isinstance(part, str))
    return frozenset()


def _record(data: DataFolder, folder: Path) -> Path:
    return data.records / f"{hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()}.json"
