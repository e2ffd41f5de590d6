"""report.html and the files for MultiQC, from the command line; the page itself: tests/browser."""

import itertools
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import slow
from programs import run_without_root, take_apart

from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.regions import Regions
from virnucpro.cli.main import main
from virnucpro.errors import UsageError
from virnucpro.joined import remove
from virnucpro.report.html import best, page
from virnucpro.run.manifest import read_manifest, write_manifest
from virnucpro.run.report import plot_run
from virnucpro.run_dir import RunDirectory
from virnucpro.tables.source import LENGTH_CLASSES

pytestmark = pytest.mark.usefixtures("one_process")

REPORTS = {
    "report.html",
    "virnucpro_mqc.json",
    "virnucpro_calls_mqc.json",
    "virnucpro_scores_mqc.json",
}


@pytest.fixture(scope="module")
def run(small_fasta, tmp_path_factory):
    """A run of predict, with a virus."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    path = folder.parent / "small.fa"
    example = Path(__file__).parents[1] / "data" / "example.fa"
    virus = example.read_text().split(">")[1]
    path.write_text(f"{small_fasta.read_text()}>{virus}")
    return predicted(path, folder)


def predicted(fasta, folder, *more):
    words = ["predict", fasta, "-o", folder, "--devices", "cpu:1", "-q", *more]
    assert main([*map(str, words)]) == 0
    return RunDirectory(Path(folder))


def copied(run, folder, name="copy"):
    shutil.copytree(run.root, folder / name)
    return RunDirectory(folder / name)


def data_of(path):
    text = path.read_text("utf-8")
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1]
    )


def words_of(path):
    """Return the text of a report that people see, without scripts and styles."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", path.read_text("utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def test_the_report_counts_what_the_table_has(run, tables):
    rows = tables(run.predictions)
    viral = [row for row in rows if row["call"] == "viral"]
    text = words_of(run.report)
    verb = "is" if len(viral) == 1 else "are"
    assert f"{len(viral)} of {len(rows)} sequences {verb} called viral" in text
    data = data_of(run.report)
    assert sum(one["viral"] for one in data["lengths"]) == len(viral)
    assert [one["class"] for one in data["lengths"]] == list(LENGTH_CLASSES)
    (file,) = data["files"]
    assert {call: file[call] for call in ("viral", "not_scored")} == {
        call: sum(row["call"] == call for row in rows) for call in ("viral", "not_scored")
    }
    shown = data["records"]
    assert len(shown["seq_name"]) == len(rows)
    assert set(shown["call"][: len(viral)]) == {"viral"}
    probabilities = shown["probability"][: len(viral)]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(map(sum, data["score"].values())) == sum(row["score"] != "NA" for row in rows)
    track = data["tracks"][0]
    assert track["name"] in {row["seq_name"] for row in rows}
    [row] = track["rows"]
    assert len(row["scores"]) == min(track["windows"], 400)


def test_the_report_uses_words_that_virologists_know(run):
    words = words_of(run.report)
    assert re.findall(r"\b(?:units?|ranks?|segments?|rows?)\b|\\x", words) == []
    assert "bundle mini" in words
    assert "fallback None" not in words


def test_the_report_names_no_other_file_and_no_address_to_load(run):
    text = run.report.read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    assert re.findall(r"<(?:link|img|iframe|script)\b[^>]*\b(?:src|href)=(?!\"data:)", text) == []
    assert "sourceMappingURL" not in text


def test_no_embedded_library_has_been_changed():
    import hashlib
    from importlib.resources import files

    folder = files("virnucpro.report.html").joinpath("assets")
    rows = re.findall(
        r"^\| `([^`]+)` \|.*`([0-9a-f]{64})` \|$",
        folder.joinpath("README.md").read_text(),
        re.MULTILINE,
    )
    assert len(rows) == 4
    for name, digest in rows:
        assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == digest
        assert "</script" not in folder.joinpath(name).read_text("utf-8")


def test_a_report_is_made_anew_from_the_folder(run, called):
    before = run.report.read_bytes()
    run.report.unlink()
    assert f"written: {run.report}" in called("report", run.root, code=0).stderr
    same = [
        re.sub(rb"on \d{4}-.. .*? UTC", b"", text) for text in (before, run.report.read_bytes())
    ]
    assert len(same[0]) == len(same[1])


def test_a_run_with_a_report_is_valid_and_owns_it(run):
    assert main(["verify", str(run.root)]) == 0
    assert all(run.owns(path) and path.exists() for path in run.reports)


def test_no_report_leaves_it_out_and_removes_the_report_of_other_tables(run, small_fasta, tmp_path):
    copy = copied(run, tmp_path)
    predicted(small_fasta, copy.root, "--force", "--no-report")
    without = {run.multiqc[0].name}
    assert {path.name for path in (copy.report, *copy.multiqc) if path.exists()} == without
    for words, left in (([], REPORTS), (["--no-report"], without)):
        assert main(["aggregate", str(copy.root), "-q", *words]) == 0
        assert {path.name for path in (copy.report, *copy.multiqc) if path.exists()} == left


def test_rescore_renews_the_report(run, tmp_path):
    copy = copied(run, tmp_path)
    before = data_of(copy.report)["threshold"]
    assert main(["rescore", str(copy.root), "--preset", "conservative", "-q"]) == 0
    assert data_of(copy.report)["threshold"] > before


def test_a_report_that_cannot_be_written_loses_no_table(small_fasta, tmp_path, monkeypatch, called):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "write_page", full)
    words = ["predict", str(small_fasta), "-o", str(tmp_path / "r"), "--devices", "cpu:1"]
    printed = called(*words, code=0).stderr
    assert "the report could not be written ([Errno 28] No space left on device)" in printed
    assert f"virnucpro report {tmp_path / 'r'}" in printed
    assert main(["verify", str(tmp_path / "r")]) == 0
    assert not (tmp_path / "r/report.html").exists()


