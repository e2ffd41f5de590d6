"""A bundle in one file, for machines without a network: a plain tar, manifest first."""

import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from virnucpro.bundles.assemble import check_free
from virnucpro.bundles.bundle import Bundle, open_bundle
from virnucpro.bundles.claims import claimed_sources, refuse_other_content
from virnucpro.bundles.data_folder import DataFolder, require_space
from virnucpro.bundles.manifest import MANIFEST, parse_manifest, read_manifest
from virnucpro.bundles.plain_tar import files_of, is_file
from virnucpro.bundles.verify import FileDigest
from virnucpro.durable import write_file
from virnucpro.errors import BundleError, UsageError

__all__ = ["pack_bundle", "unpack_bundle"]

_MOST_MANIFEST_BYTES: Final = 4_000_000
_BLOCK_BYTES: Final = 1 << 20


def pack_bundle(bundle: Bundle, target: Path) -> int:
    """Write a bundle into one file; the same bundle gives the same bytes.

    Parameters
    ----------
    bundle
        As `open_bundle` verified it.
    target
        Where to write; it appears there whole or not at all. A symbolic link stays, and the file
        that it leads to is written.

    Returns
    -------
    Size of the file in bytes.

    Raises
    ------
    UsageError
        When what stands there is no file, or `target` lies in a bundle's folder.
    OSError
        When it cannot be written.
    """
    target = _place(bundle, target)
    names = (MANIFEST, *sorted(read_manifest(bundle.path).files))
    with (
        write_file(target) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = (bundle.path / name).stat().st_size
            with (bundle.path / name).open("rb") as content:
                archive.addfile(member, content)
    return target.stat().st_size


def _place(bundle: Bundle, target: Path) -> Path:
    """Find the place to write to, and refuse what a rename onto it would destroy.

    Nothing but a file may stand there: a device or a pipe would be gone for everybody.
    """
    place = Path(os.path.realpath(target))
    if target.exists() and not target.is_file():
        raise UsageError(f"{target}: stands there already, and is no file. Name another file.")
    if place.is_relative_to(os.path.realpath(bundle.path)) or (place.parent / MANIFEST).exists():
        raise UsageError(
            f"{target}: lies in the folder of a bundle, which would be no whole bundle any more. "
            "Name a file elsewhere."
        )
    return place


def unpack_bundle(archive: Path, data: DataFolder) -> Bundle:
    """Install a packed bundle, every file of it verified against its manifest.

    Only plain files that the manifest lists are taken, each once, under plain names; the bundle is
    installed whole or not at all.

    Raises
    ------
    BundleError
        When the archive is damaged or is none, when a member is not one of the manifest's, when a
        bundle of that name is installed, when it bears a published bundle's name and says itself
        that it is something else, or the disk is too small.
    """
    if not archive.is_file():
        problem = "is no regular file" if archive.exists() else "there is no such file"
        raise BundleError(f"{archive}: {problem}. Check the name of the packed bundle.")
    with data.lock():
        with archive.open("rb") as stream:
            name = _unpack(archive, stream, data)
        return open_bundle(str(data.bundle(name)))


def _unpack(archive: Path, stream: IO[bytes], data: DataFolder) -> str:
    members = _members(archive, stream)
    text = _first_member(archive, stream, members)
    manifest = parse_manifest(text, archive / MANIFEST)
    check_free(data, manifest.name)
    advice = f"{archive} holds it: do not use it, or have it packed under a name of its own."
    refuse_other_content(manifest.name, claimed_sources(manifest), manifest.window, advice)
    size = sum(entry.bytes for entry in manifest.files.values())
    if size > archive.stat().st_size:
        raise _damaged(archive, "is shorter than the files that it lists")
    require_space(data.bundles, size)
    with data.staging(manifest.name) as folder:
        (folder / MANIFEST).write_bytes(text)
        _extract(archive, stream, members, manifest.files, folder)
        open_bundle(str(folder))
    return manifest.name


def _members(archive: Path, stream: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    try:
        yield from files_of(stream)
    except BundleError as error:
        raise _damaged(archive, str(error)) from None


def _first_member(archive: Path, stream: IO[bytes], members: Iterator[tarfile.TarInfo]) -> bytes:
    """Read the manifest, which says what may follow."""
    first = next(members, None)
    if first is None or first.name != MANIFEST or not is_file(first):
        raise BundleError(
            f"{archive}: is no packed bundle, which begins with {MANIFEST}. "
            "Give a file that `virnucpro bundle pack` wrote."
        )
    if first.size > _MOST_MANIFEST_BYTES:
        raise _damaged(archive, f"has a {MANIFEST} of {first.size:,} bytes")
    return stream.read(first.size)


def _extract(
    archive: Path,
    stream: IO[bytes],
    members: Iterator[tarfile.TarInfo],
    files: Mapping[str, FileDigest],
    folder: Path,
) -> None:
    """Take what the manifest lists, and refuse anything else before it touches the disk."""
    wanted = dict(files)
    for member in members:
        listed = wanted.pop(member.name, None)
        if listed is None or not is_file(member) or member.size != listed.bytes:
            raise _damaged(
                archive, f"holds {member.name!r}, which is not what its {MANIFEST} lists"
            )
        with (folder / member.name).open("xb") as target:
            _copy(archive, stream, target, member.size)
    if wanted:
        raise _damaged(archive, f"lacks {', '.join(sorted(wanted))}")


def _copy(archive: Path, source: IO[bytes], target: IO[bytes], left: int) -> None:
    while left:
        block = source.read(min(left, _BLOCK_BYTES))
        if not block:
            raise _damaged(archive, "is cut off")
        target.write(block)
        left -= len(block)


def _damaged(archive: Path, problem: str) -> BundleError:
    return BundleError(
        f"{archive}: {problem}. Copy the file again, or pack the bundle again where it came from."
    )
