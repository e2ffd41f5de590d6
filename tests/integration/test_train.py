"""A classifier is trained on labelled sequences, resumed after a kill, and used by predict."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import take_apart, wait_until
from safetensors.numpy import load_file

from virnucpro.bundles.bundle import find_bundle, open_bundle
from virnucpro.cli.main import main
from virnucpro.durable import temporary_beside
from virnucpro.folder_lock import folder_lock
from virnucpro.lab.training import cross_validation, train
from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.usefixtures("one_process")

N_GROUPS = 6
SIDES = ("viral", "non-viral")
NETWORK = {"hidden": [32, 16], "members": 2, "epochs": 2, "learning_rate": 0.02}
"""Small networks and few steps: these classes differ in their GC content alone."""
KILLED = Path(__file__).parents[1] / "data" / "killed.py"


def genome(n_bases, gc, seed):
    shares = [(1 - gc) / 2, gc / 2, gc / 2, (1 - gc) / 2]
    dice = np.random.default_rng(seed)
    return dice.choice(np.frombuffer(b"ACGT", np.uint8), n_bases, p=shares).tobytes().decode()


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Viruses with 35 % GC, hosts with 60 % GC; six groups of each, and one held-out genome."""
    folder = tmp_path_factory.mktemp("labelled")
    rows = []
    for number in range(N_GROUPS):
        for label, gc in (("viral", 0.35), ("non-viral", 0.6)):
            name = f"{label}-{number}"
            path = folder / f"{name}.fa"
            path.write_text(f">{name}\n{genome(3_000, gc, len(rows))}\n")
            rows.append([path.name, label, name, "train"])
    for label, gc in (("viral", 0.35), ("non-viral", 0.6)):
        path = folder / f"held-{label}.fa"
        path.write_text(f">held-{label}\n{genome(3_000, gc, 99)}\n")
        rows.append([path.name, label, f"held-{label}", "valid"])
    table = folder / "labels.tsv"
    with table.open("w", newline="") as stream:
        csv.writer(stream, delimiter="\t").writerows([["file", "label", "group", "split"], *rows])
    return table


def command(labels, folder, *options):
    words = ["train", "--labels", labels, "-o", folder, "--devices", "cpu:1", "-q"]
    network = {**NETWORK, "hidden": "32,16"}
    words += [f"--{name.replace('_', '-')}={value}" for name, value in network.items()]
    return list(map(str, [*words, *options]))


@pytest.fixture
def until_drawing(monkeypatch):
    """Return a function that runs the command until it draws windows, after all checks."""

    def stop(*_, **__):
        raise KeyError

    def run(words):
        monkeypatch.setattr("virnucpro.lab.training.train.draw_training_windows", stop)
        with pytest.raises(KeyError):
            main([*map(str, words)])

    return run


@pytest.fixture(scope="module")
def trained(labels, tmp_path_factory):
    """A finished training. The tests of it stand together, so that few processes compute it."""
    folder = tmp_path_factory.mktemp("trained") / "toy"
    assert main(command(labels, folder)) == 0
    return folder


def test_the_bundle_predicts_sequences_of_unseen_groups(trained, labels, tmp_path, tables):
    bundle = open_bundle(str(trained / "bundle"))
    assert (bundle.name, bundle.items, bundle.classes) == ("toy", "window", ())
    inputs = [labels.parent / f"held-{label}.fa" for label in ("viral", "non-viral")]
    words = ["predict", *inputs, "-o", tmp_path / "run", "-b", trained, "-q"]
    assert main([*map(str, words), "--devices", "cpu:1"]) == 0
    viral, other = tables(tmp_path / "run" / "predictions.tsv")
    assert float(viral["calibrated_probability"]) > 0.9
    assert float(other["calibrated_probability"]) < 0.1
    assert bundle.record is not None
    assert viral["n_genes"].isdigit()
    card = (trained / "bundle" / "CARD.md").read_text()
    assert "| 500 |" in card
    figures = bundle.metrics["cross_validation"]["500"]
    assert figures["auroc"] > 0.95
    recipe = bundle.provenance["recipe"]
    assert {**recipe, **NETWORK} == recipe
    assert recipe["draws"] < 500_000
    head = load_file(trained / "bundle" / "head.safetensors")
    assert head["hidden.1.weight"].shape == (2 * 16, 2 * 32)