def test_a_partial_run_says_so(run, tmp_path):
    copy = copied(run, tmp_path)
    for _, path in copy.segments()[::2]:
        remove(path)
    assert main(["report", str(copy.root), "-q"]) == 0
    text = words_of(copy.report)
    assert "This report is partial." in text
    assert re.search(r"copy: \d+ sequences not computed yet, listed in missing.tsv", text)


def without_tables(run):
    write_manifest(run, replace(read_manifest(run), tables_complete=False))


@pytest.mark.parametrize(
    ("change", "more", "code", "message"),
    [
        (without_tables, [], 1, "ROOT has no tables: .* aggregate ROOT"),
        (lambda run: run.run_json.unlink(), [], 1, "ROOT is not a run of virnucpro"),
        (lambda run: run, ["-o", "ROOT/predictions.tsv"], 64, "is a file of a run"),
    ],
)
def test_a_run_that_cannot_be_reported_is_named(change, more, code, message, run, tmp_path, capsys):
    copy = copied(run, tmp_path)
    change(copy)
    words = [word.replace("ROOT", str(copy.root)) for word in more]
    assert main(["report", str(copy.root), "-q", *words]) == code
    assert re.search(message.replace("ROOT", str(copy.root)), capsys.readouterr().err, re.DOTALL)


def test_a_run_of_embed_gets_no_report(small_fasta, tmp_path, called):
    folder = tmp_path / "vectors"
    words = ["embed", small_fasta, "-e", "mini/nucleotide", "-o", folder, "--devices", "cpu:1"]
    assert main([*map(str, words), "-q"]) == 0
    assert not REPORTS & {path.name for path in folder.iterdir()}
    assert "is a run of embed, which has no calls" in called("report", folder, code=1).stderr


def test_a_folder_whose_name_is_no_text_has_a_report(run, tmp_path):
    copy = copied(run, tmp_path, os.fsdecode(b"caf\xe9<b>"))
    assert main(["report", str(copy.root), "-q"]) == 0
    assert data_of(copy.report)["samples"][0]["sample"] == os.fsdecode(b"caf\xe9<b>")
    assert "<b>" not in copy.report.read_text("utf-8").partition("<script")[0]


