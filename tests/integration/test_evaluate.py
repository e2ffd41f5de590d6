"""The command evaluate with real processes and files."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cases import slow
from samples import read_table

from virnucpro.cli.main import main

pytestmark = pytest.mark.usefixtures("one_process")

KILLED = Path(__file__).parents[1] / "data" / "killed.py"
LENGTHS = ("--lengths", "300,1000")


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Two viral and four non-viral groups of two kingdoms; one group has short records only."""
    folder = tmp_path_factory.mktemp("labelled")
    dice = random.Random(8)
    lines = ["file\tlabel\tgroup\tsplit\tkingdom"]
    for name, label, kingdom, length in (
        ("va", "viral", "", 3000),
        ("vb", "viral", "", 3000),
        ("ha", "non-viral", "fungi", 3000),
        ("hb", "non-viral", "fungi", 3000),
        ("hc", "non-viral", "plant", 3000),
        ("hd", "non-viral", "plant", 400),
    ):
        letters = "AACGTT" if label == "viral" else "ACCGGT"
        text = "".join(dice.choices(letters, k=length))
        (folder / f"{name}.fa").write_text(f">{name}_record\n{text}\n")
        lines.append(f"{name}.fa\t{label}\t{name}\tvalid\t{kingdom}")
    (folder / "train.fa").write_text(">t\nACGT\n")
    lines.append("train.fa\tviral\tt\ttrain\t")
    table = folder / "labels.tsv"
    table.write_text("\n".join(lines) + "\n")
    return table


def command(labels, folder, *more):
    words = ["evaluate", "--labels", labels, "--split", "valid", "-o", folder, *LENGTHS]
    options = ["--per-group", 3, "--bootstrap", 40, "--devices", "cpu:1", "-q"]
    return [str(word) for word in (*words, *options, *more)]


def evaluate(labels, folder, *more):
    return main(command(labels, folder, *more))


@pytest.fixture(scope="module")
def tables_of_others(labels, tmp_path_factory):
    """Tables of two other tools for the fragments; the second one omits some."""
    folder = tmp_path_factory.mktemp("others")
    assert evaluate(labels, folder / "cut", "--fragments-only") == 0
    rows = read_table(folder / "cut" / "fragments" / "fragments.tsv")
    perfect, plain = folder / "perfect.tsv", folder / "plain.tsv"
    head = "name\tscore\tlabel\n"
    perfect.write_text(
        head
        + "".join(
            f"{row['seq_name']}\t{0.9 * (row['label'] == 'viral')}\t{row['label']}\n"
            for row in rows
        )
    )
    plain.write_text(
        head + "".join(f"{row['seq_name']}\t0.{i % 10}\t\n" for i, row in enumerate(rows[4:]))
    )
    return perfect, plain


@pytest.fixture(scope="module")
def others(tables_of_others):
    """Options that name the tables of the other tools."""
    perfect, plain = tables_of_others
    return ["--predictions", f"perfect={perfect}", "--predictions", f"plain={plain}"]


