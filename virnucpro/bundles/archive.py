"""A bundle in one file, for machines without a network: a plain tar, manifest first."""

import shutil
import tarfile
from pathlib import Path
from typing import IO, Final

from virnucpro.bundles.assemble import check_free
from virnucpro.bundles.bundle import Bundle, open_bundle
from virnucpro.bundles.data_folder import DataFolder, require_space
from virnucpro.bundles.manifest import MANIFEST, Manifest, parse_manifest, read_manifest
from virnucpro.durable import write_file
from virnucpro.errors import BundleError

__all__ = ["pack_bundle", "unpack_bundle"]

_MOST_MANIFEST_BYTES: Final = 4_000_000


def pack_bundle(bundle: Bundle, target: Path) -> int:
    """Write a bundle into one file; the same bundle gives the same bytes.

    Parameters
    ----------
    bundle
        As `open_bundle` verified it.
    target
        Where to write; it appears there whole or not at all.

    Returns
    -------
    Size of the file in bytes.

    Raises
    ------
    OSError
        When it cannot be written.
    """
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


def unpack_bundle(archive: Path, data: DataFolder) -> Bundle:
    """Install a packed bundle, every file of it verified against its manifest.

    Only plain files that the manifest lists are taken, each once, under plain names; the bundle is
    installed whole or not at all.

    Raises
    ------
    BundleError
        When the archive is damaged or is none, when a member is not one of the manifest's, when a
        bundle of that name is installed, or the disk is too small.
    """
    if not archive.is_file():
        raise BundleError(f"{archive}: there is no such file. Check the name of the packed bundle.")
    with data.lock():
        try:
            with archive.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as members:
                name = _unpack(archive, members, data)
        except (tarfile.TarError, EOFError) as error:
            raise _damaged(archive, f"cannot be read ({error})") from None
        return open_bundle(str(data.bundle(name)))


def _unpack(archive: Path, members: tarfile.TarFile, data: DataFolder) -> str:
    text = _first_member(archive, members)
    manifest = parse_manifest(text, archive / MANIFEST)
    check_free(data, manifest.name)
    size = sum(entry.bytes for entry in manifest.files.values())
    if size > archive.stat().st_size:
        raise _damaged(archive, "is shorter than the files that it lists")
    require_space(data.bundles, size)
    with data.staging(manifest.name) as folder:
        (folder / MANIFEST).write_bytes(text)
        _extract(archive, members, manifest, folder)
        open_bundle(str(folder))
    return manifest.name


def _first_member(archive: Path, members: tarfile.TarFile) -> bytes:
    """Read the manifest, which says what may follow."""
    first = members.next()
    if first is None or first.name != MANIFEST or not _plain(first):
        raise BundleError(
            f"{archive}: is no packed bundle, which begins with {MANIFEST}. "
            "Give a file that `virnucpro bundle pack` wrote."
        )
    if first.size > _MOST_MANIFEST_BYTES:
        raise _damaged(archive, f"has a {MANIFEST} of {first.size:,} bytes")
    with _content(archive, members, first) as content:
        return content.read()


def _extract(archive: Path, members: tarfile.TarFile, manifest: Manifest, folder: Path) -> None:
    """Take what the manifest lists, and refuse anything else before it touches the disk."""
    wanted = dict(manifest.files)
    while (member := members.next()) is not None:
        listed = wanted.pop(member.name, None)
        if listed is None or not _plain(member) or member.size != listed.bytes:
            raise _damaged(
                archive, f"holds {member.name!r}, which is not what its {MANIFEST} lists"
            )
        with (
            _content(archive, members, member) as content,
            (folder / member.name).open("xb") as target,
        ):
            shutil.copyfileobj(content, target, 1 << 20)
    if wanted:
        raise _damaged(archive, f"lacks {', '.join(sorted(wanted))}")


def _plain(member: tarfile.TarInfo) -> bool:
    """Tell a file of plain bytes from links, devices, folders and files with holes."""
    return member.type == tarfile.REGTYPE and member.sparse is None


def _content(archive: Path, members: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = members.extractfile(member)
    if content is None:
        raise _damaged(archive, f"holds {member.name!r}, which is no file")
    return content


def _damaged(archive: Path, problem: str) -> BundleError:
    return BundleError(
        f"{archive}: {problem}. Copy the file again, or pack the bundle again where it came from."
    )