def test_the_size_is_limited_for_long_names(tmp_path):
    """Names of 3 bytes a letter, at more records than the table shows."""
    name, fasta = "\N{HIRAGANA LETTER A}" * 300, tmp_path / "long.fa"
    fasta.write_text(f">{name}\n{'ACGTTGCAAT' * 12}\n" * 6_000, encoding="utf-8")
    run = predicted(fasta, tmp_path / "long")
    data = data_of(run.report)
    assert len(data["records"]["seq_name"]) == 5_000
    assert "The best 5,000 of 6,000 sequences" in words_of(run.report)
    assert run.report.stat().st_size < 3_000_000


def test_a_folder_that_takes_no_report_is_named_with_a_way_out(run, tmp_path, monkeypatch, capsys):
    copy = copied(run, tmp_path)
    with monkeypatch.context() as patch:
        refused = copy.root / "refused" / "x.tmp"
        patch.setattr("virnucpro.durable.temporary_beside", lambda _: refused)
        assert main(["report", str(copy.root)]) == 1
    printed = capsys.readouterr().err
    assert f"no report.html can be written into {copy.root}" in printed
    assert f"virnucpro report {copy.root} -o FILE" in printed
    assert ".tmp" not in printed
    assert "Errno" not in printed
    assert "unchanged" not in printed
    assert main(["report", str(copy.root), "-o", str(tmp_path / "r.html")]) == 0


@pytest.mark.usefixtures("fonts")
def test_a_file_in_a_missing_folder_is_refused_before_the_work(run, tmp_path, capsys, called):
    for command, name in (("report", "r.html"), ("plot", "r.png")):
        path = tmp_path / "none" / name
        printed = called(command, run.root, "-o", path, code=64).stderr
        assert f"{path} cannot be written: the folder {path.parent} does not exist" in printed
        assert "Errno" not in printed
        (tmp_path / name).mkdir()
        assert main([command, str(run.root), "-o", str(tmp_path / name)]) == 64
        assert f"{tmp_path / name} is a folder" in capsys.readouterr().err


def test_several_runs_are_compared_and_a_folder_of_runs_stands_for_them(
    run, small_fasta, tmp_path, capsys, called
):
    for name in ("a/out", "b/out"):
        predicted(small_fasta, tmp_path / name, "--no-report")
    assert main(["report", str(tmp_path / "a/out"), str(tmp_path / "b/out")]) == 64
    assert "name the report of all of them with -o" in capsys.readouterr().err
    (tmp_path / "a/begun/run").mkdir(parents=True)
    (tmp_path / "a/begun/run/run.json").write_bytes(run.run_json.read_bytes())
    predicted(small_fasta, tmp_path / "a/removed.fa", "--no-report")  # no longer a file of it
    (tmp_path / "a/launch.json").write_text(table_of({"/in/out": "done", "/in/begun": "partial"}))
    path = tmp_path / "all.html"
    folders = [str(tmp_path / "a"), str(tmp_path / "b/out"), str(run.root)]
    printed = called("report", *folders, "-o", path, "-q", code=0).stderr
    assert f"runs without predictions.tsv are left out (1): {tmp_path / 'a/begun'}" in printed
    data = data_of(path)
    assert [one["sample"] for one in data["samples"]] == ["a_out", "b_out", "small"]
    assert len({*zip(data["records"]["sample"], data["records"]["file"], strict=True)}) == 3
    assert "in 3 samples" in words_of(path)


def test_runs_in_snapshots_of_the_file_system_are_not_reported_again(run, tmp_path, called):
    for name in ("s1", ".s2", ".snapshot/hourly.0/s1"):
        copied(run, tmp_path / "out", name)
    called("report", tmp_path / "out", "-o", tmp_path / "all.html", code=0)
    assert [one["sample"] for one in data_of(tmp_path / "all.html")["samples"]] == [".s2", "s1"]


def table_of(statuses):
    """Return the table of a launch of files with these statuses."""
    empty = {"gpu": None, "seconds": None, "attempts": 0, "result": {}, "details": ""}
    files = [
        {"file": name, "status": status, "error": f"why {Path(name).stem}", **empty}
        for name, status in statuses.items()
    ]
    content = {"input_dir": "/in", "exit_code": 2, "seconds": 1, "troubles": [], "files": files}
    return json.dumps(content)


