import json
from dataclasses import replace

import pytest
from samples import empty_run

from virnucpro.errors import FingerprintError, NotARunError
from virnucpro.run.manifest import (
    Launch,
    Manifest,
    read_manifest,
    write_manifest,
)
from virnucpro.run_dir import is_run
from virnucpro.sequences.spec import InputFile, json_digest


@pytest.fixture
def run(tmp_path):
    return empty_run(tmp_path)


@pytest.fixture
def manifest():
    return Manifest(
        command="predict",
        parameters={"bundle": "mini", "bundle_fingerprint": "ff", "window": 500},
        inputs=(InputFile("a.fa", "11", 2, 900), InputFile("b.fa", "22", 1, 100)),
        index_fingerprint="aa",
        counts={"records": 3},
        units={"rows": 32, "positions": 1000},
        labels=["others", "virus"],
        thresholds={"viral": 0.6, "non_viral": 0.4},
        encoders=[{"name": "n", "view": "nucleotide", "dim": 8}],
        created="2026-01-01T00:00:00+00:00",
        calibration={"lines": [], "prevalence": 0.5},
        calls={"preset": "sensitive", "threshold": None, "fdr": None, "prevalence": "auto"},
        classes=["host", "virus"],
        viral_classes=["virus"],
    )


def test_a_written_manifest_is_read_back(run, manifest):
    launched = manifest.with_launch(Launch(1, "2026-01-01T00:00:00+00:00", ["cpu"], 4))
    written = write_manifest(run, launched)
    assert read_manifest(run) == written == replace(launched, versions=written.versions)


def test_a_launch_is_replaced_by_its_number(manifest):
    first = Launch(1, "then", ["cpu"], 4)
    after = replace(first, seconds={"ranks": 2.0})
    launches = manifest.with_launch(first).with_launch(after).launches
    assert launches == (after,)


@pytest.mark.parametrize(
    "change",
    [
        {"command": "embed"},
        {"parameters": {"bundle": "mini", "bundle_fingerprint": "ff", "window": 300}},
        {"index_fingerprint": "bb"},
        {"units": {"rows": 64, "positions": 1000}},
    ],
)
def test_each_numeric_parameter_changes_the_fingerprint(manifest, change):
    assert replace(manifest, **change).fingerprint != manifest.fingerprint


def test_times_launches_and_paths_do_not_change_the_fingerprint(manifest):
    elsewhere = replace(
        manifest,
        created="later",
        seconds={"index": 3.0},
        inputs=[replace(one, path="moved/" + one.path) for one in manifest.inputs],
        launches=[Launch(1, "then", ["cpu"], 4)],
        calls={"preset": "default"},
    )
    assert elsewhere.fingerprint == manifest.fingerprint


def test_every_changed_parameter_is_named(run, manifest):
    own = {"command": "predict", **manifest.parameters}
    with pytest.raises(FingerprintError) as refused:
        manifest.refuse_other_parameters(
            run, own | {"bundle": "own", "bundle_fingerprint": "ee", "window": 300}
        )
    assert "bundle was mini and is now own" in str(refused.value)
    assert "window was 500 and is now 300" in str(refused.value)
    manifest.refuse_other_parameters(run, own)
    manifest.refuse_other_parameters(run, own | {"bundle": "the same under another name"})


def test_a_changed_input_is_named(run, manifest):
    first, second = manifest.inputs
    manifest.refuse_other_inputs(run, (replace(first, path="moved/a.fa"), second))
    with pytest.raises(FingerprintError, match=r"b\.fa"):
        manifest.refuse_other_inputs(run, (first, replace(second, sha256="33")))
    with pytest.raises(FingerprintError, match="2 input files"):
        manifest.refuse_other_inputs(run, (first,))


def test_a_folder_without_a_manifest_is_refused(run):
    with pytest.raises(NotARunError, match=r"no run/run\.json"):
        read_manifest(run)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"schema_version": 1}', b"\xff\xfe", b"9" * 5000, b"[" * 100_000],
)
def test_a_damaged_manifest_is_refused(run, content):
    run.run_json.write_bytes(content)
    with pytest.raises(NotARunError, match=r"run\.json"):
        read_manifest(run)
    assert not is_run(run.root)


def of_another_version(text):
    return json.dumps(json.loads(text) | {"schema_version": 1}).encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(b"sensitive", b"sens\xeftive"), "in position"),
        (of_another_version, r"made by virnucpro .* rerun the command of the run"),
        (lambda text: text.replace(b'"window": 500', b'"window": 300'), "has been changed"),
    ],
    ids=["damaged", "another version", "edited"],
)
def test_a_changed_manifest_is_refused_and_not_quoted(run, manifest, change, message):
    write_manifest(run, manifest)
    run.run_json.write_bytes(change(run.run_json.read_bytes()))
    with pytest.raises(NotARunError, match=message) as refused:
        read_manifest(run)
    assert "parameters" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("extracts", value) for value in ([], "viral", 5, {"calls": 5}, {"other": True})),
        *((name, []) for name in ("parameters", "calls", "outputs", "thresholds", "units")),
    ],
)
def test_a_valid_checksum_of_values_of_other_types_is_refused(run, manifest, name, value):
    write_manifest(run, manifest)
    content = json.loads(run.run_json.read_bytes()) | {name: value}
    del content["sha256"]
    run.run_json.write_text(json.dumps({**content, "sha256": json_digest(content)}))
    with pytest.raises(NotARunError, match=r"run\.json cannot be read .* Restore the file"):
        read_manifest(run)
