"""What scripts/release.py refuses; the form of the changelog and of the versions."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from programs import load_script

ROOT = Path(__file__).parents[2]
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.fixture(scope="module")
def script():
    return load_script("release")


@pytest.fixture
def checkout(script, tmp_path):
    """A repository with the files that a release changes, at version 0.1.0 with one change."""
    folder = tmp_path / "checkout"
    for name in script.MENTIONS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n### Added\n- A thing.\n"
    )
    script.set_version(folder, "0.1.0", "2026-01-01")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "All"]):
        git(folder, *command)
    return folder


def git(folder, *arguments):
    identity = ["-c", "user.name=virnucpro", "-c", "user.email=virnucpro"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def unreleased(folder, text):
    path = folder / "CHANGELOG.md"
    path.write_text(path.read_text().replace("## [Unreleased]\n", f"## [Unreleased]\n{text}", 1))
    git(folder, "commit", "--quiet", "--all", "-m", "Change")


def test_all_files_name_the_version_of_the_package(script):
    from virnucpro import __version__

    assert set(map(tuple, script.versions(ROOT).values())) == {(__version__,)}


def test_a_checkout_with_an_entry_can_be_released(script, checkout):
    unreleased(checkout, "\n### Fixed\n- Another thing.\n")
    script.check(checkout, "0.1.0")
    script.check(checkout, "0.2.0")


def with_another_version_in_a_recipe(folder):
    path = folder / "scripts" / "packaging" / "bioconda" / "recipe.yaml"
    path.write_text(path.read_text().replace("0.1.0", "0.0.1"))


def unchanged(_folder):
    pass


@pytest.mark.parametrize(
    ("change", "version", "message"),
    [
        (unchanged, "0.2", r"not of the form X\.Y\.Z"),
        (unchanged, "v0.2.0", r"not of the form X\.Y\.Z"),
        (unchanged, "0.2.0rc1", r"not of the form X\.Y\.Z"),
        (unchanged, "00.2.0", r"not of the form X\.Y\.Z"),
        (unchanged, "", r"not of the form X\.Y\.Z"),
        (unchanged, "0.0.9", r"0\.0\.9 is lower than 0\.1\.0"),
        (unchanged, "0.2.0", r"\[Unreleased\] has no entry"),
        (
            with_another_version_in_a_recipe,
            "0.2.0",
            r"not version 0\.1\.0.*bioconda/recipe\.yaml",
        ),
        (lambda folder: git(folder, "tag", "v0.2.0"), "0.2.0", r"tag v0\.2\.0 exists"),
        (
            lambda folder: (folder / "notes.txt").touch(),
            "0.2.0",
            r"has changes(?s:.*)notes\.txt",
        ),
    ],
)
def test_an_unready_checkout_or_version_is_refused(script, checkout, change, version, message):
    change(checkout)
    with pytest.raises(script.ReleaseError, match=message):
        script.check(checkout, version)


def test_another_table_than_in_the_readme_is_no_release(script):
    shown = "name score\na 0.5012 viral"
    assert script.same("name   score\na   0.5013   viral", shown)
    assert not script.same("name score\na 0.5112 viral", shown)
    assert not script.same("name score\na 0.5012 non-viral", shown)
    assert not script.same("name score", shown)


def test_the_readme_has_an_example(script):
    commands = script.readme_example((ROOT / "README.md").read_text())
    assert commands[0][0].startswith("virnucpro predict tests/data/example.fa ")
    assert "NC_045512.2" in commands[-1][1]


def test_the_changelog_keeps_its_form():
    """As keepachangelog.com says: unreleased first, versions downwards with dates, six kinds."""
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert text.startswith("# Changelog\n")
    assert sections[0] == "[Unreleased]"
    releases = [
        re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d", one) for one in sections[1:]
    ]
    assert all(releases), sections
    numbers = [tuple(map(int, one.groups())) for one in releases]
    assert numbers == sorted(set(numbers), reverse=True)
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= KINDS