def launched(tmp_path, **statuses):
    """Write the table of a launch of files with these statuses."""
    (tmp_path / "out").mkdir(exist_ok=True)
    names = {f"/in/{name}.fa": status for name, status in statuses.items()}
    (tmp_path / "out/launch.json").write_text(table_of(names))
    return tmp_path / "out"


def test_a_report_of_a_launch_counts_the_files_it_lacks(run, tmp_path, capsys):
    failed = {f"bad_{number}": "failed" for number in range(6)}
    out = launched(tmp_path, late="left", ok="done", half="partial", **failed)
    for name in ("ok.fa", "half.fa", "bad_5.fa"):  # the last one is of an earlier launch
        copied(run, out, name)
    path = tmp_path / "all.html"
    assert main(["report", str(out), "-o", str(path), "-q"]) == 0
    head = "out: 7 of 9 files have no result, and launch.tsv lists them"
    assert capsys.readouterr().err.count(head) == 1
    text = words_of(path)
    assert text.index("This report is partial.") < text.index(head) < text.index("are called viral")
    assert [one["sample"] for one in data_of(path)["samples"]] == ["half.fa", "ok.fa"]
    assert main(["report", str(out), str(out / "bad_5.fa"), "-o", str(path), "-q"]) == 0  # as asked
    assert len(data_of(path)["samples"]) == 3


def test_a_launch_without_results_or_with_a_damaged_table_has_no_report(tmp_path, capsys, called):
    out = launched(tmp_path, one="failed")
    printed = called("report", out, "-o", tmp_path / "all.html", code=1).stderr
    assert "out: 1 of 1 files have no result" in printed
    assert "none of the runs has tables" in printed
    (out / "launch.json").write_text("{}")
    assert main(["report", str(out), "-o", str(tmp_path / "all.html")]) == 1
    assert f"{out / 'launch.json'} is damaged" in capsys.readouterr().err


@pytest.fixture
def with_candidates(monkeypatch):
    """Give records of the next runs regions of both kinds: they are provirus candidates.

    All other scored records get one viral region.
    """

    def patch(*candidates):
        left = [*candidates]

        def regions(index, _windows, records, *_others, **_options):
            chosen, rows = left.pop(0), []
            for record in range(index.n_records):
                if record in chosen:
                    rows += [(record, 0, 50, False, 1, 0, np.nan, np.nan, 0.1)]
                    rows += [(record, 50, 90, True, 1, 1, 0.8, 2.0, 0.9)]
                elif np.isfinite(records.score[record]):
                    score = records.score[record]
                    rows += [(record, 0, 40, True, 1, 1, score, 1.0, 0.7)]
            return Regions(*map(np.array, zip(*rows, strict=True)))

        monkeypatch.setattr("virnucpro.tables.source.find_regions", regions)

    return patch


def test_provirus_candidates_have_half_of_the_tracks_and_the_first_regions(
    run, tmp_path, tables, with_candidates
):
    scored = [n for n, row in enumerate(tables(run.predictions)) if row["score"] != "NA"]
    copy = copied(run, tmp_path)
    with_candidates(scored[:17])
    assert main(["report", str(copy.root), "-q"]) == 0
    data = data_of(copy.report)
    kinds = [one["topology"] == "provirus_candidate" for one in data["tracks"]]
    assert len(scored) >= 17 + 12
    assert kinds[:13] == [True] * 12 + [False]
    assert sum(kinds) >= 12
    shown = data["regions"]
    assert shown["topology"][:34] == ["provirus_candidate"] * 34
    assert {*shown["topology"][34:]} == {None}
    assert shown["state"][:34] == ["non-viral", "viral"] * 17
    assert shown["start"][:34] == [1, 51] * 17
    for part in (shown["record"][:34], shown["record"][34:]):
        assert list(map(int, part)) == sorted(map(int, part))


