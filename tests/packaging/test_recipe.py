"""The conda recipe, rendered by rattler-build; no channel can be reached, so nothing is built."""

import json
import re
import subprocess
import tomllib

import pytest

pytestmark = pytest.mark.packages

RENDER = """
import json, sys
from rattler_build import Stage0Recipe, VariantConfig
channel = VariantConfig({"c_stdlib": ["sysroot"], "c_stdlib_version": ["2.17"]})
rendered = Stage0Recipe.from_file(sys.argv[1]).render(channel)
print(json.dumps([variant.recipe.to_dict() for variant in rendered]))
"""
CONDA_NAMES = {"torch": "pytorch"}
EXTRAS = {"xopen[zstd]": "backports.zstd"}
"""Extras that a dependency asks for, and the package that they add."""


@pytest.fixture(scope="module")
def recipe(tool, packaging):
    path = packaging / "bioconda" / "recipe.yaml"
    done = subprocess.run(
        [tool("python"), "-c", RENDER, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (rendered,) = json.loads(done.stdout)
    return rendered


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text())


def test_its_dependencies_are_those_of_the_package(recipe, project):
    wanted = {f"python {project['project']['requires-python']}"}
    models = project["project"]["optional-dependencies"]["models"]
    for requirement in project["project"]["dependencies"] + models:
        name, bound = re.fullmatch(r"(.+?)(>=.+)", requirement).groups()
        plain = name.partition("[")[0]
        wanted.add(f"{CONDA_NAMES.get(plain, plain)} {bound}")
        if plain != name:
            wanted.add(EXTRAS[name])
    requirements = recipe["requirements"]
    assert {*requirements["run"], *requirements["run_constraints"]} == wanted
    (backend,) = project["build-system"]["requires"]
    assert backend.replace(">=", " >=") in recipe["requirements"]["host"]


def test_it_is_compiled_from_our_version(recipe, project):
    from virnucpro import __version__

    assert recipe["package"] == {"name": "virnucpro", "version": __version__}
    assert "noarch" not in recipe["build"]
    assert any("gcc" in str(tool) for tool in recipe["requirements"]["build"])
    assert recipe["about"]["license"] == project["project"]["license"]
    assert recipe["about"]["summary"] == project["project"]["description"]


def test_its_tests_pass(recipe, root, tmp_path, on_path):
    """Its script runs here as it would in the environment of the built package."""
    (script,) = [test for test in recipe["tests"] if "script" in test]
    for name in script["files"]["source"]:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes((root / name).read_bytes())
    subprocess.run(
        ["bash", "-euxc", "\n".join(script["script"])], cwd=tmp_path, env=on_path, check=True
    )
