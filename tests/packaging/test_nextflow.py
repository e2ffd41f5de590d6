"""The nf-core module. Nextflow cannot be installed here: its scripts run in bash."""

import re
import subprocess

import pytest
import yaml

pytestmark = pytest.mark.packages


@pytest.fixture
def module(packaging):
    return packaging / "nf-core" / "modules" / "nf-core" / "virnucpro" / "predict"


@pytest.fixture
def process(module):
    return (module / "main.nf").read_text()


@pytest.fixture
def meta(module):
    return yaml.safe_load((module / "meta.yml").read_text())


def outputs(process):
    """Return {name: (pattern, is optional)} of the output channels with files."""
    block = process.partition("    output:\n")[2].partition("    when:\n")[0]
    lines = re.findall(r'path\("(.+?)"\), emit: (\w+)(, optional: true)?$', block, re.MULTILINE)
    return {name: (pattern, bool(optional)) for pattern, name, optional in lines}


def rendered(process, section, values):
    """Return the shell script of a section, with values in place of Groovy's variables."""
    script = re.search(rf'    {section}:\n.*?"""\n(.*?)"""', process, re.DOTALL)[1]
    for name, value in values.items():
        script = re.sub(rf"(?<!\\)\$(\{{{name}\}}|{re.escape(name)}\b)", value, script)
    script = script.replace("\\\\\n", "\\\n")
    assert not re.search(r"(?<!\\)\$", script), f"a variable without a value:\n{script}"
    return script.replace("\\$", "$")


def run(script, folder, environment):
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, check=True
    )


def written(folder, process):
    """Return the names of the outputs whose files exist."""
    files = {
        name: pattern.replace("${prefix}", "s1") for name, (pattern, _) in outputs(process).items()
    }
    return {name for name, pattern in files.items() if list(folder.glob(pattern))}


def test_the_script_writes_the_outputs(process, root, tmp_path, on_path):
    (tmp_path / "in.fa").write_bytes((root / "tests" / "data" / "example.fa").read_bytes())
    values = {"sequences": "in.fa", "task.cpus": "2", "args": "--embeddings", "prefix": "s1"}
    run(rendered(process, "script", values), tmp_path, on_path)
    required = {name for name, (_, optional) in outputs(process).items() if not optional}
    assert written(tmp_path, process) >= required | {"viruses", "embeddings"}
    assert (tmp_path / "s1.predictions.tsv").read_text().count("\n") == 8
    assert not list(tmp_path.glob("s1.status.json"))


def test_sequences_of_fastq_inputs_are_outputs(process, root, tmp_path, on_path):
    entries = (root / "tests" / "data" / "example.fa").read_text().split(">")[1:]
    reads = [(name, "".join(lines)) for name, *lines in map(str.splitlines, entries)]
    text = "".join(f"@{name}\n{bases}\n+\n{'I' * len(bases)}\n" for name, bases in reads)
    (tmp_path / "in.fq").write_text(text)
    values = {"sequences": "in.fq", "task.cpus": "2", "args": "--compress", "prefix": "s1"}
    run(rendered(process, "script", values), tmp_path, on_path)
    assert "viruses" in written(tmp_path, process)
    assert (tmp_path / "s1.viruses.fastq.gz").stat().st_size > 0


def test_the_stub_writes_the_required_outputs(process, tmp_path, on_path):
    run(rendered(process, "stub", {"args": "", "prefix": "s1"}), tmp_path, on_path)
    required = {name for name, (_, optional) in outputs(process).items() if not optional}
    assert written(tmp_path, process) == required | {"viruses"}


def test_meta_yml_describes_every_output(process, meta):
    described = {
        name: next(iter(channel[0][1]))
        for name, channel in meta["output"].items()
        if "versions" not in name
    }
    assert described == {name: pattern for name, (pattern, _) in outputs(process).items()}
    version = re.search(r'eval\("(.+?)"\)', process)[1]
    assert version in meta["output"]["versions_virnucpro"][0][2]
    assert meta["topics"]["versions"] == meta["output"]["versions_virnucpro"]


def test_meta_yml_names_the_process_and_its_input(process, meta):
    assert f"process {meta['name'].upper()} {{" in process
    ((_, sequences),) = meta["input"]
    assert f"tuple val(meta), path({next(iter(sequences))})" in process


def test_the_version_is_printed_alone(process, tmp_path, on_path):
    from virnucpro import __version__

    command = re.search(r'eval\("(.+?)"\)', process)[1]
    done = subprocess.run(
        ["bash", "-c", command], env=on_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == __version__