def test_several_samples_are_in_one_order_of_evidence(run, tmp_path, with_candidates):
    first, second = copied(run, tmp_path, "a"), copied(run, tmp_path, "b")
    with_candidates([0], [0, 1])
    path = tmp_path / "all.html"
    assert main(["report", str(first.root), str(second.root), "-o", str(path), "-q"]) == 0
    data = data_of(path)
    tracks = [one for one in data["tracks"] if one["topology"] != "provirus_candidate"]
    assert {one["topology"] for one in data["tracks"][:3]} == {"provirus_candidate"}
    best = [one["probability"] for one in tracks if one["call"] == "viral" and one["windows"] > 1]
    assert best == sorted(best, reverse=True)
    assert [one["sample"] for one in tracks[:2]] == ["a", "b"]
    shown = data["regions"]
    assert shown["sample"][:6] == ["a"] * 2 + ["b"] * 4
    assert shown["topology"][:6] == ["provirus_candidate"] * 6
    records = data["records"]
    viral = [
        p for p, c in zip(records["probability"], records["call"], strict=True) if c == "viral"
    ]
    assert viral == sorted(viral, reverse=True)
    assert len(viral) == records["call"].index(next(c for c in records["call"] if c != "viral"))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (">n\n" + "N" * 600, "None of 1 sequence is called viral"),
        (">one\n" + "ACGTTGCAAT" * 60, "of 1 sequence"),
        ("", "The input has no sequences."),
    ],
    ids=["unknown letters", "repeat", "empty"],
)
def test_odd_runs_have_a_report(records, expected, tmp_path):
    (tmp_path / "odd.fa").write_text(records)
    text = words_of(predicted(tmp_path / "odd.fa", tmp_path / "r").report)
    assert expected in text
    if not records:
        assert text.count(expected) == 7
        threshold = open_bundle("mini").calibration["presets"]["default"]["viral"]
        assert f"threshold {threshold:g} (probability)" in text
        for untrue in ("several machines", "(score)", "Every sequence", "No sequence", "workers"):
            assert untrue not in text, untrue


@pytest.mark.usefixtures("fonts")
@pytest.mark.parametrize("kind", ["png", slow("svg"), slow("pdf")])
def test_figures_are_drawn(kind, run, tmp_path):
    marks = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for name, words in (("all", []), ("one", ["open_1"])):
        path = tmp_path / f"{name}.{kind}"
        assert main(["plot", str(run.root), *words, "-o", str(path)]) == 0
        first = path.read_bytes()
        assert first.startswith(marks[kind])
        assert main(["plot", str(run.root), *words, "-o", str(path)]) == 0
        assert path.read_bytes() == first


