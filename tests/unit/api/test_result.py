"""The result of classify, and its run folder."""

import copy
import gc
import pickle
import random
import re
import warnings

import pytest

import virnucpro
from virnucpro.cli.main import main
from virnucpro.folder_lock import folder_lock
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.records import read_records

OUTPUTS = ("predictions.tsv", "tracks/windows.tsv", "viruses.fasta")


def test_the_run_is_that_of_the_command_line(tmp_path, pairs):
    path = tmp_path / "in.fa"
    path.write_text("".join(f">{name}\n{letters}\n" for name, letters in pairs))
    options = ["--devices", "cpu", "--preset", "sensitive", "-q"]
    assert main(["predict", str(path), "-o", str(tmp_path / "cli"), *options]) == 0
    outdir = tmp_path / "api"
    result = virnucpro.classify(path, outdir=outdir, devices="cpu", preset="sensitive")
    for name in OUTPUTS:
        assert (outdir / name).read_bytes() == (tmp_path / "cli" / name).read_bytes()
    assert result.complete
    assert verify_run(RunDirectory(outdir)).problems == ()


def test_nothing_is_printed_unless_asked(pairs, capfd):
    virnucpro.classify(pairs, threads=1).close()
    assert capfd.readouterr() == ("", "")
    virnucpro.classify(pairs, threads=1, progress=True).close()
    out, err = capfd.readouterr()
    assert out == ""
    assert "[virnucpro] writing tables" in err


def test_a_temporary_folder_is_removed_with_the_result(pairs):
    with virnucpro.classify(pairs, threads=1) as result:
        folder = result.outdir
        n_rows = len(result.predictions)
    assert not folder.parent.exists()
    assert len(result.predictions) == n_rows  # read before
    with pytest.raises(virnucpro.RunError, match="temporary run folder is removed"):
        result.windows  # noqa: B018
    forgotten = virnucpro.classify(pairs, threads=1)
    folder = forgotten.outdir
    assert folder.exists()
    del forgotten
    gc.collect()
    assert not folder.parent.exists()


@pytest.fixture(params=["memory", "disk"])
def several(request):
    """A result in memory, and one in a temporary folder."""
    dice = random.Random(3)
    shares = [(number / 20, 1 - number / 20) for number in range(4, 16)]
    pairs = [
        (f"s{gc}", "".join(dice.choices("ACGT", [at, gc, gc, at], k=1_200))) for gc, at in shares
    ]
    devices = "cpu" if request.param == "memory" else "cpu:2"
    with virnucpro.classify(pairs, devices=devices, threads=2) as result:
        yield result


def test_a_rescored_result_leaves_the_others_as_they_are(several, tmp_path):
    limits = (0.0, *sorted(several.predictions["probability"])[1:7:2], 1.0)
    results = {limit: several.rescore(threshold=limit) for limit in limits}
    numbers = [result.calls.get("viral", 0) for result in results.values()]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > numbers[2] > numbers[-1]
    assert several.rescore(prevalence=0.3).calls != results[0.0].calls
    for result in (several, *results.values()):
        assert len(result.viral()) == result.calls.get("viral", 0)
        text = result.to_fasta(tmp_path / "viral.fa").read_text()
        assert text.count(">") == result.calls.get("viral", 0)
        assert verify_run(RunDirectory(result.outdir)).problems == ()
    results[0.0].close()
    several.close()
    saved = results[1.0].save(tmp_path / "copy") / "tracks" / "windows.tsv"
    assert len(saved.read_text().splitlines()) == 1 + len(results[1.0].windows)


def test_a_result_of_another_process_keeps_its_tables(several):
    tables = {name: getattr(several, name) for name in ("predictions", "windows", "regions")}
    calls = several.calls
    there = pickle.loads(pickle.dumps(several))
    several.close()
    assert there.calls == calls
    assert len(there.viral()) == calls.get("viral", 0)
    for name, table in tables.items():
        assert str(getattr(there, name)) == str(table)


def test_a_pickle_of_a_named_folder_reads_it(run):
    assert str(pickle.loads(pickle.dumps(run)).predictions) == str(run.predictions)


def test_a_result_whose_tables_were_replaced_says_so(pairs, tmp_path):
    result = virnucpro.classify(pairs, outdir=tmp_path / "run", threads=1)
    known = len(result.windows)
    again = result.rescore(threshold=0.0)
    assert len(again.viral()) == 3
    assert len(result.windows) == known  # read before
    assert_superseded(result, tmp_path)
    virnucpro.classify(pairs[:2], outdir=tmp_path / "run", threads=1, force=True)
    assert_superseded(result, tmp_path)


