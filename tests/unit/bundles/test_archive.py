import io
import json
import os
import shutil
import tarfile

import pytest

from virnucpro.bundles.archive import pack_bundle, unpack_bundle
from virnucpro.bundles.bundle import open_bundle
from virnucpro.errors import BundleError, UsageError


@pytest.fixture
def packed(bundle_folder, tmp_path):
    pack_bundle(open_bundle(str(bundle_folder)), tmp_path / "tiny.tar")
    return tmp_path / "tiny.tar"


def members_of(path):
    with tarfile.open(path) as archive:
        return [(member, archive.extractfile(member).read()) for member in archive.getmembers()]


def repack(packed, change):
    """Rewrite the archive with its members changed by a function."""
    members = members_of(packed)
    with tarfile.open(packed, "w") as archive:
        for member, content in change(members):
            plain = member.isreg()
            archive.addfile(member, io.BytesIO(content) if plain else None)
    return packed


def refused(data, archive, message):
    """Check that an archive is refused with this message and leaves nothing."""
    with pytest.raises(BundleError, match=message):
        unpack_bundle(archive, data)
    assert list(data.bundles.glob("*")) == []


def test_an_unpacked_bundle_equals_the_packed_one(bundle_folder, packed, data):
    bundle = unpack_bundle(packed, data)
    assert bundle.path == data.root / "bundles" / "tiny"
    assert bundle.fingerprint == open_bundle(str(bundle_folder)).fingerprint
    for path in bundle_folder.iterdir():
        assert (bundle.path / path.name).read_bytes() == path.read_bytes()


