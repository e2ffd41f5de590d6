"""A model that is loaded once."""

import itertools
import re
import threading
import warnings

import numpy as np
import pytest
from cases import slow
from programs import in_a_fork
from record_bundle import save_record_bundle

import virnucpro
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory

TABLES = ("predictions", "windows", "regions")


@pytest.fixture(scope="module")
def model():
    with virnucpro.load("mini") as opened:
        yield opened


def columns(table):
    names = table.columns if hasattr(table, "columns") else table.dtype.names
    return {name: (table[name].dtype, list(map(str, table[name]))) for name in names}


@pytest.mark.parametrize(
    ("tables", "bundle"),
    [
        ("pandas", "mini"),
        ("numpy", "records"),
        slow("pandas", "records"),
        slow("numpy", "mini"),
    ],
    indirect=["tables"],
)
def test_a_model_predicts_as_a_run_with_a_folder(bundle, pairs, tables, tmp_path):
    if bundle == "records":
        bundle = save_record_bundle(tmp_path / "records").path
    expected = virnucpro.classify(pairs, bundle=bundle, outdir=tmp_path / "run", threads=1)
    with virnucpro.load(bundle) as model, model.classify(pairs, threads=1) as result:
        for name in TABLES:
            found, wanted = (columns(getattr(one, name)) for one in (result, expected))
            for one in (found, wanted):
                one.pop("n_genes", None)  # the facts of the bundle of the test are no whole numbers
            assert found == wanted
        assert (result.calls, result.warnings) == (expected.calls, expected.warnings)
        assert verify_run(RunDirectory(result.outdir)).problems == ()
        written = result.outdir
    assert not written.exists()
    with pytest.raises(virnucpro.RunError, match="removed"):
        result.outdir  # noqa: B018


def test_a_model_writes_a_run_folder_if_there_is_an_outdir(model, pairs, tmp_path, run):
    with model.classify(pairs, outdir=tmp_path / "run", threads=1) as result:
        assert columns(result.predictions) == columns(run.predictions)
    assert verify_run(RunDirectory(tmp_path / "run")).problems == ()


def test_a_model_embeds_as_the_function(model, pairs, tmp_path):
    deep = virnucpro.load("mini-deep")
    for one, options in ((model, {}), (deep, {"pooling": "none"})):
        found = one.embed(pairs, "nucleotide", threads=1, **options)
        name = f"{one.name}/nucleotide"
        expected = virnucpro.embed(pairs, name, outdir=tmp_path / name, threads=1, **options)
        assert (found.ids, found.views) == (expected.ids, expected.views)
        np.testing.assert_array_equal(found.matrix, expected.matrix)
        np.testing.assert_array_equal(found.offsets, expected.offsets)
    with pytest.raises(virnucpro.UsageError, match="mini-deep has no encoder ''"):
        deep.embed(pairs)


def test_vectors_come_one_after_another(model, monkeypatch):
    monkeypatch.setattr("virnucpro.api.embed._BLOCK_BYTES", 4_000)
    taken = []

    def endless():
        for number in itertools.count():
            taken.append((f"s{number}", "ACGTA" * (1000 + number % 7) if number % 5 else ""))
            yield taken[-1]

    stream = model.embed_iter(endless(), threads=1)
    found = list(itertools.islice(stream, 40))
    assert len(taken) < 80
    model.score({"a": "ACGT" * 200}, threads=1)  # another call may use the model meanwhile
    expected = model.embed(taken[:40], threads=1)
    assert [name for name, _ in found] == expected.ids
    np.testing.assert_allclose([vector for _, vector in found], expected.matrix, atol=1e-6)


def test_vectors_per_residue_and_warnings_of_a_stream():
    source = {"gap": "MK-VLA", "empty": "", "bad": "M1K", "a": "MKV"}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = dict(virnucpro.embed_iter(source, "mini-deep/protein", pooling="none", threads=1))
    lengths = {name: len(vectors) for name, vectors in found.items()}
    assert lengths == {"gap": 5, "empty": 0, "bad": 0, "a": 3}
    texts = [str(one.message) for one in warned]
    for text in ("--strict refuses them", "gaps .* removed: 1", "without a vector: 2"):
        assert any(re.search(text, one) for one in texts), texts