def assert_superseded(result, folder):
    """Check that nothing is read from the run folder that belongs to another result."""
    for read in (
        *(result.viral, result.report, result.scores, lambda: result.save(folder / "copy")),
        *(lambda: virnucpro.read_predictions(result), lambda: result.to_fasta(folder / "a.fa")),
    ):
        with pytest.raises(virnucpro.RunError, match="use the result that rescore or classify"):
            read()
    assert [path.name for path in folder.iterdir() if path.name in {"copy", "a.fa"}] == []


def test_a_result_is_intact_after_a_refused_rescore(pairs, tmp_path):
    result = virnucpro.classify(pairs, outdir=tmp_path / "run", threads=1)
    lock = RunDirectory(result.outdir).lock
    with folder_lock(lock, ""), pytest.raises(virnucpro.RunLockedError):
        result.rescore(threshold=0.0)
    assert len(result.viral()) == result.calls.get("viral", 0)
    assert result.save(tmp_path / "copy").exists()


def test_a_deep_copy_has_a_folder_of_its_own(several, tmp_path):
    twin = copy.deepcopy(several)
    calls, table = several.calls, str(several.predictions)
    several.close()
    assert str(virnucpro.read_predictions(twin)) == str(twin.predictions) == table
    assert twin.rescore(threshold=0.0).calls != calls
    assert twin.report(tmp_path / "twin.html").exists()
    twin.close()
    assert str(copy.deepcopy(twin).predictions) == table  # read before


def test_sequences_replace_no_input_and_no_file_of_the_run(pairs, tmp_path):
    path = tmp_path / "in.fa"
    path.write_text("".join(f">{name}\n{letters}\n" for name, letters in pairs))
    before = path.read_text()
    kept = virnucpro.classify(path, outdir=tmp_path / "run", threads=1)
    for result in (kept, virnucpro.classify(path, threads=1)):
        with pytest.raises(virnucpro.UsageError, match=r"in[.]fa is an input of the run"):
            result.to_fasta(path)
    with pytest.raises(virnucpro.UsageError, match=r"predictions[.]tsv is a file of a run"):
        kept.to_fasta(RunDirectory(kept.outdir).predictions)
    assert path.read_text() == before


@pytest.mark.parametrize("source", [{}, [], iter(())], ids=["dict", "list", "iterator"])
def test_no_sequences_are_an_empty_file(source):
    with pytest.warns(UserWarning, match=r"inputs without sequences: 1 \(source\)"):
        result = virnucpro.classify(source, threads=1)
    assert (len(result), len(result.predictions), result.calls) == (0, 0, {})


def test_a_named_folder_is_kept_and_resumed(run, pairs):
    before = (run.outdir / "predictions.tsv").read_bytes()
    options = {"outdir": run.outdir, "threads": 1}
    with pytest.raises(virnucpro.RunExistsError) as caught:
        virnucpro.classify(pairs, **options)
    assert "--resume" in str(caught.value)
    with virnucpro.classify(pairs, **options, resume=True) as again:
        assert again.calls == run.calls
    assert (run.outdir / "predictions.tsv").read_bytes() == before
    with pytest.raises(virnucpro.FingerprintError, match="records with"):
        virnucpro.classify(pairs[1:], **options, resume=True)


def test_an_error_leaves_no_temporary_folder(own_temporary_folder):
    with pytest.raises(virnucpro.InputError, match=r"^source: record 1 \(a\): 'J'"):
        virnucpro.classify([("a", "ACJ")])
    with pytest.raises(virnucpro.UsageError, match="bundle"):
        virnucpro.classify([("a", "AC")], bundle="no-such")
    with pytest.raises(virnucpro.InputError, match="cannot be opened"):
        virnucpro.classify("ACGT.fa" * 200)
    assert list(own_temporary_folder.iterdir()) == []


