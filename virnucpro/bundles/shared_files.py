"""Encoders that an installed bundle has already: linked into the next one, not fetched again."""

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.manifest import EncoderEntry, Manifest, read_manifest
from virnucpro.bundles.permissions import new_file_mode
from virnucpro.bundles.verify import verify_file
from virnucpro.errors import BundleError

__all__ = ["InstalledEncoder", "find_encoder", "installed_encoders"]


@dataclass(frozen=True, slots=True)
class InstalledEncoder:
    """An encoder of an installed bundle, and the published files that it was made from."""

    folder: Path
    entry: EncoderEntry
    manifest: Manifest
    sources: Mapping[str, str]

    def link_into(self, folder: Path) -> EncoderEntry:
        """Put its files into another bundle's folder; they cost no space where links work.

        Raises
        ------
        BundleError
            When they are damaged.
        """
        for name in self.entry.files.values():
            verify_file(self.folder, name, self.manifest.files[name])
            _link_or_copy(self.folder / name, folder / name)
        return self.entry


def _link_or_copy(source: Path, target: Path) -> None:
    """Share a file, opened to those who may read new ones; what cannot be shared so is copied."""
    mode = stat.S_IMODE(source.stat().st_mode)
    wanted = mode | new_file_mode(target.parent)
    try:
        os.link(source, target)
        if wanted != mode:
            target.chmod(wanted)
    except OSError:
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)


def installed_encoders(folder: Path) -> list[InstalledEncoder]:
    """List the encoders of one bundle, in their order.

    Raises
    ------
    BundleError
        When its manifest is malformed.
    """
    manifest = read_manifest(folder)
    sources = manifest.provenance.get("sources")
    known = sources if isinstance(sources, dict) else {}
    return [
        InstalledEncoder(folder, entry, manifest, known.get(entry.name, {}))
        for entry in manifest.encoders
    ]


def find_encoder(data: DataFolder, sources: Mapping[str, str]) -> InstalledEncoder | None:
    """Find an undamaged encoder that was made from these very published files.

    A damaged one is passed over: a bundle is fetched to put such things right.
    """
    for folder in data.installed().values():
        try:
            for encoder in installed_encoders(folder):
                if encoder.sources == sources:
                    for name in encoder.entry.files.values():
                        verify_file(folder, name, encoder.manifest.files[name])
                    return encoder
        except BundleError:
            continue
    return None
