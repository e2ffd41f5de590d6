import math

import pytest

from virnucpro.errors import InputError
from virnucpro.lab.evaluation.predictions import check_names, read_predictions, read_run


@pytest.fixture
def table(tmp_path):
    def write(text):
        path = tmp_path / "table.tsv"
        path.write_text(text.replace(" ", "\t"))
        return path

    return write


def test_scores_and_labels_are_read_by_name(table):
    rows = read_predictions(
        table("name score label more\na 0.9 viral x\nb 3 non-viral x\nc NA  x\n")
    )
    assert (rows["a"], rows["b"]) == ((0.9, True), (3.0, False))
    assert math.isnan(rows["c"].score)
    assert not rows["c"].called_viral


def test_a_run_is_ranked_by_its_calibrated_probability_if_it_has_one(table):
    head = "seq_name score calibrated_probability call\n"
    calibrated = read_run(table(head + "a 0.2 0.9 viral\nb NA NA not_scored\n"))
    assert calibrated["a"] == (0.9, True)
    assert math.isnan(calibrated["b"].score)
    assert read_run(table(head + "a 0.2 NA ambiguous\n")) == {"a": (0.2, False)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contig score label\nx 1 viral", "the column 'name' is missing. Give a tab-separated"),
        ("name score label\nx high viral", "line 2: 'x' has the score 'high', which is not a num"),
        ("name score label\nx inf viral", "line 2: 'x' has the score 'inf'"),
        ("name score label\nx 1 viral\nx 0.5 viral", "line 3: 'x' has two rows"),
        ("name score label\nx 1 perhaps", "line 2: 'x' has the label 'perhaps'; use viral"),
        ("name score label\n 1 viral", "line 2: '' is empty"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(table, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read_predictions(table(text))
    assert "table.tsv" in str(caught.value)


def test_names_that_are_not_evaluated_are_reported(table, fragments_of):
    members = fragments_of([(True, "viral", "A"), (False, "host", "B")])
    rows = read_predictions(table("name score label\ncut_1 1 viral\ncut_2 0 viral\n"))
    with pytest.raises(InputError, match=r"none of its 2 names is evaluated here \(cut_1, cut_2\)"):
        check_names("--predictions dvf", rows, members)
    assert "1 of 3 names" not in check_names("x", {"s0": rows["cut_1"]}, members)
    text = check_names("--predictions dvf", {**rows, "s0": rows["cut_1"]}, members)
    assert "2 of 3 names are not evaluated here and are ignored: cut_1, cut_2" in text
