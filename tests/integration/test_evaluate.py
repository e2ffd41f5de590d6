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

pytestmark = pytest.mark.usefixtures("fonts", "one_process")

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
    genomad, plain = folder / "genomad.tsv", folder / "plain.tsv"
    genomad.write_text(
        "seq_name\tchromosome_score\tplasmid_score\tvirus_score\n"
        + "".join(f"{row['seq_name']}\t0\t0\t{0.9 * (row['label'] == 'viral')}\n" for row in rows)
    )
    plain.write_text(
        "seq_name\tscore\n"
        + "".join(f"{row['seq_name']}\t0.{i % 10}\n" for i, row in enumerate(rows[4:]))
    )
    return genomad, plain


@pytest.fixture(scope="module")
def others(tables_of_others):
    """Options that name the tables of the other tools."""
    genomad, plain = tables_of_others
    return ["--predictions", f"genomad={genomad}", "--predictions", f"plain={plain}"]


@pytest.fixture(scope="module")
def evaluated(labels, others, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated") / "out"
    assert evaluate(labels, folder, *others) == 0
    return folder


@pytest.fixture
def no_figures(monkeypatch):
    """Draw nothing: it takes a second."""
    monkeypatch.setattr("virnucpro.lab.evaluation.figures.draw_figures", lambda *_: [])


def test_files_of_each_class_have_groups_from_a_table(labels, tmp_path, capsys):
    groups = tmp_path / "groups.tsv"
    groups.write_text("record\tgroup\nva_record\tfamily\nvb_record\tfamily\n")
    folder = labels.parent
    words = ["--viral", folder / "va.fa", folder / "vb.fa", "--non-viral", folder / "ha.fa"]
    command = ["evaluate", *words, "--groups", groups, "-o", tmp_path / "cut", *LENGTHS]
    assert main([*map(str, command), "--fragments-only", "-q"]) == 0
    rows = read_table(tmp_path / "cut" / "fragments" / "fragments.tsv")
    found = {row["record"]: row["group"] for row in rows}
    assert found == {"va_record": "family", "vb_record": "family", "ha_record": "ha_record"}
    command = ["evaluate", "--labels", labels, "--groups", groups, "-o", tmp_path / "no"]
    assert main([*map(str, command)]) == 64
    groups.write_text("record\tgroup\nva_record\tfamily\nnope\tfamily\n")
    command = ["evaluate", *words, "--groups", groups, "-o", tmp_path / "other", *LENGTHS]
    assert main([*map(str, command), "--fragments-only", "-q"]) == 1
    assert "no sequence has the name nope (1 such names)" in capsys.readouterr().err


def test_sequences_of_the_user_beside_the_fragments_are_kept(labels, tmp_path):
    folder = tmp_path / "out" / "fragments"
    folder.mkdir(parents=True)
    (folder / "mine.fa").write_text(">of\nyears\n")
    assert evaluate(labels, tmp_path / "out", "--fragments-only") == 0
    (folder / "77.fa").write_text(">former\nACGT\n")
    assert evaluate(labels, tmp_path / "out", "--fragments-only", "--force") == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {"mine.fa", "300.fa", "1000.fa", "fragments.tsv"}


def test_only_the_fragments_are_written_on_request(labels, tmp_path, capsys):
    assert evaluate(labels, tmp_path / "out", "--fragments-only") == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["fragments"]
    printed = capsys.readouterr().out.splitlines()
    names = ["300.fa", "1000.fa", "fragments.tsv"]
    assert printed == [str(tmp_path / "out" / "fragments" / name) for name in names]


@pytest.mark.parametrize("name", ["fragments", "figures", "runs", "runs/mini-300"])
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
@pytest.mark.parametrize("name", ["evaluation.tsv", "paired.tsv", "figures/roc.png", "300.fa"])
def test_files_of_the_user_with_the_name_of_an_output_are_refused(
    name, force, labels, tmp_path, capsys
):
    path = tmp_path / ("fragments/300.fa" if name == "300.fa" else name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("of years")
    before = sorted(tmp_path.rglob("*"))
    assert evaluate(labels, tmp_path, *force) == 1
    assert f"{tmp_path} is not the folder of an evaluation" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    assert path.read_text() == "of years"


@pytest.mark.parametrize("what", ["labels", "predictions", "sequences", "groups"])
def test_an_input_in_the_place_of_an_output_is_refused(
    what, labels, evaluated, tables_of_others, tmp_path, capsys
):
    """Also if it is named by a link."""
    folder, home = tmp_path / "out", labels.parent
    shutil.copytree(evaluated, folder)
    path, link = folder / "figures" / "in.tsv", tmp_path / "link"
    if what == "sequences":
        path = folder / "fragments" / "77.fa"
    link.symlink_to(path)
    words = command(labels, folder, "--force")
    files = ["--viral", home / "va.fa", home / "vb.fa", "--non-viral", home / "ha.fa"]
    if what == "labels":
        path.write_text(re.sub(r"^(?!file)", f"{home}/", labels.read_text(), flags=re.MULTILINE))
        words = command(link, folder, "--force")
    elif what == "predictions":
        shutil.copy(tables_of_others[0], path)
        words += ["--predictions", f"other={link}"]
    elif what == "sequences":
        shutil.copy(home / "va.fa", path)
        words[1:5] = map(str, [*files[:2], link, *files[3:]])
    else:
        path.write_text("record\tgroup\nva_record\tfamily\n")
        words[1:5] = map(str, [*files, "--groups", link])
    before = path.read_bytes()
    assert main(words) == 64
    assert f"the input {link} has the name of a file of the eval" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_predictions_of_a_former_run_of_the_folder_are_accepted(
    labels, evaluated, no_figures, tmp_path
):
    folder = tmp_path / "out"
    shutil.copytree(evaluated, folder)
    former = folder / "runs" / "mini-300" / "predictions.tsv"
    more = ["--no-bundle", "--predictions", f"former={former}", "--resume"]
    assert evaluate(labels, folder, *more) == 0


@pytest.mark.parametrize("name", ["evaluation.tsv", "figures/roc.png"])
def test_figures_of_the_user_beside_fragments_are_kept(name, labels, tmp_path, capsys):
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("of years")
    assert evaluate(labels, tmp_path / "out", "--fragments-only") == 0
    assert evaluate(labels, tmp_path / "out") == 1
    assert "already contains an evaluation" in capsys.readouterr().err
    assert path.read_text() == "of years"


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
    assert {row["tool"] for row in rows} == {"mini", "genomad", "plain"}
    names = [(row["length"], row["kingdom"], row["group"]) for row in rows if row["tool"] == "mini"]
    assert len(set(names)) == len(names)
    assert ("300", "all", "all") in names
    assert ("300", "plant", "all") in names
    assert ("300", "plant", "hd") in names
    assert ("1000", "plant", "hd") not in names
    every = [row for row in rows if (row["length"], row["kingdom"]) == ("300", "all")]
    mini, genomad, plain = every
    assert mini["n_without_row"] == genomad["n_without_row"] == "0"
    assert genomad["auroc"] == genomad["auroc_low"] == genomad["auroc_high"] == "1.0000"
    assert genomad["fdr"] == "0.0000"
    assert plain["n_without_row"] == plain["n_without_score"] == "4"
    assert (mini["unanswered"], plain["unanswered"]) == ("mean", "lowest")


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
    assert names == {("genomad", "mini"), ("plain", "mini"), ("plain", "genomad")}
    everything = [row for row in rows if row["kingdom"] == "all" and row["figure"] == "auroc"]
    assert all("NA" not in (row["low"], row["high"]) for row in everything)


def test_the_json_file_has_settings_versions_and_fingerprints(evaluated, labels):
    content = json.loads((evaluated / "evaluation.json").read_text())
    assert content["settings"]["lengths"] == ["300", "1000"]
    assert content["inputs"]["labels"]["path"] == str(labels)
    assert len(content["inputs"]["labels"]["sha256"]) == 64
    assert len(content["tools"]["mini"]["fingerprint"]) == 64
    assert content["tools"]["genomad"]["viral_if"] == "virus_score >= 0.7"
    assert content["fragments"]["1000"]["groups_without"] == [["plant", "hd"]]
    assert {"virnucpro", "numpy", "matplotlib"} <= set(content["versions"])
    assert content["rows"][0]["values"]["auroc"] is not None


def test_a_rerun_needs_resume_and_gives_the_same_files(evaluated, labels, others, capsys):
    before = {
        path: path.read_bytes()
        for path in (
            *evaluated.glob("*.tsv"),
            *evaluated.glob("*.json"),
            *evaluated.glob("figures/*"),
        )
    }
    assert evaluate(labels, evaluated, *others) == 1
    assert "Add --resume" in capsys.readouterr().err
    assert evaluate(labels, evaluated, *others, "--resume") == 0
    warned = capsys.readouterr().err
    assert "--predictions plain: 4 of " in warned
    assert "have no row and count as unanswered" in warned
    assert "groups without fragments of 1,000 bases: 1, such as hd (non-viral)" in warned
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
    function, call, labels, others, evaluated, tmp_path, no_figures
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
    (folder / "figures").mkdir(exist_ok=True)
    for unfinished in ("paired.tsv", "figures/roc.png", "fragments/300.fa"):
        (folder / f"{unfinished}.17-0123abcd.tmp").touch()
    assert evaluate(labels, folder, *more, "--resume") == 0
    for path in alone.glob("*.tsv"):
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name
    rows, others = (json.loads((one / "evaluation.json").read_text()) for one in (folder, alone))
    assert rows["rows"] == others["rows"]
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.usefixtures("no_figures")
def test_tables_are_evaluated_without_a_bundle(labels, tables_of_others, tmp_path, capsys):
    genomad, _ = tables_of_others
    short = tmp_path / "300.tsv"
    short.write_text(re.sub("cut1000.*\n", "", genomad.read_text()))
    folder = tmp_path / "out"
    more = ["--no-bundle", "--predictions", f"genomad={short}"]
    assert evaluate(labels, folder, *more, "--json") == 0
    assert not (folder / "paired.tsv").exists()
    printed = capsys.readouterr()
    assert "no row for the fragments of length 1000; the tool is not evaluated" in printed.err
    content = json.loads(printed.out)
    assert content["tools"].keys() == {"genomad"}
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


@pytest.mark.usefixtures("no_figures")
def test_fasta_files_of_two_classes_need_no_table(labels, tmp_path, called):
    folder = labels.parent
    table = tmp_path / "plain.tsv"
    table.write_text(
        "seq_name\tscore\nva_record\t0.9\nvb_record\t0.8\nha_record\t0.1\nhb_record\t0.85\n"
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
        (["--predictions", "TABLE"], 64, "is not TOOL=VALUE"),
        (["--score-column", "x=y"], 64, "no --predictions has this name"),
        (["--predictions", "x=TABLE", "--call-threshold", "x=high"], 64, "is not a number"),
        (["--predictions", "x=TABLE"], 1, "none of its 2 names is evaluated here"),
        (["--predictions", "x=nosuch.tsv"], 1, "nosuch.tsv: the table cannot be read"),
        (["--viral", "TABLE"], 64, "give either --labels TSV, or both"),
        (["--prevalence", "1"], 64, "not a number between 0 and 1"),
    ],
)
def test_wrong_use_is_an_error_that_leaves_nothing(labels, tmp_path, capsys, more, code, message):
    table = tmp_path / "table.tsv"
    table.write_text("seq_name\tscore\nx\t1\ny\t0\n")
    words = [word.replace("TABLE", str(table)) for word in more]
    with pytest.raises(SystemExit) as stopped:
        sys.exit(evaluate(labels, tmp_path / "out", *words))
    assert stopped.value.code == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_library_names_the_extra(labels, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert evaluate(labels, tmp_path / "out") == 64
    message = capsys.readouterr().err
    assert "evaluate needs matplotlib: pip install 'virnucpro[evaluate]'" in message
    assert evaluate(labels, tmp_path / "out", "--fragments-only") == 0
