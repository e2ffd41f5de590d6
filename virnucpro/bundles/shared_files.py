"""Encoders that an installed bundle has already: linked into the next one, not fetched again."""

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from virnucpro.bundles.claims import claimed_sources, same_content
from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.made_here import parts_made_here
from virnucpro.bundles.manifest import EncoderEntry, Manifest, read_manifest
from virnucpro.bundles.permissions import new_file_mode
from virnucpro.bundles.published import EncoderSource, sources_of
from virnucpro.bundles.verify import verify_file
from virnucpro.errors import BundleError

__all__ = ["InstalledEncoder", "find_encoder", "installed_encoders"]


@dataclass(frozen=True, slots=True)
class InstalledEncoder:
    """An encoder of an installed bundle.

    Attributes
    ----------
    folder
        The bundle's.
    entry, manifest
        What the bundle says of the encoder, and of all.
    sources
        Name and digest of the files that it was made from.
    made_here
        Whether that is known, and not the word of whoever packed the bundle.
    """

    folder: Path
    entry: EncoderEntry
    manifest: Manifest
    sources: Mapping[str, str]
    made_here: bool

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


def installed_encoders(data: DataFolder, folder: Path) -> list[InstalledEncoder]:
    """List the encoders of one bundle of a data folder, in their order.

    Raises
    ------
    BundleError
        When its manifest is malformed.
    """
    manifest = read_manifest(folder)
    sources, known = claimed_sources(manifest), parts_made_here(data, folder)
    return [
        InstalledEncoder(folder, entry, manifest, sources[entry.view], entry.view in known)
        for entry in manifest.encoders
    ]


def find_encoder(data: DataFolder, wanted: EncoderSource) -> InstalledEncoder | None:
    """Find an undamaged encoder that was made here from these very published files.

    What was packed elsewhere is no proof of anything: whoever packs a bundle writes what it says. A
    damaged one is passed over: a bundle is fetched to put such things right.
    """
    for folder in data.installed().values():
        try:
            for encoder in installed_encoders(data, folder):
                if encoder.made_here and _is(encoder, wanted):
                    for name in encoder.entry.files.values():
                        verify_file(folder, name, encoder.manifest.files[name])
                    return encoder
        except BundleError:
            continue
    return None


def _is(encoder: InstalledEncoder, wanted: EncoderSource) -> bool:
    found = encoder.entry
    return (found.view, found.architecture) == (
        wanted.view,
        wanted.architecture,
    ) and same_content(encoder.sources, sources_of(wanted.files))