@pytest.mark.slow
def test_a_killed_training_is_resumed_and_gives_the_same_bundle(trained, labels, tmp_path):
    folder = tmp_path / "toy"
    with subprocess.Popen([sys.executable, "-m", "virnucpro", *command(labels, folder)]) as process:
        wait_until(lambda: list(folder.glob("vectors/run/shards/*/unit-*.h5")), process)
        os.kill(process.pid, signal.SIGKILL)
    assert not (folder / "bundle").exists()
    assert main(command(labels, folder, "--resume")) == 0
    for path in (trained / "bundle").iterdir():
        name = path.name
        assert (folder / "bundle" / name).read_bytes() == (trained / "bundle" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("module", "function", "call"),
    [
        ("virnucpro.lab.training.cross_validation", "train", 3),
        ("virnucpro.lab.training.record_head", "train", 2),
        ("virnucpro.lab.training.fit", "calibrate_records", 1),
        ("virnucpro.lab.training.train", "_write_held_out", 1),
    ],
    ids=["fold", "fold of records", "calibration", "before the bundle appears"],
)
def test_a_training_killed_after_the_vectors_gives_the_same_bundle(
    module, function, call, trained, labels, tmp_path
):
    folder = tmp_path / "toy"
    killed = [sys.executable, KILLED, module, function, str(call), *command(labels, folder)]
    assert subprocess.run(killed, check=False, timeout=600).returncode == -signal.SIGKILL
    assert (folder / "vectors" / "embeddings.h5").exists()
    assert not (folder / "bundle").exists()
    assert main(command(labels, folder, "--resume")) == 0
    for path in (trained / "bundle").iterdir():
        assert (folder / "bundle" / path.name).read_bytes() == path.read_bytes()
    assert not list(folder.rglob("*.tmp"))


def test_finished_folds_are_kept_and_damaged_ones_repeated(trained, labels, tmp_path, monkeypatch):
    """Training ends in the last fold; the file of the first is damaged; the function resumes it."""
    folder = shutil.copytree(trained, tmp_path / "toy")  # its vectors and three folds are kept
    shutil.rmtree(folder / "bundle")
    for number in (4, 5):
        (folder / f"folds/fold-{number}.npz").unlink()
    left = [folder / f"{name}.17-0123abcd.tmp" for name in ("windows.fa", "folds/fold-4.npz")]
    for path in left:  # of a process that was killed while it wrote
        path.touch()
    train, trained_folds = cross_validation.train, []

    def train_or_die(examples, *rest):
        trained_folds.append(int((examples.weights > 0).sum()))
        if len(trained_folds) == 2:
            raise KeyError
        return train(examples, *rest)

    monkeypatch.setattr(cross_validation, "train", train_or_die)
    with pytest.raises(KeyError):
        main(command(labels, folder, "--resume"))
    files = sorted(folder.glob("folds/fold-*"))
    assert [path.name for path in files] == [f"fold-{number}.npz" for number in (1, 2, 3, 4)]
    content = bytearray(files[0].read_bytes())
    content[len(content) // 2] ^= 0xFF
    files[0].write_bytes(content)
    assert not (folder / "bundle").exists()
    assert main(command(labels, folder, "--resume")) == 0
    assert len(trained_folds) == 2 + 2  # folds 1 and 5
    assert not any(path.exists() for path in left)
    for name in ("head.safetensors", "bundle.json"):
        assert (folder / "bundle" / name).read_bytes() == (trained / "bundle" / name).read_bytes()


def test_other_settings_are_refused(trained, labels, capsys, called):
    before = json.loads((trained / "train.json").read_bytes())
    assert "--resume" in called(*command(labels, trained), code=1).stderr
    assert main(command(labels, trained, "--resume", "--seed", "2", "--dropout", "0")) == 1
    assert "other sequences or options (seed, dropout)" in capsys.readouterr().err
    assert json.loads((trained / "train.json").read_bytes()) == before


@pytest.mark.parametrize("damaged", ["", "3", "[" * 100_000])
def test_damaged_settings_are_refused(trained, labels, tmp_path, damaged, called, until_drawing):
    folder = tmp_path / "toy"
    shutil.copytree(trained, folder)
    (folder / "train.json").write_text(damaged)
    assert "train.json: is damaged" in called(*command(labels, folder, "--resume"), code=1).stderr
    until_drawing(command(labels, folder, "--force"))


def test_force_deletes_files_of_the_training_only(trained, labels, tmp_path, until_drawing):
    folder = tmp_path / "toy"
    shutil.copytree(trained, folder)
    (folder / "notes.txt").write_text("mine")
    until_drawing(command(labels, folder, "--force"))
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / "bundle").exists()