def test_the_same_bundle_is_packed_into_the_same_bytes(bundle_folder, packed, tmp_path):
    copy = shutil.copytree(bundle_folder, tmp_path / "copy")
    (copy / "tokenizer.json").touch()
    size = pack_bundle(open_bundle(str(copy)), tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == packed.read_bytes()
    assert size == packed.stat().st_size


def test_a_flipped_byte_is_refused_or_changes_nothing(packed, data, bundle_folder):
    content = packed.read_bytes()
    expected = open_bundle(str(bundle_folder)).fingerprint
    for position in range(0, len(content), 397):
        flipped = bytearray(content)
        flipped[position] ^= 0x41
        packed.write_bytes(flipped)
        try:
            bundle = unpack_bundle(packed, data)
        except BundleError:
            assert list(data.bundles.iterdir()) == []
            continue
        assert bundle.fingerprint == expected
        shutil.rmtree(bundle.path)


def test_a_truncated_archive_is_refused(packed, data):
    content = packed.read_bytes()
    end = content.rstrip(b"\0")
    for size in (0, 100, 511, 512, 1000, len(content) // 2, len(end) - 1):
        packed.write_bytes(content[:size])
        refused(data, packed, r"tiny\.tar")


def member(name, content=b"x", kind=tarfile.REGTYPE, link=""):
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = len(content) * (kind == tarfile.REGTYPE), kind, link
    return made, content


HOSTILE = {
    "above": member("../outside"),
    "absolute": member("/tmp/outside-of-virnucpro"),
    "below": member("sub/file"),
    "surplus": member("surplus"),
    "symbolic link": member("protein.safetensors", b"", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": member("protein.safetensors", b"", tarfile.LNKTYPE, "head.safetensors"),
    "folder": member("protein.safetensors", b"", tarfile.DIRTYPE),
    "fifo": member("protein.safetensors", b"", tarfile.FIFOTYPE),
    "device": member("protein.safetensors", b"", tarfile.CHRTYPE),
    "other size": member("protein.safetensors", b"xyz"),
    "twice": None,
    "old sparse file": member("protein.safetensors", b"", tarfile.GNUTYPE_SPARSE),
    "second manifest": member("bundle.json", b"{}"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_member_that_the_manifest_does_not_list_is_refused(packed, data, tmp_path, what):
    def change(members):
        extra = HOSTILE[what] or members[2]
        kept = [one for one in members if one[0].name != extra[0].name or what == "twice"]
        first = members[0]
        return [first, extra, *(one for one in kept if one[0].name != "bundle.json")]

    before = sorted(path.name for path in tmp_path.iterdir())
    refused(data, repack(packed, change), r"contains '.*', but bundle\.json lists no such file")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({*before, "data"})


def raw(kind, size=0, content=b"", name="x"):
    """A header of any type and size with a valid checksum, and content in whole blocks."""
    made = tarfile.TarInfo(name)
    made.type, made.size = kind, abs(size)
    block = bytearray(made.tobuf(tarfile.GNU_FORMAT)[:512])
    if size < 0:
        block[124:136] = (2**96 + size).to_bytes(12, "big")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + content + bytes(-len(content) % 512)


def pax(*records):
    text = b"".join(records)
    return raw(tarfile.XHDTYPE, len(text), text)


def record(name, value):
    text = f" {name}={value}\n".encode()
    length = next(n for n in range(9999) if len(str(n)) + len(text) == n)
    return str(length).encode() + text


MALFORMED = {
    "pax headers in pax headers": pax(record("a", "b")) * 3000,
    "long names in long names": raw(tarfile.GNUTYPE_LONGNAME, 2, b"x\0") * 3000,
    "sparse map without numbers": pax(record("GNU.sparse.map", "a,b")),
    "negative pax size": raw(tarfile.XHDTYPE, -1024),
    "negative size": raw(tarfile.REGTYPE, -1024),
    "size below zero": pax(record("size", "-5")),
    "pax header of gigabytes": raw(tarfile.XHDTYPE, 5 << 30, b"x"),
}


def insert(packed, extra, *, behind):
    """Write bytes before or after the manifest of an archive."""
    content = packed.read_bytes()
    start = 512 + -(-members_of(packed)[0][0].size // 512) * 512 if behind else 0
    packed.write_bytes(content[:start] + extra + content[start:])
    return packed


@pytest.mark.parametrize("behind", [False, True], ids=["first", "behind a manifest"])
@pytest.mark.parametrize("header", MALFORMED)
def test_a_malformed_header_is_one_clear_error(packed, data, header, behind):
    refused(data, insert(packed, MALFORMED[header], behind=behind), r"tiny\.tar")


def sparse(name):
    """A few bytes of the archive would become gigabytes."""
    header = pax(record("GNU.sparse.map", "0,1"), record("GNU.sparse.size", str(3 << 30)))
    return header + raw(tarfile.REGTYPE, 1, b"{", name)


@pytest.mark.parametrize(
    ("extra", "behind", "problem"),
    [
        (sparse("bundle.json"), False, "its first file is not bundle.json"),
        (sparse("head.safetensors"), True, "contains 'head.safetensors'"),
        (
            raw(tarfile.REGTYPE, 3 << 30, b"{", "bundle.json"),
            False,
            r"has a bundle\.json of 3,221,225,472 bytes",
        ),
    ],
    ids=["sparse manifest", "sparse weights", "manifest of gigabytes"],
)
def test_a_member_of_gigabytes_is_refused(packed, data, extra, behind, problem):
    refused(data, insert(packed, extra, behind=behind), problem)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("behind", [False, True], ids=["first", "behind a manifest"])
def test_a_header_of_gigabytes_does_not_fill_the_memory(packed, data, kind, behind):
    insert(packed, raw(kind, 3 << 30, b"x"), behind=behind)
    os.truncate(packed, 4 << 30)  # holes: all bytes of the header are there
    refused(data, packed, "a header of 3221225472 bytes")


def test_sizes_and_names_in_pax_headers_are_read(packed, data):
    """As `pack` writes them for files of 8 GiB and more."""
    members = members_of(packed)
    with tarfile.open(packed, "w", format=tarfile.PAX_FORMAT) as archive:
        for one, content in members:
            plain = tarfile.TarInfo("elsewhere")
            plain.size = len(content)
            plain.pax_headers = {"path": one.name, "size": str(len(content)), "mtime": "1.5"}
            archive.addfile(plain, io.BytesIO(content))
    assert unpack_bundle(packed, data).name == "tiny"


def with_manifest(change):
    """Return a change of members: that of the manifest's content by a function."""

    def apply(members):
        manifest = json.loads(members[0][1])
        change(manifest)
        return [member("bundle.json", json.dumps(manifest).encode()), *members[1:]]

    return apply


def named(name):
    return with_manifest(lambda manifest: manifest.update(name=name))


ODD_NAMES = ["..", "/x", "", ".hidden", "-a", "a\\b", "x" * 101, "x.1-01234567.tmp", "ä"]
CHANGES = {name or "no name": (named(name), "cannot be a bundle's name") for name in ODD_NAMES} | {
    "embedded": (named("mini"), "name of an embedded bundle"),
    "larger files than the archive": (
        with_manifest(lambda m: m["files"]["tokenizer.json"].update(bytes=10**15)),
        "is truncated",
    ),
    "missing member": (
        lambda members: [one for one in members if one[0].name != "tokenizer.json"],
        r"lacks tokenizer\.json",
    ),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_a_manifest_that_does_not_fit_the_archive_is_refused(packed, data, change, message):
    refused(data, repack(packed, change), message)


def test_an_installed_bundle_is_not_overwritten(packed, data):
    bundle = unpack_bundle(packed, data)
    with pytest.raises(BundleError, match=rf"{bundle.path}\)\. Remove that folder first"):
        unpack_bundle(packed, data)


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:bz2"])
def test_a_compressed_archive_is_refused(packed, data, mode):
    members = members_of(packed)
    with tarfile.open(packed, mode) as archive:
        for one, content in members:
            archive.addfile(one, io.BytesIO(content))
    refused(data, packed, "cannot be read")


def test_another_file_is_refused(tmp_path, data):
    (tmp_path / "other.tar").write_bytes(b"hello" * 1000)
    refused(data, tmp_path / "other.tar", r"other\.tar: cannot be read")
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.addfile(*[member("readme")[0], io.BytesIO(b"x")])
    refused(data, tmp_path / "other.tar", r"is not a packed bundle.*bundle pack")
    refused(data, tmp_path / "none.tar", r"none\.tar: no such file")
    os.mkfifo(tmp_path / "pipe.tar")
    refused(data, tmp_path / "pipe.tar", r"pipe\.tar: is not a regular file")


def test_a_pipe_is_not_replaced_by_an_archive(bundle_folder, tmp_path):
    bundle = open_bundle(str(bundle_folder))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(UsageError, match=rf"{name}: is not a regular file"):
            pack_bundle(bundle, tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_the_target_of_a_link_is_written(bundle_folder, packed, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "old.tar").write_text("old")
    for target in ("deep/old.tar", "deep/new.tar"):
        link = tmp_path / "link.tar"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        pack_bundle(open_bundle(str(bundle_folder)), link)
        assert link.is_symlink()
        assert (tmp_path / target).read_bytes() == packed.read_bytes()


@pytest.mark.parametrize("name", ["bundle.json", "new.tar"])
def test_a_bundle_is_not_packed_into_a_bundles_folder(bundle_folder, tmp_path, name):
    bundle = open_bundle(str(bundle_folder))
    other = shutil.copytree(bundle_folder, tmp_path / "other")
    (tmp_path / "link").symlink_to(bundle_folder)
    for folder in (bundle_folder, tmp_path / "link", other):
        with pytest.raises(UsageError, match="is inside the folder of a bundle"):
            pack_bundle(bundle, folder / name)
    assert open_bundle(str(bundle_folder)) == bundle
    open_bundle(str(other))
