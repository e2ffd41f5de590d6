"""scripts/train_mini.py turns genomes.tsv into the inputs of ``virnucpro train``."""

import csv
from pathlib import Path

import pytest
from programs import load_script

from virnucpro.lab.evaluation.input_table import read_regions
from virnucpro.lab.evaluation.labels import read_labels
from virnucpro.sequences.records import read_records
from virnucpro.sequences.translation import reverse_complement


@pytest.fixture(scope="module")
def script():
    return load_script("train_mini")


@pytest.fixture
def genomes(tmp_path):
    """Two genomes: a phage named after its host, and the host."""
    rows = [
        {"id": "V1", "group": "virus", "realm": "Duplodnaviria", "family": "?"},
        {"id": "B1", "group": "bacteria", "realm": "-", "family": "-"},
    ]
    for row in rows:
        folder = tmp_path / row["group"]
        folder.mkdir()
        (folder / f"{row['id']}.fa.gz").write_text(f">{row['id']}\nACGT\n")
    with (tmp_path / "genomes.tsv").open("w", newline="") as stream:
        columns = [*rows[0], "split_group", "split"]
        table = csv.DictWriter(stream, columns, delimiter="\t")
        table.writeheader()
        table.writerows(row | {"split_group": "Bacillus", "split": "train"} for row in rows)
    (tmp_path / "phage_like_regions.bed").write_text("B1\trecord\t10\t20\tx\n")
    return tmp_path


def test_labels_have_groups_and_classes(script, genomes):
    table = genomes / "labels.tsv"
    script.write_labels(table, [genomes])
    virus, host = read_labels(table, "train")
    assert (virus.viral, virus.group, virus.source_class) == (
        True,
        "virus:Bacillus",
        "tailed_phage",
    )
    assert (host.viral, host.group, host.kingdom) == (False, "Bacillus", "bacteria")
    assert host.path == genomes / "bacteria" / "B1.fa.gz"


def test_genomes_of_all_splits_with_a_label_are_for_training(script, genomes):
    path = genomes / "genomes.tsv"
    header, virus, host = path.read_text().splitlines()
    rows = [virus, host.replace("train", "valid")]
    for number, (group, split) in enumerate(
        (
            ("isolate", "train"),
            ("bacteria", "unlabelled"),
            ("mobile", "doubtful"),
            ("virus", "skip"),
        )
    ):
        name = f"X{number}"
        rows.append(host.replace("B1", name).replace("bacteria", group).replace("train", split))
    path.write_text("\n".join([header, *rows]) + "\n")
    script.write_labels(genomes / "labels.tsv", [genomes])
    sources = read_labels(genomes / "labels.tsv", "train")
    assert [source.path.name for source in sources] == ["V1.fa.gz", "B1.fa.gz"]


def test_long_open_frames_of_hosts_are_records_of_their_genus(script, genomes):
    """Two genes, one of them on the other strand, one in a phage-like region, one too short."""
    gene = b"ATG" + 400 * b"GCA" + b"TAA"
    other = b"ATG" + 500 * b"GTC" + b"TGA"
    spacer = 20 * b"TAACTAGATTAG"
    short = b"ATG" + 200 * b"GCA" + b"TAA"
    start = 3 * len(spacer) + len(gene) + len(other)
    parts = [spacer, gene, spacer, reverse_complement(other), spacer, gene, spacer, short]
    (genomes / "bacteria/B1.fa.gz").write_bytes(b">record\n" + b"".join(parts) + b"\n")
    (genomes / "exclude.bed").write_text(f"record\t{start + 30}\t{start + 90}\n")
    script.write_labels(genomes / "labels.tsv", [genomes], genomes / "exclude.bed")
    *_, coding = read_labels(genomes / "labels.tsv", "train")
    assert (coding.viral, coding.kingdom, coding.group) == (False, "coding", "Bacillus")
    assert coding.source_class == "bacteria"
    found = [record.sequence for record in read_records(str(coding.path))]
    assert sorted(found, key=len) == [gene, other]


def test_random_sequences_have_the_transitions_of_genomes(script, tmp_path):
    rows = []
    for number in range(2 * script.SHUFFLED_SHARE):
        label, bases = (("viral", b"AC"), ("non-viral", b"GT"))[number % 2]
        path = tmp_path / f"{number}.fa"
        path.write_bytes(b">%d\n%b\n" % (number, 5_000 * bases))
        rows.append({"file": str(path), "label": label, "group": str(number), "split": "train"})
    found = script.write_shuffled(rows, tmp_path)
    assert {row["group"] for row in found} == {"shuffled-1", "shuffled-2"}
    for number, row in enumerate(found):
        bases = Path(row["file"]).read_bytes().split(b"\n")[1]
        pair = (b"AC", b"GT")[number % 2]
        assert sum(map(bases.count, (pair[:1], pair[1:]))) > 0.99 * script.SHUFFLED_BASES
        assert (bases.count(pair) > 0.45 * len(bases)) == (number % len(script.CHAINS) > 0)


def test_regions_and_prophages_of_a_first_round_are_left_out(script, genomes, monkeypatch):
    bed, prophages = genomes / "exclude.bed", genomes / "prophages.bed"
    monkeypatch.setattr(script, "PROPHAGES", prophages)
    lines = ["seq_name\tstart\tend\tstate\tstart_edge\tend_edge"]
    lines += [
        "host\t10001\t30000\tviral\tboundary\tboundary",
        "host\t30001\t90000\tnon-viral\tboundary\trecord",
        "short\t1\t9000\tviral\trecord\tboundary",
        "phage\t1\t40000\tviral\trecord\trecord",
    ]
    (genomes / "regions.tsv").write_text("\n".join(lines) + "\n")
    assert script.main(["--mark", str(genomes)]) == 0
    script.write_regions(bed, [genomes])
    assert read_regions(bed) == {"record": [(10, 20)], "host": [(10_000, 30_000)]}


@pytest.mark.slow
def test_all_real_genomes_have_a_class(script, shared, tmp_path):
    table = tmp_path / "labels.tsv"
    script.write_labels(table, [shared / "genomes", shared / "genomes-2"])
    sources = read_labels(table, "all")
    assert len(sources) > 1400
    viral = {source.source_class for source in sources if source.viral}
    assert not viral & {source.source_class for source in sources if not source.viral}
