"""Bundles that others may use, and what is said where they may not."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from virnucpro.bundles.archive import pack_bundle, unpack_bundle
from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.fetch import Listener, fetch_bundle
from virnucpro.bundles.import_head import OwnFiles, import_classifier
from virnucpro.bundles.permissions import advice_on_reading, who_opens

SILENT = Listener(lambda _: None, lambda *_: None)

AS_ANYBODY = """
import ctypes, os, sys
if os.geteuid() == 0 and sys.argv[1] != "again":
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: modes hold for root, too
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
    os.execv(sys.executable, [*sys.orig_argv[:3], "again", *sys.argv[2:]])
from virnucpro.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def under():
    """Set the umask, for the rest of the test."""
    former = os.umask(0o022)
    yield os.umask
    os.umask(former)


@pytest.fixture
def tell(tmp_path):
    """Run a command line as somebody for whom modes hold; give what it tells on standard error."""

    def run(*arguments, data):
        done = subprocess.run(
            [sys.executable, "-c", AS_ANYBODY, "first", *arguments],
            env=os.environ | {"VIRNUCPRO_DATA": str(data)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        return done.stderr

    return run


def modes(folder):
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_every_file_of_a_bundle_has_the_mode_that_the_umask_says(
    files, stand_ins, tmp_path, under, umask, mode
):
    under(umask)
    data, other = DataFolder(tmp_path / "data"), DataFolder(tmp_path / "other")
    recipe = stand_ins.recipe_of_files(files, "stand-in")
    fetched = fetch_bundle(recipe, data, SILENT, source=files)
    own = OwnFiles(files, files / "esm2_tiny.pt")
    imported = import_classifier(files / "500_model.pth", data, name="own", encoders=own)
    pack_bundle(fetched, tmp_path / "one.tar")
    unpacked = unpack_bundle(tmp_path / "one.tar", other)
    assert modes(fetched.path) == modes(imported.path) == modes(unpacked.path) == {mode}
    assert stat.S_IMODE(fetched.path.stat().st_mode) == mode | (mode & 0o444) >> 2


def test_an_encoder_that_is_shared_is_opened_to_those_who_may_read_the_bundle(
    files, stand_ins, tmp_path, under
):
    data, recipe = DataFolder(tmp_path / "data"), stand_ins.recipe_of_files(files)
    first = fetch_bundle(recipe, data, SILENT, source=files)
    for path in first.path.glob("*.safetensors"):
        path.chmod(0o600)
    again = stand_ins.recipe_of_files(files, "virnucpro-300", 300)
    second = fetch_bundle(again, data, SILENT, source=files)
    assert modes(second.path) == {0o644}
    weights = [one.path / "protein.safetensors" for one in (first, second)]
    assert weights[0].stat().st_ino == weights[1].stat().st_ino
    under(0o077)
    last = stand_ins.recipe_of_files(files, "virnucpro-100", 100)
    fetch_bundle(last, data, SILENT, source=files)
    assert stat.S_IMODE(weights[0].stat().st_mode) == 0o644, "the others' stays open"


@pytest.mark.parametrize(
    ("closed", "mode", "command"),
    [
        ("tiny/protein.safetensors", 0o000, "chmod -R u+rX {bundles}/tiny"),
        ("tiny/bundle.json", 0o000, "chmod -R u+rX {bundles}/tiny"),
        ("tiny", 0o600, "chmod -R u+rX {bundles}/tiny"),
        ("", 0o600, "chmod u+x {bundles}"),
    ],
)
def test_a_closed_part_of_a_bundle_is_named_with_the_command_that_opens_it(
    bundle_folder, tmp_path, tell, closed, mode, command
):
    bundles = tmp_path / "data" / "bundles"
    bundles.mkdir(parents=True)
    shutil.copytree(bundle_folder, bundles / "tiny")
    part = bundles / closed
    before = stat.S_IMODE(part.stat().st_mode)
    part.chmod(mode)
    try:
        told = tell("bundle", "verify", "tiny", data=tmp_path / "data")
    finally:
        part.chmod(before)
    expected = f"{part} is yours and has mode {mode:04o}, which is closed to you: "
    assert expected + command.format(bundles=bundles) in told.replace("\n  ", " ")
    assert "Get the bundle" not in told
    assert "writable" not in told


def test_a_file_of_somebody_else_is_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "it's here"
    path.write_text("")
    uid = path.stat().st_uid
    monkeypatch.setattr(os, "access", lambda part, *_, **__: part != path)
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    told = who_opens(path)
    assert f"{path} belongs to " in told
    assert "Ask them, or whoever looks after the machine, for: chmod a+r '" in told
    denied = OSError(errno.EACCES, "Permission denied")
    assert f"chmod -R a+rX {tmp_path}" in advice_on_reading(path, denied, "Get it.")
    assert advice_on_reading(path, OSError(errno.EIO, "x"), "Get it.") == "Get it."
    monkeypatch.setattr(os, "access", lambda *_, **__: True)
    assert "access list" in advice_on_reading(path, denied, "Get it.")
    assert who_opens(Path("/no/such/file")) is None
