"""Regions of a real chimera: a phage inside a bacterium, through predict, verify and rescore."""

import gzip
import json

import pytest
from cases import mostly_slow
from samples import copy_of, read_table

from virnucpro.cli.main import main

pytestmark = [pytest.mark.shared, pytest.mark.usefixtures("one_process")]
HOST, PHAGE = "bacteria/BAC0011_NC_002696.2.fa.gz", "virus/VIR0321_HQ268735.1.fa.gz"
START, LENGTH = 40_250, 30_000
FILES = (
    *("regions.tsv", "tracks/regions.bed", "tracks/regions.gff3", "tracks/scores.bedgraph"),
    *("viruses.fasta", "tracks/genes.gff3"),
)


def sequence(path):
    return b"".join(gzip.decompress(path.read_bytes()).split(b"\n")[1:]).decode().upper()


@pytest.fixture(scope="module")
def chimera(shared, tmp_path_factory):
    """A provirus, the whole phage, the host alone, and a record of nine windows."""
    host, phage = (sequence(shared / "genomes" / path) for path in (HOST, PHAGE))
    insert = phage[10_000 : 10_000 + LENGTH]
    records = {
        "chimera": host[:START] + insert + host[START : 2 * START],
        "phage": phage,
        "host": host[200_000:260_000],
        "short": phage[:4400],
    }
    path = tmp_path_factory.mktemp("input") / "in.fa"
    path.write_text("".join(f">{name} of a test\n{bases}\n" for name, bases in records.items()))
    return path


def begin(chimera, folder, *options):
    words = ["--devices", "cpu:1", "-q", "--genes", *options]
    return main(["predict", str(chimera), "-o", str(folder), *words])


