"""Makes a release up to the upload: version, changelog, packages, a trial installation, a tag.

Everything happens in a clone of the last commit. The checkout gets the release commit, the tag and
the folder dist/ at the end, if every check has passed; with --dry-run it gets dist/ alone.

    bash scripts/packaging/setup.sh
    .venv-packaging/tools/bin/python scripts/release.py 0.2.0 --dry-run
"""

import argparse
import datetime as dt
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGING = "scripts/packaging"
SOURCE = "virnucpro/__init__.py"
UNRELEASED = "## [Unreleased]\n"
TOLERANCE = 2e-4  # scores are printed with four decimals

MENTIONS = {
    SOURCE: r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    f"{PACKAGING}/bioconda/recipe.yaml": r'^  version: "(.+)"$',
    f"{PACKAGING}/nf-core/modules/nf-core/virnucpro/predict/environment.yml": (
        r"^  - bioconda::virnucpro=(.+)$"
    ),
    f"{PACKAGING}/nf-core/modules/nf-core/virnucpro/predict/main.nf": (
        r"/virnucpro:(.+?)--pyhdfd78af_0"
    ),
    f"{PACKAGING}/snakemake/virnucpro/predict/environment.yaml": r"^  - virnucpro =(.+)$",
}
"""Files that name the version, and where; each pattern matches at least once."""


class ReleaseError(Exception):
    """A reason not to release."""


def versions(root: Path) -> dict[str, set[str]]:
    """Return the versions that each file of MENTIONS names."""
    return {
        name: set(re.findall(pattern, (root / name).read_text(), re.MULTILINE))
        for name, pattern in MENTIONS.items()
    }


def set_version(root: Path, version: str, date: str) -> None:
    """Write the version into every file of MENTIONS, and the date where it belongs."""
    for name, pattern in MENTIONS.items():
        path = root / name

        def renamed(match: re.Match[str]) -> str:
            whole, start = match[0], match.start()
            return whole[: match.start(1) - start] + version + whole[match.end(1) - start :]

        path.write_text(re.sub(pattern, renamed, path.read_text(), flags=re.MULTILINE))
    citation = root / "CITATION.cff"
    text = re.sub(r"^date-released: .*\n", "", citation.read_text(), flags=re.MULTILINE)
    dated = f"version: {version}\ndate-released: {date}\n"
    citation.write_text(text.replace(f"version: {version}\n", dated))
    changelog = root / "CHANGELOG.md"
    heading = f"{UNRELEASED}\n## [{version}] - {date}\n"
    changelog.write_text(changelog.read_text().replace(UNRELEASED, heading, 1))


def numbers(version: str) -> tuple[int, ...]:
    """Return a version X.Y.Z as integers.

    Raises
    ------
    ReleaseError
        It has another form.
    """
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise ReleaseError(f"version {version!r} is not of the form X.Y.Z: give one like 0.2.0")
    return tuple(map(int, version.split(".")))


def check(root: Path, version: str) -> None:
    """Raise ReleaseError if this checkout cannot be released as `version`."""
    wanted = numbers(version)
    named = versions(root)
    current = next(iter(named[SOURCE]))
    if wanted < numbers(current):
        raise ReleaseError(
            f"version {version} is lower than {current} in {SOURCE}: give a higher one"
        )
    other = sorted(name for name, found in named.items() if found != {current})
    if other:
        raise ReleaseError(f"not version {current}, which {SOURCE} has: {', '.join(other)}")
    if output(root, "git", "tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists: give a higher version")
    if changed := output(root, "git", "status", "--porcelain"):
        raise ReleaseError(f"the checkout has changes; commit or remove them:\n{changed}")
    _, heading, rest = (root / "CHANGELOG.md").read_text().partition(UNRELEASED)
    if not heading or not re.search(r"^- ", rest.split("\n## ", 1)[0], re.MULTILINE):
        raise ReleaseError(
            "CHANGELOG.md: section [Unreleased] has no entry: list the changes there"
        )