@pytest.mark.parametrize("option", ["--force", "--resume"])
@pytest.mark.parametrize(
    "place", ["windows.fa", "bundle/in.fa", "vectors/in.fa", "cross_validation.tsv"]
)
def test_an_input_in_the_place_of_an_output_is_refused(
    place, option, trained, labels, tmp_path, called
):
    """A sequence of the labels, or the notes."""
    folder = tmp_path / "toy"
    shutil.copytree(trained, folder)
    path = folder / place
    shutil.copy(labels.parent / "viral-0.fa", path)
    table = tmp_path / "labels.tsv"
    rows = labels.read_text().replace("viral-0.fa", str(path), 1)
    table.write_text(re.sub(r"^(?!/|file)", f"{labels.parent}/", rows, flags=re.MULTILINE))
    more = ("--notes", path) if place == "cross_validation.tsv" else ()
    words = command(labels if more else table, folder, option, *more)
    assert (
        f"the input {path} has the name of a file of the training" in called(*words, code=64).stderr
    )
    assert path.read_bytes() == (labels.parent / "viral-0.fa").read_bytes()


def test_an_encoder_in_a_folder_of_the_training_is_refused(trained, labels, tmp_path, called):
    folder = tmp_path / "toy"
    shutil.copytree(trained, folder)
    deep = shutil.copytree(open_bundle("mini-deep").path, folder / "vectors" / "deep")
    words = command(labels, folder, "--force", "-e", f"{deep}/protein")
    assert f"the input {deep}/" in called(*words, "--no-records", code=64).stderr
    assert (folder / "bundle" / "bundle.json").exists()


def test_force_keeps_files_of_the_user_in_folders(trained, labels, tmp_path, until_drawing):
    folder = tmp_path / "toy"
    shutil.copytree(trained, folder)
    own = [folder / name for name in ("folds/thesis.txt", "folds/thesis.npz")]
    for path in own:
        path.parent.mkdir(exist_ok=True)
        path.write_text("of years")
    until_drawing(command(labels, folder, "--force"))
    assert [path.read_text() for path in own] == ["of years"] * 2
    left = {path for path in folder.iterdir() if path.is_file()} | {*folder.glob("folds/*")}
    assert left == {*own, folder / "train.json"}


@pytest.fixture
def until_fitting(monkeypatch):
    """Return a function that runs the command until all windows have vectors."""

    def run(words):
        monkeypatch.setattr(train, "fit_head", lambda *_: sys.exit("fitting"))
        with pytest.raises(SystemExit, match="fitting"):
            main(words)

    return run


@pytest.mark.parametrize("kind", ["of the file server", "of a killed worker"])
def test_force_replaces_vectors_with_files_that_programs_have_left(
    kind, trained, labels, tmp_path, until_fitting
):
    """A file that NFS keeps while a program has it open, or a segment that was never finished."""
    folder = shutil.copytree(trained, tmp_path / "toy")
    vectors = RunDirectory(folder / "vectors")
    take_apart(vectors.root)
    (_, segment), *_ = vectors.segments()
    other = vectors.logs / ".nfs0001"
    path = temporary_beside(segment) if kind == "of a killed worker" else other
    path.parent.mkdir(exist_ok=True)
    path.write_text("left")
    before = vectors.run_json.stat().st_mtime_ns
    until_fitting(command(labels, folder, "--force"))
    assert path.exists() == (path == other)
    assert vectors.run_json.stat().st_mtime_ns > before


def test_a_kill_while_force_deletes_a_training(
    trained, labels, tmp_path, monkeypatch, until_fitting
):
    """First the bundle has lost its manifest; then the vectors are those of the former training."""
    folder = shutil.copytree(trained, tmp_path / "toy")
    replacing = command(labels, folder, "--seed", 2)

    def killed(bundle):
        (bundle / "bundle.json").unlink()
        sys.exit("killed")

    with monkeypatch.context() as patch:
        patch.setattr(train.shutil, "rmtree", killed)
        with pytest.raises(SystemExit, match="killed"):
            main([*replacing, "--force"])
    with monkeypatch.context() as patch:
        patch.setattr(train, "predict", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit, match="killed"):
            main([*replacing, "--force"])
    until_fitting([*replacing, "--resume"])
    assert not (folder / "bundle").exists()


