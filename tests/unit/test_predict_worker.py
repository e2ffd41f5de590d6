"""The worker behind ``virnucpro launch``, in this process."""

import pytest
import torch

from virnucpro import predict
from virnucpro.dispatch import WorkerUnusable
from virnucpro.errors import InputError, UsageError


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "a.fa").write_text(f">a\n{'ATGGCC' * 60}\n>b\nA\n")
    (tmp_path / "in" / "b.fa").write_text("no sequences\n")
    return {"input_dir": tmp_path / "in", "output_dir": tmp_path / "out"}


@pytest.fixture
def worker(folders):
    one = predict.Worker()
    one.setup(0, 42, **folders, threads=1, embeddings="none")
    return one


def test_a_file_has_its_run_where_it_lies(worker, folders):
    file = str(folders["input_dir"] / "sub" / "a.fa")
    first, again = worker.process(file), worker.process(file)
    assert (first["sequences"], first["complete"], first["skipped"]) == (2, True, False)
    assert (again["sequences"], again["complete"], again["skipped"]) == (2, True, True)
    folder = folders["output_dir"] / "sub" / "a.fa"
    assert first["details"]["folder"] == str(folder)
    assert first["details"]["records"] == {"scored": 1, "too_short": 1}
    assert (folder / "predictions.tsv").exists()
    assert not (folder / "embeddings.h5").exists()
    with pytest.raises(InputError):
        worker.process(str(folders["input_dir"] / "b.fa"))


def test_a_device_that_fails_makes_the_worker_unusable(worker, folders, monkeypatch):
    def fail(*_):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(predict, "predict_here", fail)
    with pytest.raises(WorkerUnusable, match="cpu: CUDA error"):
        worker.process(str(folders["input_dir"] / "sub" / "a.fa"))


@pytest.mark.parametrize(
    ("options", "error"),
    [({"bundle": "no-such"}, UsageError), ({"precision": "int3"}, UsageError)],
)
def test_what_cannot_be_set_up_is_told(folders, options, error):
    with pytest.raises(error):
        predict.Worker().setup(0, 42, **folders, **options)