@pytest.mark.usefixtures("fonts")
def test_the_highest_bar_does_not_touch_the_frame(run, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("virnucpro.report.plots._save", lambda figure, _: drawn.append(figure))
    assert main(["plot", str(run.root), "-o", str(tmp_path / "x.png")]) == 0
    (axes,) = drawn[0].axes
    highest = max(bar.get_y() + bar.get_height() for bar in axes.patches)
    assert axes.get_ylim() == (0, pytest.approx(1.05 * highest))


@pytest.mark.usefixtures("fonts")
def test_the_strip_of_regions_has_its_own_label(run, tmp_path, tables, with_candidates):
    import matplotlib as mpl

    name = tables(run.predictions)[0]["seq_name"]
    with_candidates([0])
    path = tmp_path / "x.svg"
    with mpl.rc_context({"svg.fonttype": "none"}):
        assert main(["plot", str(run.root), name, "-o", str(path)]) == 0
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", path.read_text("utf-8"))
    assert "position (bases)" in texts
    assert texts.count("regions") == 1
    assert not [text for text in texts if "below" in text]


@pytest.mark.usefixtures("fonts")
def test_the_title_of_a_long_name_without_glyphs(tmp_path, monkeypatch):
    from virnucpro.report import plots

    name, folder, drawn = "\U0001f9ec" + "A" * 60, tmp_path / "run", []
    fasta = tmp_path / "long.fa"
    fasta.write_text(f">{name}\n{'ACGTTGCAGG' * 60}\n")
    assert main(["predict", str(fasta), "-o", str(folder), "-q", "--no-report"]) == 0
    save = plots._save
    monkeypatch.setattr(plots, "_save", lambda *given: drawn.append(given[0]) or save(*given))
    assert main(["plot", str(folder), name, "-o", str(tmp_path / "x.png")]) == 0
    assert drawn[0].axes[0].get_title().splitlines()[0] == name


@pytest.mark.usefixtures("fonts")
def test_equal_names_are_told_apart_by_their_number(run, tmp_path, called):
    path = tmp_path / "x.svg"
    printed = called("plot", run.root, "repeat", "-o", path, code=64).stderr
    assert "2 sequences named repeat; choose one of them" in printed
    numbers = re.findall(r"--file small.fa --record (\d+)", printed)
    assert main(["plot", str(run.root), "repeat", "--record", numbers[1], "-o", str(path)]) == 0
    assert "repeat" in path.read_text() or path.stat().st_size > 1_000


def test_plot_without_matplotlib_names_the_extra(run, tmp_path, monkeypatch, capsys, called):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", str(run.root), "-o", str(tmp_path / "x.svg")]) == 64
    assert "pip install 'virnucpro[plot]'" in capsys.readouterr().err
    assert "unknown format" in called("plot", run.root, "-o", tmp_path / "x.gif", code=64).stderr


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_report_replaces_no_pipe_and_no_link(kind, run, tmp_path, capsys):
    target, place = tmp_path / "target.html", tmp_path / "report.html"
    target.write_text("kept")
    os.mkfifo(place) if kind == "pipe" else place.symlink_to(target)
    assert main(["report", str(run.root), "-o", str(place)]) == 64
    assert "is not a regular file, and would be replaced" in capsys.readouterr().err
    assert target.read_text() == "kept"
    assert place.is_symlink() or place.is_fifo()


@pytest.fixture(scope="module")
def elsewhere(run, tmp_path_factory):
    """A run whose input has a relative path, and the input."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copy(run.root.parent / "small.fa", folder / "in.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        predicted("in.png", "run")
    take_apart(folder / "run")
    return folder / "run", folder / "in.png"


@pytest.mark.parametrize("command", ["report", "aggregate", "aggregate --index", "plot"])
@pytest.mark.parametrize(
    "kind", ["path", "relative path", "run/index/x.png", "run/index/report.html"]
)
def test_an_output_that_is_an_input_or_a_file_of_a_run_is_refused(
    command, kind, elsewhere, tmp_path, monkeypatch, capsys
):
    """From another folder, an input with a relative path is known by its state."""
    folder, output = elsewhere
    monkeypatch.chdir(folder.parent if kind == "path" else tmp_path)
    if "path" not in kind:
        output = folder / kind
        output.write_bytes(b"of the run")
    before = output.read_bytes()
    if command == "plot":
        with pytest.raises(UsageError, match=re.escape(str(output))):
            plot_run(folder, output)
    else:
        name, *index = command.split()
        of = folder if name == "report" else folder / "run" / "shards"
        words = [name, of, "-o", output, *index, *([folder] if index else []), "-q"]
        assert main([*map(str, words)]) == 64
        assert str(output) in capsys.readouterr().err
    assert output.read_bytes() == before


@pytest.mark.parametrize("command", ["report", slow("aggregate"), slow("plot")])
@pytest.mark.parametrize("closed", ["run.json above", "folder of the input"])
def test_an_output_beside_files_that_the_user_cannot_read(closed, command, run, tmp_path):
    """A run.json of somebody else in a folder above, or an input in a folder that was closed."""
    data, results = tmp_path / "data", tmp_path / "results"
    data.mkdir()
    fasta = shutil.copy(run.root.parent / "small.fa", data)
    copy = take_apart(predicted(fasta, results / "sample", "--embeddings", "fp16").root)
    output = results / "figure.png"
    output.touch()
    above = RunDirectory(results).run_json
    above.parent.mkdir(exist_ok=True)
    above.touch()
    secret = data if closed == "folder of the input" else above
    secret.chmod(0)
    try:
        of = [copy.shards, "--index"] if command == "aggregate" else []
        run_without_root(command, *of, copy.root, "-o", output, code=0)
    finally:
        secret.chmod(0o700)
    assert output.stat().st_size


def test_a_run_in_a_folder_of_another_run_has_a_report(run, tmp_path, capsys):
    outer = copied(run, tmp_path)
    shutil.copytree(run.root, outer.logs / "inner")
    inner = RunDirectory(outer.logs / "inner")
    inner.report.unlink()
    assert main(["report", str(inner.root), "-q"]) == 0
    assert inner.report.exists()
    path = outer.logs / "all.html"
    assert main(["report", str(inner.root), "-o", str(path), "-q"]) == 64
    assert f"{path} is a file of a run, {outer.root}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["launch.tsv", "launch.json", "launch.logs/report.html"])
def test_a_report_replaces_no_file_of_a_launch(name, run, tmp_path, capsys):
    """A report of its runs may lie in the folder of the launch itself."""
    folder = tmp_path / "launch"
    (folder / "launch.logs").mkdir(parents=True)
    (folder / "launch.json").write_text("{}")
    (folder / name).touch()
    before = (folder / name).read_bytes()
    copied(run, folder, "in.fa")
    words = ["report", str(folder / "in.fa"), "-q", "-o"]
    assert main([*words, str(folder / name)]) == 64
    assert f"{folder / name} is a file of a launch" in capsys.readouterr().err
    assert (folder / name).read_bytes() == before
    assert main([*words, str(folder / "all.html")]) == 0


@pytest.mark.usefixtures("fonts")
def test_a_part_of_a_sequence_is_drawn(run, tmp_path, monkeypatch, called, tables):
    row = tables(run.predictions)[0]
    drawn, command = [], ("plot", run.root, row["seq_name"], "-o", tmp_path / "x.png")
    last = int(row["length"])
    for words, wanted in (
        (("--start", "11", "--end", "200"), (10, 200)),
        (("--start", "11"), (10, last)),
        (("--end", last + 1), (0, last)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr("virnucpro.report.plots._save", lambda figure, _: drawn.append(figure))
            assert main([*map(str, (*command, *words))]) == 0
        assert drawn[-1].axes[0].get_xlim() == wanted
    printed = called(*command, "--start", last + 1, code=64).stderr
    assert f"nothing to draw from base {last + 1:,} to {last:,} of {last:,}" in printed
    printed = called("plot", run.root, "--start", 5, "-o", tmp_path / "x.png", code=64).stderr
    assert "--start and --end need the name of a sequence" in printed


def test_a_genome_is_drawn_in_rows_with_genes(run, tmp_path, monkeypatch):
    monkeypatch.setattr("virnucpro.report.html.best._ROW", 500)
    copy = copied(run, tmp_path)
    assert main(["report", str(copy.root), "-q"]) == 0
    tracks = data_of(copy.report)["tracks"]
    long = [one for one in tracks if len(one["rows"]) > 1]
    assert long
    for one in long:
        bounds = [(row["start"], row["end"]) for row in one["rows"]]
        assert bounds[0][0] == 0
        assert bounds[-1][1] == one["length"]
        assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))
        for (start, end), row in zip(bounds, one["rows"], strict=True):
            assert all(start < gene[1] and gene[0] <= end + 3 for gene in row["genes"])
            assert all(start < last and first <= end for first, last, _ in row["regions"])
    assert any(row["genes"] for one in long for row in one["rows"][1:])


def test_of_a_long_chromosome_the_rows_with_viral_regions_are_drawn():
    length, viral = 100_000_000, (52_000_001, 52_600_000, "viral")
    regions = [(1, 52_000_000, "non-viral"), viral, (52_600_001, length, "non-viral")]
    rows = [(52_000_000, 52_500_000), (52_500_000, 53_000_000)]
    assert best._parts(length, regions, 12_000_000) == rows
    assert best._parts(length, regions, 500_000) == [(0, length)]
    assert best._parts(length, [], 12_000_000) == [(0, length)]
    assert len(best._parts(length, [(1, length, "viral")], 12_000_000)) == 12
    assert best._parts(400_000, regions, 0) == [(0, 400_000)]