def test_a_training_in_use_is_refused(trained, labels, capsys):
    with folder_lock(trained / "train.lock", ""):
        assert main(command(labels, trained, "--resume")) == 1
    assert "Wait for it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("split", "source", "made", "reason"),
    [
        ("valid", "viral-3", lambda bases: bases, "new (100%) in viral-3"),
        ("valid", "viral-2", lambda bases: genome(30_000, 0.4, 7) + bases, "viral-2 (100%) in new"),
        ("train", "viral-3", lambda bases: bases[1_000:3_000], "new (100%) in viral-3"),
        (
            *("train", "non-viral-3", lambda bases: bases[1_000:3_000]),
            "new (100%) in non-viral-3 with the other label",
        ),
    ],
    ids=["equal", "inside a longer one", "part", "part of the other label"],
)
def test_similar_sequences_of_two_groups_are_refused(
    split, source, made, reason, labels, tmp_path, called
):
    bases = labels.with_name(f"{source}.fa").read_text().splitlines()[1]
    labels.with_name("new.fa").write_text(f">new\n{made(bases)}\n")
    table = labels.with_name("similar.tsv")
    table.write_text(f"{labels.read_text()}new.fa\tviral\tnew\t{split}\n")
    assert reason in called(*command(table, tmp_path / "toy"), code=1).stderr
    assert not (tmp_path / "toy").exists()


def test_similar_sequences_are_accepted_with_a_warning(labels, tmp_path, until_drawing, capsys):
    table = changed(labels, "leak-2.tsv", ("held-viral.fa", "viral-copy.fa"))
    labels.with_name("viral-copy.fa").write_text(labels.with_name("viral-3.fa").read_text())
    words = command(table, tmp_path / "toy", "--allow-similar")
    until_drawing([one for one in words if one != "-q"])
    assert "viral-3 of viral-copy (100%) in viral-3" in capsys.readouterr().err


def test_fasta_files_of_classes_are_a_training_set(labels, tmp_path, until_drawing, capsys, called):
    folder = labels.parent
    sides = {side: [folder / f"{side}-{one}.fa" for one in range(N_GROUPS)] for side in SIDES}
    joined = tmp_path / "hosts.fa"
    joined.write_text("".join(path.read_text() for path in sides["non-viral"]))
    words = ["train", "--viral", *sides["viral"], "--non-viral", joined, "-o", tmp_path / "toy"]
    until_drawing([*words, "--devices", "cpu:1"])
    assert "each record is a group of its own" in capsys.readouterr().err
    genomes = json.loads((tmp_path / "toy" / "train.json").read_text())["genomes"]
    assert [one[:3] for one in genomes[-2:]] == [
        [f"non-viral-{number}", "hosts", f"hosts/non-viral-{number}"] for number in (4, 5)
    ]
    assert genomes[0][:3] == ["viral-0", "virus", "viral-0/viral-0"]
    few = [*map(str, words[:4]), "--non-viral", str(joined), "-o", str(tmp_path / "few")]
    assert "2 groups of viral sequences" in called(*few, "-q", code=1).stderr


@pytest.mark.parametrize(
    "options", [(), ("--labels", "x", "--viral", "x"), ("--viral", "x", "--split", "y")]
)
def test_labels_are_given_in_one_way(options, tmp_path, called):
    assert "--labels" in called("train", "-o", tmp_path / "toy", *options, code=64).stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("-e mini-deep/protein --items window", "cannot read whole windows"),
        ("-e mini/nucleotide,mini-deep/nucleotide", "at most one nucleotide encoder"),
        ("-e mini/protein", "has no encoder 'protein'"),
        ("--hidden 256,0", "argument --hidden: '0' is not a whole number of at least 1"),
        ("--dropout 1", "argument --dropout: '1' is not a number from 0 to below 1"),
        ("--learning-rate 0", "argument --learning-rate: '0' is not a number between 0 and 1"),
        *((f"--lengths {one}", "bases") for one in ("300-150", "150,300", "20-100", "1-2-3")),
        ("--window 50", "a window of 50 bases cannot be trained"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, reason, labels, tmp_path, capsys):
    with pytest.raises(SystemExit, match="64"):
        sys.exit(main(command(labels, tmp_path / "toy", *options.split())))
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "toy").exists()