@pytest.fixture(scope="module")
def finished(chimera, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert begin(chimera, folder) == 0
    return folder


run = copy_of("finished")


def contents(folder, names=(*FILES, "predictions.tsv")):
    return {name: (folder / name).read_bytes() for name in names}


def test_the_insert_is_found_to_two_windows(finished, chimera):
    predictions = {row["seq_name"]: row for row in read_table(finished / "predictions.tsv")}
    assert predictions["chimera"]["topology"] == "provirus_candidate"
    assert {predictions[name]["topology"] for name in ("phage", "host", "short")} == {"NA"}
    found = read_table(finished / "regions.tsv")
    assert [(row["seq_name"], row["state"]) for row in found] == [
        ("chimera", "non-viral"),
        ("chimera", "viral"),
        ("chimera", "non-viral"),
        ("phage", "viral"),
        ("host", "non-viral"),
    ]
    insert = found[1]
    assert abs(int(insert["start"]) - 1 - START) <= 1_000
    assert abs(int(insert["end"]) - START - LENGTH) <= 1_000
    assert float(insert["probability"]) > 0.8
    head, *body = (finished / "viruses.fasta").read_text().partition("\n>")[0].splitlines()
    stretch = f">chimera|provirus_{insert['start']}_{insert['end']}"
    assert head.split() == [
        *(stretch, "kind=provirus"),
        f"probability={insert['probability']}",
        f"score={insert['score']}",
        *(
            f"start={insert['start']}",
            f"end={insert['end']}",
            "topology=provirus_candidate",
            "name=chimera",
        ),
        f"length={insert['length']}",
        f"file={insert['file']}",
        f"record={insert['record']}",
    ]
    bases = "".join(chimera.read_text().splitlines()[1])
    assert "".join(body) == bases[int(insert["start"]) - 1 : int(insert["end"])]
    headers = [
        line.split(" name=")[0]
        for line in (finished / "viruses.fasta").read_text().splitlines()
        if line.startswith(">")
    ]
    called = [name for name, row in predictions.items() if row["call"] == "viral"]
    assert headers == [
        head.split(" name=")[0],
        *(
            f">{name} kind=virus probability={predictions[name]['probability']} "
            f"score={predictions[name]['score']} start=1 end={predictions[name]['length']} "
            "topology=NA"
            for name in called
            if name != "chimera"
        ),
    ]
    statistics = json.loads((finished / "run" / "virnucpro_mqc.json").read_text())
    [sample] = statistics["data"].values()
    assert sample["provirus"] == 1
    assumed = json.loads((finished / "run" / "run.json").read_text())["prevalence"]
    columns = {"prevalence": "value", "prevalence_low": "low", "prevalence_high": "high"}
    for column, name in columns.items():
        assert sample[column] == pytest.approx(100 * assumed[name], abs=1e-3)
    assert statistics["headers"].keys() == sample.keys()
    assert "1 sequence with a provirus candidate." in (finished / "report.html").read_text()
    bed = [
        line.split("\t") for line in (finished / "tracks" / "regions.bed").read_text().splitlines()
    ]
    assert [row[0] for row in bed] == ["chimera", "phage"]
    assert bed[0][1:3] == [str(int(insert["start"]) - 1), insert["end"]]
    track = (finished / "tracks" / "scores.bedgraph").read_text().splitlines()
    named = {line.split("\t")[0] for line in track}
    assert {"chimera", "phage", "host"} < named
    assert "short" not in named


@pytest.mark.parametrize("name", mostly_slow(FILES, "regions.tsv", "viruses.fasta"))
def test_verify_finds_a_changed_file_and_aggregate_restores_it(run, finished, name, called):
    with (run / name).open("a") as stream:
        stream.write("chimera\t1\t2\n")
    assert name in called("verify", run, code=1).stdout
    main(["verify", str(run), "--repair"])
    assert main(["aggregate", str(run), "-q"]) == 0
    assert contents(run) == contents(finished)
    assert main(["verify", str(run)]) == 0


def test_rescore_keeps_the_stretches_and_changes_their_probability(run, finished):
    assert main(["rescore", str(run), "--prevalence", "0.05", "-q"]) == 0
    before, now = read_table(finished / "regions.tsv"), read_table(run / "regions.tsv")
    places = ("seq_name", "start", "end", "state", "log_odds")
    assert [[row[name] for name in places] for row in now] == [
        [row[name] for name in places] for row in before
    ]
    assert all(
        float(b["probability"]) <= float(a["probability"]) for a, b in zip(before, now, strict=True)
    )
    assert contents(run) != contents(finished)
    assert main(["verify", str(run)]) == 0
    assert main(["rescore", str(run), "--preset", "default", "-q"]) == 0
    assert contents(run) == contents(finished)


def test_compressed_or_no_extracts(run, chimera, finished):
    assert begin(chimera, run, "--resume", "--compress") == 0
    assert not (run / "viruses.fasta").exists()
    packed = gzip.decompress((run / "viruses.fasta.gz").read_bytes())
    assert packed == (finished / "viruses.fasta").read_bytes()
    assert main(["verify", str(run)]) == 0
    assert begin(chimera, run, "--resume", "--extract", "none") == 0
    assert not [*run.glob("viruses*")]
    assert main(["verify", str(run)]) == 0


def test_without_a_calibration_there_is_a_track_and_no_region(chimera, tmp_path):
    from dataclasses import replace

    from virnucpro.compute.predict import predict
    from virnucpro.run.execution import Execution
    from virnucpro.run.predict_job import predict_job

    job = predict_job(str(chimera))
    job = replace(job, classifier={**job.classifier, "calibration": None})
    predict(job, Execution(tmp_path / "run", devices="cpu:1", in_process=True))
    assert {path.name for path in (tmp_path / "run").glob("*regions*")} == set()
    assert (tmp_path / "run" / "tracks" / "scores.bedgraph").stat().st_size > 1000
    assert {row["topology"] for row in read_table(tmp_path / "run" / "predictions.tsv")} == {"NA"}
    assert main(["verify", str(tmp_path / "run")]) == 0
