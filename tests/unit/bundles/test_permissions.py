"""Permissions of installed bundles, and errors and warnings about permissions."""

import os
import shutil
import stat

import pytest
from cases import slow
from programs import run_without_root

from virnucpro.bundles.bundle import open_bundle
from virnucpro.bundles.data_folder import DataFolder
from virnucpro.bundles.fetch import Listener, fetch_bundle

SILENT = Listener(lambda _: None, lambda *_: None)


@pytest.fixture
def set_umask():
    """Set the umask for the rest of the test."""
    former = os.umask(0o022)
    yield os.umask
    os.umask(former)


def modes(folder):
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_every_file_of_a_bundle_has_the_mode_of_the_umask(
    files, stand_ins, tmp_path, set_umask, umask, mode
):
    set_umask(umask)
    data = DataFolder(tmp_path / "data")
    recipe = stand_ins.recipe_of_files(files, "stand-in")
    fetched = fetch_bundle(recipe, data, SILENT, source=files)
    assert modes(fetched.path) == {mode}
    assert stat.S_IMODE(fetched.path.stat().st_mode) == mode | (mode & 0o444) >> 2


@pytest.mark.parametrize(
    ("closed", "mode"),
    [
        ("tiny/protein.safetensors", 0o000),
        slow("tiny/bundle.json", 0o000),
        slow("tiny", 0o600),
        slow("", 0o600),
    ],
)
def test_a_bundle_without_read_permission_is_an_error_with_the_chmod_command(
    bundle_folder, tmp_path, closed, mode
):
    bundles = tmp_path / "data" / "bundles"
    bundles.mkdir(parents=True)
    shutil.copytree(bundle_folder, bundles / "tiny")
    part = bundles / closed
    before = stat.S_IMODE(part.stat().st_mode)
    part.chmod(mode)
    try:
        done = run_without_root("bundle", "verify", "tiny", VIRNUCPRO_DATA=str(tmp_path / "data"))
    finally:
        part.chmod(before)
    assert done.returncode == 1
    assert "tiny" in done.stderr
    assert "cannot be read (Permission denied)" in done.stderr
    assert f"chmod -R a+rX {bundles}/tiny" in done.stderr
    assert "Get the bundle" not in done.stderr
    assert "writable" not in done.stderr


@pytest.mark.parametrize("own", ["", slow("named")])
def test_a_home_folder_of_another_user_has_no_bundles(tmp_path, own):
    """A data folder that the user named must be readable."""
    home = tmp_path / "home"
    home.mkdir(mode=0)
    named = {"HOME": str(home), "XDG_DATA_HOME": "", "VIRNUCPRO_DATA": own and str(home / own)}
    try:
        done = run_without_root("bundle", "show", "nix", **named)
    finally:
        home.chmod(0o700)
    if own:
        assert (done.returncode, str(home) in done.stderr) == (1, True)
        return
    assert done.returncode == 64
    assert "(mini, mini-deep)" in done.stderr
    bundles = home / ".local" / "share" / "virnucpro" / "bundles"
    assert f"{bundles} cannot be read; VIRNUCPRO_DATA can name another" in done.stderr


@pytest.mark.parametrize(
    ("part", "mode", "warned"),
    [
        ("", 0o777, True),
        ("", 0o775, False),
        ("bundle.json", 0o666, True),
        ("head.safetensors", 0o646, True),
        ("head.safetensors", 0o664, False),
    ],
)
def test_a_bundle_that_all_users_can_change_is_a_warning(bundle_folder, caplog, part, mode, warned):
    (bundle_folder / part).chmod(mode)
    open_bundle(str(bundle_folder))
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == warned
    for message in messages:
        assert f"{bundle_folder / part} is writable by other users (mode {mode:04o})" in message
        assert f"chmod -R go-w {bundle_folder}" in message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")
@pytest.mark.parametrize(
    ("owner", "mode", "warned"),
    [(1000, 0o664, True), (1000, 0o644, False), (0, 0o664, False), (1001, 0o664, False)],
)
def test_a_group_writable_bundle_of_another_user_is_a_warning(
    bundle_folder, caplog, monkeypatch, owner, mode, warned
):
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    for path in (bundle_folder, *bundle_folder.iterdir()):
        os.chown(path, owner, 0)
    (bundle_folder / "head.safetensors").chmod(mode)
    open_bundle(str(bundle_folder))
    assert bool(caplog.records) == warned


def test_the_command_prints_the_warning_once_and_succeeds(bundle_folder):
    (bundle_folder / "protein.safetensors").chmod(0o666)
    data = str(bundle_folder.parent)
    done = run_without_root("bundle", "verify", str(bundle_folder), VIRNUCPRO_DATA=data)
    assert done.returncode == 0
    assert done.stderr.count("bundle tiny: ") == done.stderr.count("\n") == 1
    assert "protein.safetensors is writable by other users" in done.stderr
