"""All genomes of the validation families in one run."""

import csv

import pytest

pytestmark = [pytest.mark.shared, pytest.mark.timeout(1500)]


def valid_genomes(shared):
    with (shared / "genomes" / "genomes.tsv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream, delimiter="\t") if row["split"] == "valid"]
    return [
        (row["group"], shared / "genomes" / row["group"] / f"{row['id']}.fa.gz") for row in rows
    ]


@pytest.mark.slow
def test_tables_of_all_validation_genomes_are_equal_with_one_two_and_three_ranks(
    shared, tmp_path, tables, difference_of
):
    from virnucpro.cli.main import main

    genomes = valid_genomes(shared)
    assert len([group for group, _ in genomes if group == "virus"]) == 152
    inputs = [str(path) for _, path in genomes]
    for ranks in (2, 1, 3):
        folder = str(tmp_path / f"ranks-{ranks}")
        code = main(["predict", *inputs, "-o", folder, "--devices", f"cpu:{ranks}", "-q"])
        assert code == 0
    rows = tables(tmp_path / "ranks-2" / "predictions.tsv")
    assert "missing" not in {row["status"] for row in rows}
    assert difference_of(tmp_path / "ranks-2", tmp_path / "ranks-1") == []
    assert difference_of(tmp_path / "ranks-2", tmp_path / "ranks-3") == []
