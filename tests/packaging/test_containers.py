"""Dockerfile and Apptainer definition: linted and compared; no daemon can build them here."""

import json
import re
import subprocess

import pytest

pytestmark = pytest.mark.packages

PARSE = """
import json, sys
from spython.main.parse.parsers import get_parser
(recipe,) = get_parser("singularity")(sys.argv[1]).parse().values()
names = ("fromHeader", "files", "install", "cmd")
print(json.dumps({name: getattr(recipe, name) for name in names}))
"""


@pytest.fixture
def dockerfile(packaging):
    return packaging / "docker" / "Dockerfile"


@pytest.fixture
def definition(packaging):
    return packaging / "apptainer" / "virnucpro.def"


@pytest.fixture
def parsed(tool, definition):
    done = subprocess.run(
        [tool("python"), "-c", PARSE, definition], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_the_dockerfile_passes_hadolint(tool, dockerfile):
    done = subprocess.run(
        [tool("hadolint"), "--failure-threshold", "style", dockerfile],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_image_runs_virnucpro_without_root_on_a_pinned_base(dockerfile):
    text = dockerfile.read_text()
    last = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 1000$", last, re.MULTILINE)
    assert 'ENTRYPOINT ["virnucpro"]' in last
    assert re.search(r"^ARG PYTHON=python:[\d.]+-slim-\w+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)


def test_both_containers_have_one_base_and_the_same_files(dockerfile, parsed):
    text = dockerfile.read_text()
    digest = re.search(r"@sha256:[0-9a-f]{64}", text)[0]
    assert parsed["fromHeader"] == f"python{digest}"
    copied = re.findall(r"^COPY ((?!--from).*) \S+$", text, re.MULTILINE)
    wanted = {name for line in copied for name in line.split()}
    assert {line.split()[0] for line in parsed["files"]} == wanted


def test_all_files_are_there_and_reach_the_daemon(root, dockerfile, parsed):
    names = {line.split()[0] for line in parsed["files"]}
    assert [name for name in names if not (root / name).exists()] == []
    ignored = (dockerfile.with_name("Dockerfile.dockerignore")).read_text().split()
    assert names == {name.removeprefix("!") for name in ignored if name.startswith("!")}


@pytest.mark.parametrize("variant", ["cpu", "cuda"])
def test_the_apptainer_script_passes_shellcheck(tool, parsed, definition, variant):
    """spython lists the lines twice, and does not know arguments."""
    lines = parsed["install"][: len(parsed["install"]) // 2]
    defaults = re.search(r"^%arguments\n((?: +\w+=.*\n)+)", definition.read_text(), re.MULTILINE)
    arguments = dict(line.strip().split("=") for line in defaults[1].splitlines())
    script = "#!/bin/sh\n" + "\n".join(lines) + "\n"
    for name, value in {**arguments, "variant": variant}.items():
        script = script.replace("{{ " + name + " }}", value)
    done = subprocess.run(
        [tool("shellcheck"), "--exclude", "SC2194", "-"],  # a constant in case: the variant
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "{{" not in script
    assert parsed["cmd"] == 'exec virnucpro "$@"'