@pytest.mark.parametrize("of_model", [True, False])
def test_a_fork_does_not_go_on_with_a_stream(of_model, model, monkeypatch):
    monkeypatch.setattr("virnucpro.api.embed._BLOCK_BYTES", 4_000)
    pairs = [(f"s{number}", "ACGTA" * 200) for number in range(20)]
    if of_model:
        stream = model.embed_iter(pairs, threads=1)
    else:
        stream = virnucpro.embed_iter(pairs, "mini/nucleotide", threads=1)
    next(stream)

    def read_on():
        with pytest.raises(virnucpro.RunError, match="begun before the fork: call embed_iter anew"):
            list(stream)

    assert in_a_fork(read_on) == 0
    assert len(list(stream)) == 19


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strict": True}, r"^source: record 21 \(broken\): '1' .*letter 3"),
        ({"format": ["npy"]}, "^format is for files"),
    ],
)
def test_errors_of_a_stream(model, options, message, monkeypatch):
    monkeypatch.setattr("virnucpro.api.embed._BLOCK_BYTES", 4_000)
    pairs = [(f"s{number}", "ACGTA" * 200) for number in range(20)]
    found = []
    with pytest.raises(virnucpro.VirnucproError, match=message):
        found.extend(
            name for name, _ in model.embed_iter([*pairs, ("broken", "AC1")], threads=1, **options)
        )
    assert found == [name for name, _ in pairs][: len(found)]
    assert (len(found) >= 16) == ("strict" in options)


def test_another_rule_and_a_copy(model, pairs, tmp_path, run):
    stored = virnucpro.classify(pairs, outdir=tmp_path / "run", threads=1)
    memory = model.classify(pairs, threads=1)
    for result, name in ((stored, "a"), (memory, "b")):
        assert result.calls == run.calls == {"non-viral": 3, "not_scored": 1}
        again = result.rescore(threshold=0.0)
        assert again.calls == {"viral": 3, "not_scored": 1}
        assert len(again.viral()) == 3
        assert again.rescore().calls == again.rescore(prevalence=0.2).calls == again.calls
        assert again.rescore(preset="default").calls == result.calls
        again = result.rescore(threshold=0.0)
        saved = again.save(tmp_path / name)
        assert columns(virnucpro.read_predictions(saved)) == columns(again.predictions)
        with pytest.raises(virnucpro.RunExistsError):
            again.save(saved)
    assert verify_run(RunDirectory(tmp_path / "b")).problems == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 99}, "^--layer 99: .* has 1 layers"),
        ({"max_length": 0}, "^invalid --max-length 0: "),
        ({"resume": True, "force": True}, "^--resume keeps the run and --force re"),
    ],
)
def test_wrong_options_are_refused(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(virnucpro.UsageError, match=message):
        virnucpro.embed([("a", "ACGT")], "mini-deep/nucleotide", **options)


def test_bundles_are_listed():
    assert virnucpro.list_bundles()["mini"].window == 500


def test_many_calls_leave_nothing_behind(model, pairs, run, own_temporary_folder):
    expected = np.asarray(run.predictions["score"])
    for _ in range(20):
        np.testing.assert_array_equal(model.score(pairs, threads=1), expected)
    assert list(own_temporary_folder.iterdir()) == []


def test_threads_share_a_model(model, pairs, run):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(model.score(pairs, threads=1)))
        for _ in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    np.testing.assert_array_equal(found, [np.asarray(run.predictions["score"])] * 4)


def test_a_closed_model_and_wrong_options_are_refused(model, pairs):
    with pytest.raises(virnucpro.UsageError, match=r"^device='cuda:1': .* devices=\"0\"$"):
        virnucpro.load(device="cuda:1")
    with pytest.raises(TypeError, match="wndow"):
        model.classify(pairs, wndow=3)
    with pytest.raises(TypeError, match="devices"):
        model.embed(pairs, devices="0")
    closed = virnucpro.load()
    closed.close()
    with pytest.raises(virnucpro.RunError, match="this model is closed"):
        closed.classify(pairs)
