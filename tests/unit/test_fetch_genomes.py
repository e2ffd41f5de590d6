"""scripts/fetch_genomes.py and a stand-in of NCBI's server; the table of mini's genomes."""

import csv
import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from programs import load_script
from samples import read_table

SCRIPTS = Path(__file__).parents[2] / "scripts"
RECORDS = {"AB000001.1": "acgtacgtaa" * 7, "AB000002.1": "TTTTGGGGCC" * 5}
COLUMNS = (
    *("id", "accession", "group", "kingdom", "realm", "family", "split_group", "split"),
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
            query = parse_qs(urlparse(self.path).query)
            (accession,) = query["id"]
            self.server.requests.append(accession)
            first = self.server.requests.count(accession) == 1
            self.send_response(503 if first else 200 if accession in RECORDS else 400)
            self.end_headers()
            if not first:
                start, end = (int(*query.get(name, ["0"])) for name in ("seq_start", "seq_stop"))
                bases = RECORDS.get(accession, "")[max(start - 1, 0) : end or None]
                self.wfile.write(f">{accession} x\n{bases[:40]}\n{bases[40:]}\n".encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
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


def test_a_piece_is_requested_by_its_positions(script, server, tmp_path):
    name, bases = "AB000002.1:5-14", "GGGGCCTTTT"
    digest = hashlib.sha256(bases.encode()).hexdigest()
    changes = {"accession": name, "kept": "10", "sha256": digest, "excluded": f"{name}:2-4"}
    assert run(script, server, tmp_path, row(**changes)) == 0
    with gzip.open(tmp_path / "out" / "virus" / "G1.fa.gz", "rt") as stream:
        assert stream.read() == f">{name}\n{bases}\n"
    regions = (tmp_path / "out" / "phage_like_regions.bed").read_text()
    assert regions == f"G1\t{name}\t2\t4\n"


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
    assert [one["id"] for one in read_table(tmp_path / "out" / "genomes.tsv")] == ["G2"]


@pytest.fixture(scope="module")
def table():
    return read_table(SCRIPTS / "mini_genomes.tsv")


@pytest.fixture(scope="module")
def mini():
    return load_script("train_mini")


@pytest.fixture(scope="module")
def known(shared, mini):
    """All genomes for training and validation of mini: folder, row of its genomes.tsv."""
    folders = [shared / f"genomes{end}" for end in ("", "-2", "-3", "-4", "-5")]
    rows = [(folder, one) for folder in folders for one in mini._rows(folder)]
    return [(folder, one) for folder, one in rows if one["split"] in ("train", "valid")]


def test_rows_of_the_table_of_mini_are_well_formed(table):
    assert len({one["id"] for one in table}) == len(table)
    assert all(bool(one["accession"]) != bool(one["source"]) for one in table)
    fetched = [one for one in table if one["accession"]]
    text = (SCRIPTS.parent / "docs" / "train.md").read_text()
    assert f"{len(fetched):,} of the {len(table):,} genomes" in text
    for one in fetched:
        names = one["accession"].split(",")
        kept = [int(word) for word in one["kept"].split(",")]
        assert len(names) == len(set(names)) == len(kept), one["id"]
        for name, length in zip(names, kept, strict=True):
            start, _, end = name.partition(":")[2].partition("-")
            assert not end or int(end) - int(start) + 1 == length, name
    # The regions of a training have the name of a record alone.
    excluded = {
        word.rpartition(":")[0] for one in fetched for word in one["excluded"].split(";") if word
    }
    named = [name for one in fetched for name in one["accession"].split(",") if name in excluded]
    assert sorted(named) == sorted(excluded)


@pytest.mark.shared
def test_labels_of_fetched_genomes_are_those_of_the_folders(script, mini, table, known, tmp_path):
    for one in table:
        path = tmp_path / one["group"] / f"{one['id']}.fa.gz"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    script._write_table(tmp_path, table)
    fetched = mini._rows(tmp_path)
    assert [one["id"] for one in fetched] == [one["id"] for _, one in known]
    for one, (folder, original) in zip(fetched, known, strict=True):
        labels = mini._labelled(tmp_path, one, tmp_path)
        assert Path(labels["file"]).exists()
        assert labels == mini._labelled(folder, original, tmp_path) | {"file": labels["file"]}


@pytest.mark.shared
@pytest.mark.slow
def test_digests_lengths_and_regions_of_the_table_are_those_of_the_folders(table, known):
    files = sorted({folder / one["file"] for folder, one in known if "file" in one})
    of_genome = {}
    for path in files:
        for name, bases in records_of(path):
            of_genome.setdefault(name.partition(".")[0], []).append((name, bases))
    regions = {}
    for folder in {folder for folder, _ in known}:
        bed = folder / "phage_like_regions.bed"
        for line in bed.read_text().splitlines() if bed.exists() else ():
            identity, *region = line.split("\t")[:4]
            regions.setdefault(identity, []).append(region)
    for one, (folder, original) in zip(table, known, strict=True):
        if not one["accession"]:
            continue
        file = folder / original["group"] / f"{original['id']}.fa.gz"
        records = of_genome[one["id"]] if "file" in original else list(records_of(file))
        names, sequences = zip(*records, strict=True)
        assert [str(len(bases)) for bases in sequences] == one["kept"].split(","), one["id"]
        digest = hashlib.sha256(b"".join(sequences).upper()).hexdigest()
        assert (digest, original.get("sha256", digest)) == (one["sha256"], one["sha256"])
        renamed = dict(zip(names, one["accession"].split(","), strict=True))
        expected = [
            f"{renamed[name]}:{start}-{end}"
            for name, start, end in regions.get(one["id"], ())
            if name in renamed
        ]
        assert one["excluded"] == ";".join(expected), one["id"]


def records_of(path):
    """Yield the name and bases of each record of a compressed FASTA file."""
    for entry in gzip.decompress(path.read_bytes()).split(b">")[1:]:
        header, _, bases = entry.partition(b"\n")
        yield header.split()[0].decode(), bases.replace(b"\n", b"")
