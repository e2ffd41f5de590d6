import os
from pathlib import Path

import pytest

from virnucpro.bundles.data_folder import DataFolder, data_folder, require_space
from virnucpro.errors import BundleError, RunError


def test_the_environment_names_the_data_folder():
    assert data_folder({"VIRNUCPRO_DATA": "/a"}).root == Path("/a")
    assert data_folder({"VIRNUCPRO_DATA": "a"}).root == Path("a").absolute()
    assert data_folder({"XDG_DATA_HOME": "/x"}).root == Path("/x/virnucpro")
    home = Path.home() / ".local" / "share" / "virnucpro"
    assert data_folder({}).root == home
    assert data_folder({"XDG_DATA_HOME": "relative", "VIRNUCPRO_DATA": ""}).root == home


def test_a_bundle_is_installed_atomically(tmp_path):
    data = DataFolder(tmp_path)
    with data.lock():
        with pytest.raises(IsADirectoryError), data.staging("one") as folder:
            folder.write_text("half")
        assert list(data.bundles.iterdir()) == []
        with data.staging("one") as folder:
            (folder / "bundle.json").write_text("whole")
            assert not data.bundle("one").exists()
        with data.staging("one") as folder:
            (folder / "bundle.json").write_text("better")
            assert (data.bundle("one") / "bundle.json").read_text() == "whole"
    assert (data.bundle("one") / "bundle.json").read_text() == "better"
    assert [path.name for path in data.bundles.iterdir()] == ["one"]


def test_an_unfinished_bundle_is_not_listed(tmp_path):
    data = DataFolder(tmp_path)
    with data.lock(), data.staging("one") as folder:
        (folder / "bundle.json").write_text("{}")
        assert data.installed() == {}
    assert data.installed() == {"one": data.bundle("one")}


def test_the_lock_is_released_after_an_error(tmp_path):
    data = DataFolder(tmp_path)
    with pytest.raises(KeyError), data.lock():
        raise KeyError
    with data.lock(), pytest.raises(BundleError, match=f"pid {os.getpid()}"), data.lock():
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere: run as another user")
def test_a_folder_without_permission_is_named(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(BundleError, match="Permission denied"), DataFolder(tmp_path).lock():
            pass
    finally:
        tmp_path.chmod(0o700)


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "bundles").write_text("")
    with (
        pytest.raises(BundleError, match=r"bundles: .*VIRNUCPRO_DATA"),
        DataFolder(tmp_path).lock(),
    ):
        pass


def test_a_full_disk_is_refused(tmp_path):
    require_space(tmp_path, 1)
    with pytest.raises(BundleError, match=r"1000000\.02 GB of disk space are needed"):
        require_space(tmp_path, 10**15)


def test_unfinished_bundles_are_removed_and_files_behind_links_kept(tmp_path):
    data, elsewhere = DataFolder(tmp_path / "data"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis").touch()
    with data.lock():
        (data.bundle("x.17-0123abcd.tmp")).mkdir()
        (data.bundle("y.17-0123abcd.tmp")).symlink_to(elsewhere)
        (data.bundle("thesis.tmp")).mkdir()
        with data.staging("one") as folder:
            (folder / "file").touch()
    assert sorted(path.name for path in data.bundles.iterdir()) == ["one", "thesis.tmp"]
    data.bundle("two").symlink_to(elsewhere)
    with data.lock(), pytest.raises(RunError, match="two is a symbolic link"), data.staging("two"):
        pass
    assert (elsewhere / "thesis").exists()
