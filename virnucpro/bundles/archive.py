"""Pack a bundle into one uncompressed tar file; unpack it on a machine without a network."""

import io
import os
import shutil
import tarfile
from pathlib import Path
from typing import Final

from virnucpro.bundles.bundle import open_bundle
from virnucpro.bundles.data_folder import DataFolder, require_space
from virnucpro.bundles.install import check_free
from virnucpro.bundles.manifest import MANIFEST, Bundle, parse_manifest
from virnucpro.bundles.provenance import claimed_sources, refuse_other_content
from virnucpro.durable import write_file
from virnucpro.errors import BundleError, UsageError

_MOST_MANIFEST: Final = 1 << 24
"""Largest size of a packed bundle.json in bytes; that of `mini` has 30 kB.

It also limits a header of long names, which tarfile reads into memory as a whole.
"""


class _ShortReads(io.FileIO):
    """File that refuses a read of more than `_MOST_MANIFEST` bytes at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _MOST_MANIFEST:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)


def pack_bundle(bundle: Bundle, target: Path) -> int:
    """Write a bundle into one tar file; return the size of the file.

    The bytes of the tar file depend only on the content of the bundle.

    Parameters
    ----------
    bundle
        A bundle that `open_bundle` returned.
    target
        Output file, replaced atomically. If it is a symbolic link, the file that it points to is
        replaced.

    Returns
    -------
    Size of the file in bytes.

    Raises
    ------
    UsageError
        If `target` is ``-`` or not a regular file, or if its folder is missing or is a bundle.
    OSError
        If the file cannot be written.
    """
    target = _output_file(target)
    names = (MANIFEST, *sorted(bundle.files))
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


def _output_file(target: Path) -> Path:
    """Return `target` without symbolic links; raise UsageError if it cannot be an output file."""
    resolved = Path(os.path.realpath(target))
    if str(target) == "-":
        raise UsageError("pack cannot write to standard output. Name a file.")
    if target.exists() and not target.is_file():
        raise UsageError(f"{target}: is not a regular file. Give the name of another file.")
    if not resolved.parent.is_dir():
        raise UsageError(
            f"{target.parent}: the folder does not exist. Create it, or give the name of "
            "another file."
        )
    if (resolved.parent / MANIFEST).exists():
        raise UsageError(
            f"{target}: is inside the folder of a bundle, which must not be changed. Name a file "
            "in another folder."
        )
    return resolved


def unpack_bundle(archive: Path, data: DataFolder) -> Bundle:
    """Install a packed bundle atomically, verify each of its files, and return the bundle.

    Raises
    ------
    BundleError
        If `archive` is damaged or is not a packed bundle; if it contains anything but regular files
        that its manifest lists; if the bundle's name is already in use; if the bundle has the name
        of a published bundle but other sources; if the disk has too little free space.
    """
    if not archive.is_file():
        problem = "is not a regular file" if archive.exists() else "no such file"
        raise BundleError(f"{archive}: {problem}. Check the name of the packed bundle.")
    with data.lock():
        try:
            with _ShortReads(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
                name = _install(archive, tar, data)
        except (BundleError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - tarfile raises many types for malformed headers
            raise _damaged(archive, f"cannot be read as a tar archive ({error})") from None
        return open_bundle(str(data.bundle(name)))


def _install(archive: Path, tar: tarfile.TarFile, data: DataFolder) -> str:
    text = _first_member(archive, tar)
    bundle = parse_manifest(text, archive)
    check_free(data, bundle.name)
    advice = (
        f"The bundle is in {archive}. Ask its author to correct it, or fetch the published bundle."
    )
    refuse_other_content(bundle.name, claimed_sources(bundle), bundle.window, advice)
    size = sum(entry.bytes for entry in bundle.files.values())
    if size > archive.stat().st_size:
        raise _damaged(archive, "is truncated: the files in its manifest are larger")
    require_space(data.bundles, size)
    with data.staging(bundle.name) as folder:
        (folder / MANIFEST).write_bytes(text)
        _extract(archive, tar, bundle, folder)
        open_bundle(str(folder))
    return bundle.name


def _first_member(archive: Path, tar: tarfile.TarFile) -> bytes:
    """Return the bytes of the manifest, which is the first file of the tar archive."""
    first = tar.next()
    if first is None or first.name != MANIFEST or not _is_stored(first):
        raise BundleError(
            f"{archive}: is not a packed bundle: its first file is not {MANIFEST}. "
            "Give a file that `virnucpro bundle pack` wrote."
        )
    if first.size > _MOST_MANIFEST:
        raise _damaged(archive, f"has a {MANIFEST} of {first.size:,} bytes")
    content = tar.extractfile(first)
    return content.read() if content else b""


def _is_stored(member: tarfile.TarInfo) -> bool:
    """Return whether a member is a regular file with all its bytes in the archive."""
    return member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()


def _extract(archive: Path, tar: tarfile.TarFile, bundle: Bundle, folder: Path) -> None:
    """Extract the files that bundle.json lists into `folder`.

    `parse_manifest` has already refused file names that contain a folder.
    ``TarFile.extract`` is not used: it ignores the umask, and Python 3.11.0 to 3.11.3 lack its
    filters.
    """
    wanted = dict(bundle.files)
    while (member := tar.next()) is not None:
        listed = wanted.pop(member.name, None)
        content = tar.extractfile(member) if listed and _is_stored(member) else None
        if listed is None or content is None or member.size != listed.bytes:
            raise _damaged(
                archive,
                f"contains {member.name!r}, but {MANIFEST} lists no such file of this size",
            )
        with (folder / member.name).open("xb") as target:
            shutil.copyfileobj(content, target)
    if wanted:
        raise _damaged(archive, f"lacks {', '.join(sorted(wanted))}")


def _damaged(archive: Path, problem: str) -> BundleError:
    return BundleError(
        f"{archive}: {problem}. Copy the file again, or pack the bundle again on its machine."
    )
