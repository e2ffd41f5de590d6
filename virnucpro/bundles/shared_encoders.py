"""Reuse the encoders of installed bundles in a new bundle, by hard links."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from virnucpro.bundles.checksums import verify_file
from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.manifest import EncoderEntry, Manifest, read_manifest
from virnucpro.bundles.provenance import claimed_sources, parts_converted_here, same_content
from virnucpro.bundles.published import EncoderSource, sources_of
from virnucpro.errors import BundleError

__all__ = ["InstalledEncoder", "find_encoder", "installed_encoders"]


@dataclass(frozen=True, slots=True)
class InstalledEncoder:
    """An encoder of an installed bundle.

    Attributes
    ----------
    folder
        Folder of the bundle.
    entry, manifest
        Manifest entry of the encoder, and the complete manifest of its bundle.
    sources
        Digest of each source file of the encoder, by the file's name, as the manifest states.
    converted_here
        True if the encoder was converted on this machine, so that `sources` are verified.
    """

    folder: Path
    entry: EncoderEntry
    manifest: Manifest
    sources: Mapping[str, str]
    converted_here: bool

    def verify(self) -> None:
        """Raise BundleError if a file of the encoder is damaged."""
        for name in self.entry.files.values():
            verify_file(self.folder, name, self.manifest.files[name])

    def link_into(self, folder: Path) -> EncoderEntry:
        """Verify the encoder, hard-link (or copy) its files into `folder`; return its entry."""
        self.verify()
        for name in self.entry.files.values():
            try:
                os.link(self.folder / name, folder / name)
            except OSError:
                shutil.copyfile(self.folder / name, folder / name)
        return self.entry


def installed_encoders(data: DataFolder, folder: Path) -> list[InstalledEncoder]:
    """Return the encoders of one installed bundle, in the order of its manifest.

    Raises
    ------
    BundleError
        If the manifest is malformed.
    """
    manifest = read_manifest(folder)
    sources, converted_here = claimed_sources(manifest), parts_converted_here(data, folder)
    return [
        InstalledEncoder(folder, entry, manifest, sources[entry.view], entry.view in converted_here)
        for entry in manifest.encoders
    ]


def find_encoder(data: DataFolder, wanted: EncoderSource) -> InstalledEncoder | None:
    """Return an undamaged installed encoder that this machine converted from `wanted`.

    Return None if there is no such encoder. Encoders that another machine converted are not used,
    because their sources are not verified.
    """
    kind, sources = (wanted.view, wanted.architecture), sources_of(wanted.files)
    for folder in data.installed().values():
        try:
            for one in installed_encoders(data, folder):
                same_kind = (one.entry.view, one.entry.architecture) == kind
                if one.converted_here and same_kind and same_content(one.sources, sources):
                    one.verify()
                    return one
        except BundleError:  # a damaged bundle: fetch the files instead
            continue
    return None