def build(root: Path, folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and from it the wheel; check both; return their paths."""
    constrained = {"PIP_CONSTRAINT": str(root / "constraints.txt")}
    run(root, sys.executable, "-m", "build", "--outdir", folder, ".", **constrained)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    run(root, sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    return sdist, wheel


def try_out(root: Path, wheel: Path, folder: Path) -> None:
    """Install the wheel into an empty environment and run the README's example there.

    Raises
    ------
    ReleaseError
        A command prints something else than the README shows.
    """
    run(folder, sys.executable, "-m", "venv", "environment")
    programs = folder / "environment" / "bin"
    constraints = root / "constraints.txt"
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # Modules are compiled when they are imported: most never are.
    run(folder, *pip, "--no-compile", "--constraint", constraints, wheel)
    run(folder, *pip[:3], "check")
    example = folder / "tests" / "data" / "example.fa"
    example.parent.mkdir(parents=True)
    shutil.copyfile(root / "tests" / "data" / "example.fa", example)
    commands = readme_example((root / "README.md").read_text())
    for number, (command, shown) in enumerate(commands):
        print(f"$ {command}", flush=True)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        printed = output(folder, "bash", "-euo", "pipefail", "-c", command, PATH=path)
        print(printed, flush=True)
        if number == len(commands) - 1 and not same(printed, shown):
            raise ReleaseError(f"README.md shows something else for: {command}\n{shown}")


def readme_example(text: str) -> list[tuple[str, str]]:
    """Return (command, text printed) of the console block in the README's section Example."""
    section = text.partition("\n## Example\n")[2]
    block = re.search(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    if block is None:
        raise ReleaseError("README.md has no console block in a section Example")
    steps = re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]
    return [(step.partition("\n")[0], step.partition("\n")[2].strip()) for step in steps]


def same(printed: str, shown: str) -> bool:
    """Return whether two texts have the same words, and numbers equal up to rounding."""
    left, right = printed.split(), shown.split()
    return len(left) == len(right) and all(map(_same_word, left, right))


def _same_word(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return abs(float(one) - float(other)) <= TOLERANCE
    except ValueError:
        return False


def write_recipe(root: Path, sdist: Path, url: str, path: Path) -> None:
    """Write the recipe with the address and the checksum of the published sdist."""
    recipe = (root / PACKAGING / "bioconda" / "recipe.yaml").read_text()
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    source = f"source:\n  url: {url}\n  sha256: {digest}\n"
    path.write_text(re.sub(r"^source:\n(  .*\n)+", source, recipe, flags=re.MULTILINE))


def release(version: str, dist: Path, sdist_url: str | None, *, dry_run: bool) -> None:
    """Release the last commit of the checkout as `version`, up to the upload."""
    check(ROOT, version)
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="virnucpro-release-") as temporary:
        clone, packages, trial = (Path(temporary, name) for name in ("clone", "dist", "trial"))
        trial.mkdir()
        run(ROOT, "git", "clone", "--quiet", "--no-tags", ROOT, clone)
        set_version(clone, version, date)
        run(clone, "git", "commit", "--quiet", "--all", "-m", f"Release {version}")
        sdist, wheel = build(clone, packages)
        try_out(clone, wheel, trial)
        if sdist_url:
            write_recipe(clone, sdist, sdist_url, packages / "recipe.yaml")
        shutil.copytree(packages, dist, dirs_exist_ok=True)
        print(f"written: {', '.join(str(dist / path.name) for path in packages.iterdir())}")
        if dry_run:
            print("dry run: no commit, no tag")
            return
        run(ROOT, "git", "pull", "--quiet", "--ff-only", clone, "HEAD")
        run(ROOT, "git", "tag", "--annotate", f"v{version}", "-m", f"virnucpro {version}")
    print(f"tagged: v{version}. To publish it:")
    print(f"  git push --follow-tags && twine upload {dist}/virnucpro-{version}*")


def run(folder: Path, *command: str | Path, **environment: str) -> None:
    """Run a command; raise ReleaseError if it fails."""
    _ended(folder, command, environment, None)


def output(folder: Path, *command: str | Path, **environment: str) -> str:
    """Return what a command prints to standard output; raise ReleaseError if it fails."""
    return _ended(folder, command, environment, subprocess.PIPE).stdout.strip()


def _ended(
    folder: Path, command: Sequence[str | Path], environment: Mapping[str, str], stdout: int | None
) -> subprocess.CompletedProcess[str]:
    words, variables = [*map(str, command)], os.environ | environment
    done = subprocess.run(words, cwd=folder, env=variables, stdout=stdout, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"exit code {done.returncode}: {shlex.join(words)}")
    return done


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version", metavar="VERSION", help="X.Y.Z")
    parser.add_argument("--dry-run", action="store_true", help="no commit, no tag")
    parser.add_argument(
        "--dist", type=Path, default=ROOT / "dist", metavar="DIR", help="where the packages go"
    )
    parser.add_argument(
        "--sdist-url", metavar="URL", help="also write recipe.yaml, with the sdist's future address"
    )
    options = parser.parse_args(arguments)
    try:
        release(options.version, options.dist, options.sdist_url, dry_run=options.dry_run)
    except ReleaseError as error:
        print(f"release.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