@pytest.fixture(scope="module")
def evaluated(labels, others, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated") / "out"
    assert evaluate(labels, folder, *others) == 0
    return folder


def test_only_the_fragments_are_written_on_request(labels, tmp_path, capsys):
    assert evaluate(labels, tmp_path / "out", "--fragments-only") == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["fragments"]
    printed = capsys.readouterr().out.splitlines()
    names = ["300.fa", "1000.fa", "fragments.tsv"]
    assert printed == [str(tmp_path / "out" / "fragments" / name) for name in names]


@pytest.mark.parametrize("name", ["fragments", "runs", "runs/mini-300"])
def test_a_folder_that_is_a_link_is_refused(name, labels, tmp_path, capsys):
    unfinished = tmp_path / "elsewhere" / "300.fa.7-00112233.tmp"
    unfinished.parent.mkdir()
    unfinished.write_text("of years")
    link = tmp_path / "out" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(unfinished.parent)
    options = ["--fragments-only"] if name == "fragments" else []
    assert evaluate(labels, tmp_path / "out", *options) == 1
    assert f"{name} is a symbolic link" in capsys.readouterr().err
    assert [path.name for path in unfinished.parent.iterdir()] == [unfinished.name]


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_the_folder_of_another_program_is_refused(force, labels, tmp_path, capsys):
    path = tmp_path / "thesis.txt"
    path.write_text("of years")
    assert evaluate(labels, tmp_path, *force) == 1
    assert f"{tmp_path}: is not empty, and not the folder of an eval" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("what", ["labels", "predictions", "sequences"])
def test_an_input_in_the_place_of_an_output_is_refused(
    what, labels, evaluated, tables_of_others, tmp_path, capsys
):
    """Also if it is named by a link."""
    folder, home = tmp_path / "out", labels.parent
    shutil.copytree(evaluated, folder)
    path, link = folder / "fragments" / "77.fa", tmp_path / "link"
    link.symlink_to(path)
    words = command(labels, folder, "--force")
    if what == "labels":
        path.write_text(re.sub(r"^(?!file)", f"{home}/", labels.read_text(), flags=re.MULTILINE))
        words = command(link, folder, "--force")
    elif what == "predictions":
        shutil.copy(tables_of_others[0], path)
        words += ["--predictions", f"other={link}"]
    else:
        shutil.copy(home / "va.fa", path)
        words[1:5] = map(str, ["--viral", link, "--non-viral", home / "ha.fa"])
    before = path.read_bytes()
    assert main(words) == 64
    assert f"the input {link} has the name of a file of the eval" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_named_pipe_among_the_fragments_is_refused(labels, tmp_path, called):
    words = command(labels, tmp_path / "out", "--fragments-only")
    assert main(words) == 0
    path = tmp_path / "out" / "fragments" / "300.fa"
    path.unlink()
    os.mkfifo(path)
    for options in ((), ("--force",)):
        assert f"{path} is not a regular file" in called(*words, *options, code=1).stderr


def test_every_tool_length_and_group_has_a_row(evaluated, tables):
    rows = tables(evaluated / "evaluation.tsv")
    assert {row["tool"] for row in rows} == {"mini", "perfect", "plain"}
    names = [(row["length"], row["kingdom"], row["group"]) for row in rows if row["tool"] == "mini"]
    assert len(set(names)) == len(names)
    assert ("300", "all", "all") in names
    assert ("300", "plant", "all") in names
    assert ("300", "plant", "hd") in names
    assert ("1000", "plant", "hd") not in names
    every = [row for row in rows if (row["length"], row["kingdom"]) == ("300", "all")]
    mini, perfect, plain = every
    assert mini["n_without_score"] == perfect["n_without_score"] == "0"
    assert perfect["auroc"] == perfect["auroc_low"] == perfect["auroc_high"] == "1.0000"
    assert perfect["fdr"] == "0.0000"
    assert plain["n_without_score"] == "4"


def test_the_scores_are_those_of_predict(evaluated, tables):
    runs = evaluated / "runs"
    assert sorted(path.name for path in runs.iterdir()) == ["mini-1000", "mini-300"]
    rows = tables(runs / "mini-300" / "predictions.tsv")
    labels = {
        row["seq_name"]: row["label"] for row in tables(evaluated / "fragments" / "fragments.tsv")
    }
    viral = [row for row in rows if labels[row["seq_name"]] == "viral"]
    groups = {"viral": len(viral), "non-viral": len(rows) - len(viral)}
    row = tables(evaluated / "evaluation.tsv")[0]
    assert (row["n_viral"], row["n_non_viral"]) == tuple(map(str, groups.values()))
    called = sum(one["call"] == "viral" for one in viral) / len(viral)
    assert float(row["viral_as_viral"]) == pytest.approx(called, abs=1e-4)


def test_differences_are_paired(evaluated, tables):
    rows = tables(evaluated / "paired.tsv")
    names = {(row["tool"], row["reference"]) for row in rows}
    assert names == {("perfect", "mini"), ("plain", "mini"), ("plain", "perfect")}
    everything = [row for row in rows if row["kingdom"] == "all" and row["figure"] == "auroc"]
    assert all("NA" not in (row["low"], row["high"]) for row in everything)


def test_the_json_file_has_settings_versions_and_fingerprints(evaluated, labels):
    content = json.loads((evaluated / "evaluation.json").read_text())
    assert content["settings"]["lengths"] == ["300", "1000"]
    assert content["inputs"]["labels"]["path"] == str(labels)
    assert len(content["inputs"]["labels"]["sha256"]) == 64
    assert len(content["bundles"]["mini"]["fingerprint"]) == 64
    assert len(content["inputs"]["perfect"]["sha256"]) == 64
    assert content["fragments"]["1000"]["groups_without"] == [["plant", "hd"]]
    assert {"virnucpro", "numpy"} <= set(content["versions"])
    assert content["rows"][0]["values"]["auroc"] is not None


def test_a_rerun_needs_resume_and_gives_the_same_files(evaluated, labels, others, capsys):
    before = {
        path: path.read_bytes() for path in (*evaluated.glob("*.tsv"), *evaluated.glob("*.json"))
    }
    assert evaluate(labels, evaluated, *others) == 1
    assert "Add --resume" in capsys.readouterr().err
    assert evaluate(labels, evaluated, *others, "--resume") == 0
    warned = capsys.readouterr().err
    assert "--predictions plain: 4 of " in warned
    assert "have no row and count as unanswered" in warned
    assert "groups without fragments of 1,000 bases: 1, such as hd" in warned
    assert {path: path.read_bytes() for path in before} == before
    assert evaluate(labels, evaluated, *others, "--resume", "--seed", "2") == 1
    assert "has other fragments" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("function", "call"),
    [("_write", 1), slow("_run", 2)],
    ids=["before evaluation.json", "between two bundles"],
)
def test_a_killed_evaluation_is_resumed_and_gives_the_same_files(
    function, call, labels, others, evaluated, tmp_path
):
    alone, folder, more = evaluated, tmp_path / "out", others
    if call == 2:
        alone, more = tmp_path / "alone", [*others, "--bundle", "mini", "--bundle", "mini-deep"]
        assert evaluate(labels, alone, *more) == 0
    program = [sys.executable, KILLED, "virnucpro.lab.evaluation.evaluate", function, call]
    killed = [*program, *command(labels, folder, *more)]
    done = subprocess.run([*map(str, killed)], check=False, timeout=500)
    assert done.returncode == -signal.SIGKILL
    assert not (folder / "evaluation.json").exists()
    assert list(folder.glob("runs/**/predictions.tsv"))
    for unfinished in ("paired.tsv", "fragments/300.fa"):
        (folder / f"{unfinished}.17-0123abcd.tmp").touch()
    assert evaluate(labels, folder, *more, "--resume") == 0
    for path in alone.glob("*.tsv"):
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name
    rows, others = (json.loads((one / "evaluation.json").read_text()) for one in (folder, alone))
    assert rows["rows"] == others["rows"]
    assert not list(folder.rglob("*.tmp"))