@pytest.mark.slow
def test_two_encoders_are_trained_on_longest_stretches(labels, tmp_path, tables):
    folder = tmp_path / "deep"
    encoders = ("-e", "mini-deep/nucleotide", "-e", "mini-deep/protein")
    rows = [line.split("\t") for line in labels.read_text().splitlines()]
    # three classes: two of viruses, one of hosts
    classes = [
        "class",
        *("host" if one[1] != "viral" else f"virus{one[2][-1] > '2'}" for one in rows[1:]),
    ]
    table = labels.with_name("classes.tsv")
    lines = ["\t".join([*row, name]) for row, name in zip(rows, classes, strict=True)]
    table.write_text("\n".join(lines) + "\n")
    assert main(command(table, folder, *encoders)) == 0
    bundle = open_bundle(str(folder / "bundle"))
    assert (bundle.items, bundle.classes) == (
        "longest_stretch",
        ("host", "virusFalse", "virusTrue"),
    )
    assert [one.view for one in bundle.encoders] == ["nucleotide", "protein"]
    assert bundle.metrics["cross_validation"]["500"]["auroc"] > 0.9
    assert main(["verify", str(folder / "vectors")]) == 0
    stops = labels.with_name("stops.fa")
    stops.write_text(">stops\n" + "TAGATAACTGATTAGCTAATCAGTTATCTA" * 30 + "\n")
    inputs = [labels.parent / f"held-{label}.fa" for label in SIDES]
    words = ["predict", *inputs, stops, "-o", tmp_path / "run", "-b", folder / "bundle", "-q"]
    assert main([*map(str, words), "--devices", "cpu:2"]) == 0
    viral, other, last = tables(tmp_path / "run" / "predictions.tsv")
    assert float(viral["calibrated_probability"]) > 0.7
    assert float(other["calibrated_probability"]) < 0.3
    assert (last["status"], last["evidence"]) == ("scored", "composition")
    assert other["likely_source"] == "host"
    assert last["likely_source"] == "NA"  # the fallback has other classes
    windows = tables(tmp_path / "run" / "tracks" / "windows.tsv")
    assert {row["n_items"] for row in windows} == {"1"}
    assert {row["status"] for row in windows} == {"scored"}


@pytest.mark.slow
def test_windows_and_lengths_are_chosen(labels, tmp_path, tables):
    folder = tmp_path / "short"
    options = ("--window", "250", "--lengths", "120-250", "--no-records")
    assert main(command(labels, folder, *options)) == 0
    bundle = open_bundle(str(folder / "bundle"))
    assert bundle.record is None
    assert bundle.window == 250
    assert list(bundle.metrics["cross_validation"]) == ["100", "150", "250", "625", "1500", "2500"]
    assert bundle.provenance["recipe"]["lengths"] == "120-250"
    crops = [line for line in (folder / "windows.fa").read_text().splitlines() if line[0] != ">"]
    assert min(map(len, crops)) < 140
    held_out = labels.parent / "held-viral.fa"
    words = ["predict", held_out, "-o", tmp_path / "run", "-b", folder / "bundle", "-q"]
    assert main(list(map(str, words))) == 0
    assert len(tables(tmp_path / "run" / "tracks" / "windows.tsv")) == 12


@pytest.mark.slow
def test_a_resume_needs_the_encoder_only(trained, labels, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(find_bundle("mini"), own)
    folder = tmp_path / "toy"
    assert main(command(labels, folder, "-e", f"{own}/nucleotide")) == 0
    segments = RunDirectory(folder / "vectors").segments_file
    first = segments.stat().st_mtime_ns
    manifest = json.loads((own / "bundle.json").read_text())
    manifest["thresholds"] = {"viral": 0.7, "non_viral": 0.2}
    (own / "bundle.json").write_text(json.dumps(manifest))
    assert open_bundle(str(own)).fingerprint != open_bundle("mini").fingerprint
    assert main(command(labels, folder, "-e", f"{own}/nucleotide", "--resume")) == 0
    assert segments.stat().st_mtime_ns == first
    head = (folder / "bundle" / "head.safetensors").read_bytes()
    assert head == (trained / "bundle" / "head.safetensors").read_bytes()


def changed(labels, name, *pairs):
    text = labels.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    table = labels.with_name(name)
    table.write_text(text)
    return table


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ((("\theld-viral\t", "\tviral-2\t"),), "1 groups are on both sides of the split: viral-2"),
        (
            (
                ("split\n", "split\tkingdom\n"),
                ("non-viral-1\ttrain", "non-viral-1\ttrain\tvirus"),
            ),
            "the kingdom 'virus' is for viral sequences",
        ),
        (
            (
                ("split\n", "split\tclass\n"),
                ("non-viral-1\ttrain", "non-viral-1\ttrain\tx"),
                ("\tviral-1\ttrain", "\tviral-1\ttrain\tx"),
            ),
            "the class 'x' has viral and non-viral sequences",
        ),
    ],
)
def test_contradicting_labels_are_refused(pairs, reason, labels, tmp_path, called):
    text = labels.read_text().replace("\r\n", "\n")
    labels.write_text(text)
    table = changed(labels, "contradiction.tsv", *pairs)
    assert reason in called(*command(table, tmp_path / "toy"), code=1).stderr
    assert not (tmp_path / "toy").exists()


def test_other_files_in_the_folder_are_refused(labels, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(command(labels, tmp_path, "--force")) == 1
    assert "not the folder of a training" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
