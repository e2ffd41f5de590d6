"""The Snakemake wrapper, run by Snakemake."""

import ast
import gzip
import shutil
import subprocess

import pytest
import yaml

pytestmark = [pytest.mark.packages, pytest.mark.timeout(180)]


@pytest.fixture
def workflow(packaging, root, tool, tmp_path, on_path):
    """(folder, function that runs the wrapper's test workflow there and returns its process)."""
    test = packaging / "snakemake" / "virnucpro" / "predict" / "test"
    text = (test / "Snakefile").read_text().replace("master/bio/", "")
    (tmp_path / "Snakefile").write_text(text)
    shutil.copyfile(root / "tests" / "data" / "example.fa", tmp_path / "example.fa")

    def run(*options):
        return subprocess.run(
            [
                *(tool("snakemake", "snakemake"), "--cores", "2"),
                *("--wrapper-prefix", f"file://{packaging}/snakemake/", *options),
            ],
            cwd=tmp_path,
            env=on_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    return tmp_path, run


def test_the_test_workflow_writes_its_outputs(workflow):
    folder, run = workflow
    done = run()
    assert done.returncode == 0, done.stdout
    table = (folder / "results" / "example.predictions.tsv").read_text().splitlines()
    assert len(table) == 8
    with gzip.open(folder / "results" / "example.viruses.fasta.gz", "rt") as stream:
        called = [line[1:].split()[0] for line in stream if line.startswith(">")]
    assert called == [line.split("\t")[0] for line in table if "\tviral\t" in line]
    assert (folder / "results" / "example.windows.tsv").stat().st_size > 0
    assert (folder / "runs" / "example" / "run" / "run.json").is_file()


def test_meta_yaml_describes_every_output(packaging):
    folder = packaging / "snakemake" / "virnucpro" / "predict"
    meta = yaml.safe_load((folder / "meta.yaml").read_text())
    listed = (folder / "wrapper.py").read_text().partition("FILES = ")[2].partition("\n}\n")[0]
    assert [next(iter(one)) for one in meta["output"]] == list(ast.literal_eval(listed + "}"))


def test_an_unknown_output_is_an_error_that_lists_the_names(workflow):
    folder, run = workflow
    snakefile = folder / "Snakefile"
    snakefile.write_text(snakefile.read_text().replace("windows=", "window="))
    done = run()
    assert done.returncode != 0
    assert (
        "outputs of virnucpro/predict are named, one of each: predictions, windows" in done.stdout
    )
    assert "got window" in done.stdout
    assert not (folder / "runs").exists()


def test_an_output_that_the_options_do_not_write_is_an_error(workflow):
    folder, run = workflow
    snakefile = folder / "Snakefile"
    snakefile.write_text(snakefile.read_text().replace('extra="--compress"', 'extra=""'))
    done = run()
    assert done.returncode != 0
    assert "output viruses_gz: the run has no viruses.fasta.gz" in done.stdout


def test_force_in_extra_replaces_the_run_of_an_input_that_changed(workflow):
    folder, run = workflow
    assert run().returncode == 0
    (folder / "example.fa").write_text(">other\n" + "ACGTTGCA" * 90 + "\n")
    assert run().returncode != 0
    log = (folder / "logs" / "example.log").read_text()
    assert "differs from the input of the run" in log
    snakefile = folder / "Snakefile"
    snakefile.write_text(snakefile.read_text().replace('"--compress"', '"--compress --force"'))
    done = run()
    assert done.returncode == 0, done.stdout
    table = (folder / "results" / "example.predictions.tsv").read_text()
    assert table.splitlines()[1].startswith("other\t")