def test_warnings_are_issued_at_the_call(tmp_path):
    (tmp_path / "in.fa").write_bytes(b">a\x1bb\n" + b"ACGTTGCA" * 9 + b"\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = virnucpro.classify(tmp_path / "in.fa", threads=1)
    assert "control characters" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert "was scored: 1 too short. Sequences of fewer than 100" in str(caught[1].message)
    assert "--min-length 60 scores" in str(caught[1].message)
    assert result.warnings == tuple(str(one.message) for one in caught)
    result.close()


def test_sequences_are_written_by_call(run, pairs, tmp_path, tables):
    path = run.to_fasta(tmp_path / "none.fa", "not_scored")
    header = ">too_short probability=NA score=NA name=too_short length=8 file=source record=3"
    assert path.read_text() == f"{header}\nACGTACGT\n"
    calls = ("viral", "ambiguous", "non-viral", "not_scored")
    records = read_records(str(run.to_fasta(tmp_path / "all.fa.gz", calls)))
    assert [(one.name, one.sequence.decode()) for one in records] == pairs
    with pytest.raises(virnucpro.UsageError, match="cannot extract 'virus': give viral, ambiguous"):
        run.to_fasta(tmp_path / "x.fa", ("viral", "virus"))


def test_the_report_of_the_run_or_a_copy(run, pairs, tmp_path):
    assert run.report() == run.outdir / "report.html"
    with virnucpro.classify(pairs, threads=1) as result:
        assert not (result.outdir / "report.html").exists()
        path = result.report(tmp_path / "mine.html")
        assert result.report() == result.outdir / "report.html"
    assert path.read_text().startswith("<!")
    (tmp_path / "gut.fa").write_text(f">a\n{pairs[0][1]}\n")
    with virnucpro.classify(tmp_path / "gut.fa", threads=1) as result:
        of_file = result.rescore(preset="sensitive").report(tmp_path / "gut.html")
    for report, sample in ((path, "sequences"), (of_file, "gut.fa")):
        assert {*re.findall(r'"sample":\s*"([^"]*)"', report.read_text())} == {sample}


@pytest.mark.usefixtures("fonts")
def test_plots_of_all_sequences_and_of_one(run, pairs, tmp_path, needs):
    needs("matplotlib")
    for name in (None, pairs[0][0]):
        path = run.plot(tmp_path / f"{name}.svg", name)
        assert b"<svg" in path.read_bytes()
    with pytest.raises(virnucpro.UsageError, match="unknown format"):
        run.plot(tmp_path / "a.txt")


def test_a_plot_of_equal_names_lists_choices(tmp_path, needs):
    needs("matplotlib")
    twice = [("twin", "ACGT" * 100), ("twin", "ACGA" * 100)]
    with pytest.warns(match="twin"):
        result = virnucpro.classify(twice, threads=1)
    with result:
        with pytest.raises(virnucpro.UsageError, match=r"--record 2$"):
            result.plot(tmp_path / "a.svg", "twin")
        assert result.plot(tmp_path / "a.svg", record=2).exists()


def test_trouble_in_a_record_is_its_own_unless_strict(pairs):
    source = [*pairs, ("wrong", "ACGJ" * 200)]
    with pytest.warns(UserWarning, match=r"invalid_letters.*source: record 5 \(wrong\)"):
        result = virnucpro.classify(source, threads=1)
    assert result.predictions["status"][4] == "invalid_letters"
    result.close()
    with pytest.raises(virnucpro.InputError, match=r"^source: record 5 \(wrong\): 'J'"):
        virnucpro.classify(source, strict=True)


def test_text_and_html_for_people(run, tables):
    assert repr(run).startswith("<virnucpro.Result: 4 sequences: ")
    html = run._repr_html_()
    assert "&lt;b&gt;&amp;amp;" in html
    assert "<b>&" not in html.replace("<b>virnucpro</b>", "")
    assert html.count("<tr>") == 1 + 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resume": True, "force": True}, "give one of them"),
        ({"outdir": ""}, "invalid outdir ''"),
        ({"devices": 3, "outdir": None}, "devices must be text such as 'auto', .* not 3"),
        ({"window": "a"}, "invalid window 'a'"),
        ({"threshold": "0.5"}, "invalid threshold '0.5': give a number"),
        ({"fdr": "0.1"}, "invalid FDR '0.1': give a number"),
        ({"min_length": "100"}, "invalid least length '100'"),
        ({"min_length": 1.5}, "invalid least length 1.5"),
        ({"max_record": "1"}, "invalid largest length '1' of a record"),
        ({"bundle": None}, "invalid bundle None"),
    ],
)
def test_options_of_another_type_are_refused(options, message, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(virnucpro.UsageError, match=message):
        virnucpro.classify(pairs, **{"outdir": "run", **options})
    assert not any(tmp_path.iterdir())


def test_a_resume_with_other_pairs_names_no_temporary_file(tmp_path):
    virnucpro.classify({"a": "ACGT" * 50}, outdir=tmp_path / "run", threads=1)
    with pytest.raises(virnucpro.FingerprintError, match="content of source differs") as caught:
        virnucpro.classify({"a": "ACGA" * 50}, outdir=tmp_path / "run", threads=1, resume=True)
    assert "from source." in str(caught.value)
    assert "virnucpro-input-" not in str(caught.value)
