"""A release of the last commit: what pip installs from it, and what the checkout gets."""

import hashlib
import importlib.util
import os
import platform
import re
import subprocess
import zipfile

import pytest
import yaml

pytestmark = [pytest.mark.packages, pytest.mark.timeout(600)]

SDIST_URL = "https://example.org/virnucpro.tar.gz"
MOST_BYTES = 20_000_000
TAG = f"py3-none-manylinux_2_17_{platform.machine()}"


def git(folder, *arguments, **options):
    return subprocess.run(
        ["git", *map(str, arguments)],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        **options,
    ).stdout.strip()


@pytest.fixture(scope="module")
def release(root, tool, identity, tmp_path_factory):
    """(checkout, dist, version, text printed) of a release of a clone of this repository."""
    folder = tmp_path_factory.mktemp("release")
    checkout, dist = folder / "checkout", folder / "dist"
    git(root, "clone", "--quiet", "--no-tags", root, checkout)
    script = checkout / "scripts" / "release.py"
    current = re.search(r'"(\d+)\.(\d+)\.\d+"', (checkout / "virnucpro/__init__.py").read_text())
    version = f"{current[1]}.{int(current[2]) + 1}.0"
    done = subprocess.run(
        [tool("python"), script, version, "--dist", dist, "--sdist-url", SDIST_URL],
        env={name: value for name, value in identity.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout, dist, version, done.stdout


def test_the_readme_example_runs_from_the_wheel_in_an_empty_environment(release):
    """release.py compares the table with the README; it stops before the tag if they differ."""
    *_, printed = release
    assert "No broken requirements found." in printed
    assert re.search(r"^NC_045512.2 +29903 .* viral ", printed, re.MULTILINE)
    assert printed.index("NC_045512.2") < printed.index("tagged: v")


def test_a_wheel_with_mini_has_at_most_20_mb(release):
    _, dist, version, _ = release
    wheel = dist / f"virnucpro-{version}-{TAG}.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.stat().st_size <= MOST_BYTES
    assert "virnucpro/bundles/mini/head.safetensors" in names
    assert "virnucpro/compiled/functions.shared" in names
    assert {name.split("/")[0] for name in names} == {"virnucpro", f"virnucpro-{version}.dist-info"}
    assert [name for name in names if "__pycache__" in name] == []


def test_sdist_and_checkout_build_the_same_wheel(release, root, tool, tmp_path):
    """The released wheel was built from the sdist."""
    checkout, dist, version, _ = release
    subprocess.run(
        [tool("python"), "-m", "build", "--wheel", "--outdir", tmp_path, checkout],
        check=True,
        capture_output=True,
        env={**os.environ, "PIP_CONSTRAINT": str(root / "constraints.txt")},
    )
    name = f"virnucpro-{version}-{TAG}.whl"
    assert contents(tmp_path / name) == contents(dist / name)


def contents(wheel):
    return {entry.filename: entry.CRC for entry in zipfile.ZipFile(wheel).infolist()}


def test_the_checkout_gets_one_commit_and_a_tag(release, root):
    checkout, _, version, _ = release
    assert git(checkout, "log", "-1", "--format=%s") == f"Release {version}"
    assert git(checkout, "rev-parse", "HEAD~1") == git(root, "rev-parse", "HEAD")
    assert git(checkout, "rev-parse", f"v{version}^{{commit}}") == git(
        checkout, "rev-parse", "HEAD"
    )
    assert git(checkout, "status", "--porcelain") == ""


def test_every_file_names_the_new_version(release):
    checkout, _, version, _ = release
    spec = importlib.util.spec_from_file_location("release", checkout / "scripts" / "release.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert set(map(tuple, script.versions(checkout).values())) == {(version,)}
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert citation["version"] == version
    date = citation["date-released"].isoformat()
    changelog = (checkout / "CHANGELOG.md").read_text()
    assert f"\n## [Unreleased]\n\n## [{version}] - {date}\n" in changelog


def test_the_written_recipe_has_the_checksum_of_the_sdist(release):
    _, dist, version, _ = release
    recipe = yaml.safe_load((dist / "recipe.yaml").read_text())
    digest = hashlib.sha256((dist / f"virnucpro-{version}.tar.gz").read_bytes()).hexdigest()
    assert recipe["source"] == {"url": SDIST_URL, "sha256": digest}
    assert recipe["context"]["version"] == version
