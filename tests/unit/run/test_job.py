"""Inputs and options of a job, as callers of the library give them."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from virnucpro.compute.predict import predict
from virnucpro.errors import UsageError
from virnucpro.option import options_of
from virnucpro.run.embed_job import embed_job
from virnucpro.run.execution import Execution
from virnucpro.run.options import EmbedOptions, FramesOptions, PredictOptions
from virnucpro.run.predict_job import predict_job
from virnucpro.run.write_frames import write_frames


@pytest.fixture
def nothing_to_encode(tmp_path):
    path = tmp_path / "short.fa"
    path.write_text(">a\nAC\n")
    return path


def protein_job(inputs, **options):
    return embed_job(inputs, encoder="mini-deep/protein", **options)


def frames_of(inputs, outdir="never"):
    return list(write_frames(inputs, outdir, FramesOptions()))


@pytest.mark.parametrize("job_of", [predict_job, protein_job])
@pytest.mark.parametrize("alone", ["s.fa", Path("s.fa"), "-"])
def test_a_single_path_is_one_input(job_of, alone):
    assert job_of(alone).inputs == (str(alone),) == job_of([alone]).inputs


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, 100),  # the calibration of mini can call no fewer bases
        ({"window": 300}, 100),
        ({"bundle": "mini-deep"}, 167),
        ({"bundle": "mini-deep", "window": 300}, 100),
        ({"min_length": 60}, 60),
    ],
)
def test_the_least_length_is_what_the_bundle_can_call(options, least):
    assert predict_job("s.fa", **options).index.min_length == least


@pytest.mark.parametrize("job_of", [predict_job, protein_job])
def test_an_empty_list_of_inputs_is_refused(job_of, tmp_path):
    with pytest.raises(UsageError, match="no input: give at least one"):
        predict(job_of([]), Execution(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_folder_and_input_may_be_str(nothing_to_encode, tmp_path):
    outcome = predict(predict_job(nothing_to_encode), Execution(str(tmp_path / "run")))
    assert outcome.root == tmp_path / "run"
    assert outcome.records == {"too_short": 1}


def test_frames_accept_the_same_inputs_as_jobs(nothing_to_encode, tmp_path):
    (one, _, _) = frames_of(nothing_to_encode, str(tmp_path / "out"))
    assert one == tmp_path / "out" / "short_chunked500.fa"
    with pytest.raises(UsageError, match="no input: give at least one"):
        frames_of([])


def test_a_bundle_may_be_a_path():
    folder = predict_job("s.fa").encoders[0].folder
    assert predict_job("s.fa", bundle=folder).model == predict_job("s.fa", bundle="mini").model


@pytest.mark.parametrize(
    ("bundle", "genes", "told"),
    [
        ("mini", False, "--genetic-code 4: mini has learnt code 11 and reads no other one"),
        ("mini-deep", True, "--genetic-code 4: --genes finds genes by code 11 only"),
        ("mini-deep", False, None),
    ],
)
def test_a_genetic_code_that_is_not_read_is_refused(bundle, genes, told):
    options = {"bundle": bundle, "genes": genes, "genetic_code": 4}
    with pytest.raises(UsageError, match=told) if told else nullcontext():
        predict_job("a.fa", **options)


def test_published_tables_of_a_bundle_without_frames_are_refused():
    with pytest.raises(UsageError, match=r"mini scores whole windows and has no frames.*leave"):
        predict_job("s.fa", published_files=True)
    assert predict_job("s.fa", published_files=False).outputs["published_files"] is False
    assert predict_job("s.fa", bundle="mini-deep", published_files=True).outputs["published_files"]


@pytest.mark.parametrize("job_of", [predict_job, protein_job])
def test_unknown_precisions_are_refused_with_the_known_ones(job_of):
    with pytest.raises(UsageError, match="unknown precision 'fp8': give auto, fp32, fp16, bf16"):
        job_of("s.fa", precision="fp8")
    known = "give fp16, fp32, none" if job_of is predict_job else ".* give fp16 or fp32$"
    with pytest.raises(UsageError, match=f"unknown precision of embeddings 'float16'.*{known}"):
        job_of("s.fa", embeddings="float16")


@pytest.mark.parametrize("job_of", [predict_job, protein_job, frames_of])
@pytest.mark.parametrize("inputs", [b"s.fa", [b"s.fa"], ["s.fa", 5], 5, None])
def test_inputs_that_are_no_paths_are_refused(job_of, inputs):
    with pytest.raises(UsageError, match=r"invalid input .*: give a path as str or"):
        job_of(inputs)


@pytest.mark.parametrize(
    "wrong",
    [{"devices": ["cpu"]}, {"devices": 0}, *({"threads": n} for n in ("2", 0, -1, 1.0, True))],
)
def test_invalid_devices_and_threads_are_refused(wrong):
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} must be .* not "):
        Execution("run", **wrong)


def test_vectors_without_a_precision_are_refused():
    with pytest.raises(UsageError, match="fp16 or fp32"):
        protein_job("s.fa", embeddings="none")
    with pytest.raises(UsageError, match="settled"):
        predict_job("s.fa").parameters()


def other_value(declared, name):
    """Return a value of an option that is not its default."""
    option, default = options_of(declared)[name], getattr(declared, name)
    given = {"precision": "bf16", "embeddings": "fp32", "layer": [0], "genetic_code": 4}
    if name in given:
        return given[name]
    if option.choices:
        return next(one for one in option.choices if one != default)
    return (not default) if isinstance(default, bool) else 30


@pytest.mark.parametrize(
    ("job_of", "declared", "given"),
    [
        (predict_job, PredictOptions, {"bundle": "mini-deep"}),
        (embed_job, EmbedOptions, {"encoder": "mini-deep/protein", "max_length": 90}),
    ],
)
def test_every_option_that_changes_numbers_is_a_parameter(job_of, declared, given):
    given |= {"precision": "fp32"}
    plain = job_of("s.fa", **given).parameters()
    wanted = {name for name, one in options_of(declared).items() if one.in_numbers}
    for name in wanted - {"outputs"}:  # of language models, which test_language_model.py has
        job = job_of("s.fa", **given | {name: other_value(declared, name)})
        assert job.parameters()[name] != plain[name]
