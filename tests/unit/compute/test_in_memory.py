"""A job computed in memory has the results of a run with a folder."""

from dataclasses import replace

import pytest
from record_bundle import save_record_bundle
from samples import random_records

from virnucpro.compute.in_memory import compute_in_memory
from virnucpro.compute.predict import predict
from virnucpro.compute.rank_encoder import Models
from virnucpro.run.embed_job import embed_job
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.run.reporter import Reporter
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory


@pytest.fixture
def jobs(tmp_path):
    path = tmp_path / "in.fa"
    long, short = f">long\n{'ACGTTGCA' * 900}\n", ">x\nA\n"
    path.write_text(random_records(20, seed="memory", most=60) + long + short)
    save_record_bundle(tmp_path / "records")
    return {
        "mini": predict_job(path, precision="fp32"),
        "records": predict_job(path, bundle=tmp_path / "records", precision="fp32"),
        "embed": embed_job(path, encoder="mini/nucleotide", precision="fp32"),
    }


@pytest.mark.parametrize("name", ["mini", "records", "embed"])
def test_a_run_in_memory_has_the_results_of_a_run_with_a_folder(name, jobs, tmp_path):
    job = jobs[name]
    assert bool(job.record) == (name != "embed")
    execution = Execution(tmp_path / "run", devices="cpu", threads=1, in_process=True)
    expected = predict(job, execution)
    models = Models.of(job, "cpu")
    computed = compute_in_memory(job, job.inputs, models, execution, Reporter())
    assert replace(computed.outcome, root=expected.root, files=expected.files) == expected
    written = RunDirectory(tmp_path / "written")
    computed.write(written.root)
    assert verify_run(written).problems == ()
    tables = sorted(path.name for path in (tmp_path / "run").glob("*.tsv"))
    assert tables
    for table in tables:
        assert (written.root / table).read_bytes() == (tmp_path / "run" / table).read_bytes()
