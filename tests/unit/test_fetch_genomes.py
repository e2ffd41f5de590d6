"""scripts/fetch_genomes.py gets genomes from a stand-in of NCBI's server."""

import csv
import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from programs import load_script

SCRIPTS = Path(__file__).parents[2] / "scripts"
RECORDS = {"AB000001.1": "acgtacgtaa" * 7, "AB000002.1": "TTTTGGGGCC" * 5}
COLUMNS = (
    *("id", "accession", "group", "realm", "family", "split_group", "split"),
    *("kept", "sha256", "excluded", "source"),
)


@pytest.fixture(scope="module")
def script():
    return load_script("fetch_genomes")


@pytest.fixture
def server():
    """A server that fails once for each record; `requests` lists all requested accessions."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            (accession,) = parse_qs(urlparse(self.path).query)["id"]
            self.server.requests.append(accession)
            first = self.server.requests.count(accession) == 1
            self.send_response(503 if first else 200 if accession in RECORDS else 400)
            self.end_headers()
            if not first:
                bases = RECORDS.get(accession, "")
                self.wfile.write(f">{accession} x\n{bases[:40]}\n{bases[40:]}\n".encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def row(**changes):
    kept = RECORDS["AB000001.1"].upper()[:60] + RECORDS["AB000002.1"][:20]
    values = {
        "id": "G1",
        "accession": "AB000001.1,AB000002.1",
        "group": "virus",
        "split_group": "F",
        "split": "train",
        "kept": "60,20",
        "sha256": hashlib.sha256(kept.encode()).hexdigest(),
        "excluded": "AB000001.1:5-9",
    }
    return dict.fromkeys(COLUMNS, "") | values | changes


def run(script, server, folder, *rows):
    table = folder / "table.tsv"
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    address = f"http://127.0.0.1:{server.server_port}/efetch"
    words = [table, "--out", folder / "out", "--server", address, "--pause", "0"]
    return script.main([str(word) for word in words])


def test_records_are_cut_verified_and_fetched_once(script, server, tmp_path):
    assert run(script, server, tmp_path, row()) == 0
    with gzip.open(tmp_path / "out" / "virus" / "G1.fa.gz", "rt") as stream:
        lines = stream.read().splitlines()
    assert lines[0] == ">AB000001.1"
    assert (len(lines[1]), len(lines[3])) == (60, 20)
    assert lines[1] == RECORDS["AB000001.1"].upper()[:60]
    regions = (tmp_path / "out" / "phage_like_regions.bed").read_text()
    assert regions == "G1\tAB000001.1\t5\t9\n"
    n_requests = len(server.requests)
    assert run(script, server, tmp_path, row()) == 0
    assert len(server.requests) == n_requests


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sha256": "0" * 64}, "differ from those of the table"),
        ({"accession": "XX000009.1", "kept": "9"}, "the server answered 400"),
        ({"accession": "", "source": "lab/files: x.fa"}, "get it from lab/files: x.fa"),
    ],
)
def test_a_genome_that_is_missing_is_named(script, server, tmp_path, capsys, changes, reason):
    good = row(id="G2")
    assert run(script, server, tmp_path, row(**changes), good) == 2
    printed = capsys.readouterr().err
    assert "G1: " in printed
    assert reason in printed
    assert not (tmp_path / "out" / "virus" / "G1.fa.gz").exists()
    assert (tmp_path / "out" / "virus" / "G2.fa.gz").exists()
    with (tmp_path / "out" / "genomes.tsv").open() as stream:
        assert [one["id"] for one in csv.DictReader(stream, delimiter="\t")] == ["G2"]


def test_the_table_of_mini_is_complete():
    with (SCRIPTS / "mini_genomes.tsv").open() as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert len(rows) > 1400
    assert len({one["id"] for one in rows}) == len(rows)
    assert all(bool(one["accession"]) != bool(one["source"]) for one in rows)
