"""All genomes of the validation families in one run."""

import pytest

from virnucpro.cli.main import main

pytestmark = [pytest.mark.shared, pytest.mark.timeout(1500)]


@pytest.mark.slow
def test_tables_of_all_validation_genomes_are_equal_with_one_two_and_three_ranks(
    shared, tmp_path, tables, difference_of
):
    table = tables(shared / "genomes" / "genomes.tsv")
    rows = [row for row in table if row["split"] == "valid"]
    assert [row["group"] for row in rows].count("virus") == 152
    inputs = [f"{shared}/genomes/{row['group']}/{row['id']}.fa.gz" for row in rows]
    for ranks in (2, 1, 3):
        folder = str(tmp_path / f"ranks-{ranks}")
        code = main(["predict", *inputs, "-o", folder, "--devices", f"cpu:{ranks}", "-q"])
        assert code == 0
    rows = tables(tmp_path / "ranks-2" / "predictions.tsv")
    assert "missing" not in {row["status"] for row in rows}
    assert difference_of(tmp_path / "ranks-2", tmp_path / "ranks-1") == []
    assert difference_of(tmp_path / "ranks-2", tmp_path / "ranks-3") == []