def test_tables_are_evaluated_without_a_bundle(labels, tables_of_others, tmp_path, capsys):
    perfect, _ = tables_of_others
    short = tmp_path / "300.tsv"
    short.write_text(re.sub("cut1000.*\n", "", perfect.read_text()))
    folder = tmp_path / "out"
    more = ["--no-bundle", "--predictions", f"perfect={short}"]
    assert evaluate(labels, folder, *more, "--json") == 0
    assert not (folder / "paired.tsv").exists()
    printed = capsys.readouterr()
    assert "fragments of length 1000 have no row" in printed.err
    content = json.loads(printed.out)
    assert {row["tool"] for row in content["rows"]} == {"perfect"}
    assert {row["length"] for row in content["rows"]} == {"300"}


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_a_published_bundle_is_compared_with_mini(
    labels, recipe, published_files, tmp_path, tables
):
    folder = tmp_path / "out"
    assert main(["bundle", "fetch", recipe.name, "--from", str(published_files)]) == 0
    assert evaluate(labels, folder, "-b", "mini", "-b", recipe.name, "--lengths", "300") == 0
    assert {row["tool"] for row in tables(folder / "evaluation.tsv")} == {"mini", recipe.name}
    assert tables(folder / "paired.tsv")[0]["tool"] == recipe.name


def test_fasta_files_of_two_classes_need_no_table(labels, tmp_path, called):
    folder = labels.parent
    table = tmp_path / "plain.tsv"
    table.write_text(
        "name\tscore\tlabel\nva_record\t0.9\t\nvb_record\t0.8\t\nha_record\t0.1\t\nhb_record\t0.85\t\n"
    )
    viral, hosts = [folder / "va.fa", folder / "vb.fa"], [folder / "ha.fa", folder / "hb.fa"]
    command = ["evaluate", "--viral", *viral, "--non-viral", *hosts, "--lengths", "whole"]
    more = ["-o", tmp_path / "out", "--no-bundle", "--predictions", f"plain={table}", "-q"]
    assert "0.750" in called(*command, *more, code=0).stdout


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--split", "test"], 64, "no row of split 'test'"),
        (["--lengths", "5000"], 64, "no length has fragments of both classes"),
        (["--lengths", "few"], 64, "'few' is not a length"),
        (["--no-bundle"], 64, "nothing to evaluate"),
        (["-b", "mini", "-b", "mini"], 64, "this bundle is given twice"),
        (["--predictions", "mini=TABLE"], 64, "a bundle has this name"),
        (["--predictions", "TABLE"], 64, "is not TOOL=FILE"),
        (["--predictions", "x=TABLE"], 1, "none of its 2 names is evaluated here"),
        (["--predictions", "x=nosuch.tsv"], 1, "nosuch.tsv: the table cannot be read"),
        (["--viral", "TABLE"], 64, "give either --labels TSV, or both"),
        (["--prevalence", "1"], 64, "not a number between 0 and 1"),
    ],
)
def test_wrong_use_is_an_error_that_leaves_nothing(labels, tmp_path, capsys, more, code, message):
    table = tmp_path / "table.tsv"
    table.write_text("name\tscore\tlabel\nx\t1\tviral\ny\t0\tviral\n")
    words = [word.replace("TABLE", str(table)) for word in more]
    with pytest.raises(SystemExit) as stopped:
        sys.exit(evaluate(labels, tmp_path / "out", *words))
    assert stopped.value.code == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
