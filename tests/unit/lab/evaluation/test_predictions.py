import math

import pytest

from virnucpro.errors import InputError, UsageError
from virnucpro.lab.evaluation.answers import check_names
from virnucpro.lab.evaluation.predictions import CALLS, merged, read_table

GENOMAD_SUMMARY = """\
seq_name length topology coordinates n_genes genetic_code virus_score fdr n_hallmarks
cut_1 5000 DTR NA 7 11 0.9776 NA 2
cut_2|provirus_10_900 891 Provirus 10-900 3 11 0.80 NA 1
cut_2|provirus_1000_2900 1901 Provirus 1000-2900 3 11 0.91 NA 1
"""
GENOMAD_CLASSES = """\
seq_name chromosome_score plasmid_score virus_score
cut_1 0.1000 0.1000 0.8000
cut_2 0.2000 0.1500 0.6500
"""
DVF = """\
name len score pvalue
cut_1 500 0.93 0.001
cut_2 500 0.12 0.7
"""
JAEGER = """\
contig_id length prediction reliability_score #_phage_windows bacteria_score bacteria_var \
phage_score phage_var eukarya_score eukarya_var
cut_1 5000 phage 0.9 2 -1.0 0.1 3.0 0.2 -1.0 0.1
cut_2 5000 non-phage 0.9 0 2.0 0.1 1.0 0.2 0.0 0.1
"""
OWN = """\
seq_name length score call status probability
cut_1 500 0.8 ambiguous scored 0.7
cut_2 500 NA not_scored no_open_frame NA
"""


@pytest.fixture
def table(tmp_path):
    def write(text, name="table.tsv"):
        path = tmp_path / name
        path.write_text("".join("\t".join(line.split()) + "\n" for line in text.splitlines()))
        return path

    return write


def calls(found):
    return {name: CALLS[one.call] for name, one in found.rows.items()}


SEEKER = "name prediction score\ncut_1 Phage 0.82\ncut_2 Bacteria 0.13"
ONE, BOTH = ("viral", "non-viral"), ("viral", "viral")


@pytest.mark.parametrize(
    ("text", "threshold", "told", "scores", "called"),
    [
        (GENOMAD_SUMMARY, None, ("geNomad virus summary", "listed"), [0.9776, 0.91], BOTH),
        (GENOMAD_SUMMARY.splitlines()[0], None, ("geNomad virus summary", "listed"), [], ()),
        (GENOMAD_CLASSES, None, ("geNomad classification", "virus_score >= 0.7"), [0.8, 0.65], ONE),
        (GENOMAD_CLASSES, 0.6, ("geNomad classification", "virus_score >= 0.6"), [0.8, 0.65], BOTH),
        (DVF, None, ("DeepVirFinder", "score >= 0.5"), [0.93, 0.12], ONE),
        (SEEKER, None, ("Seeker", "prediction"), [0.82, 0.13], ONE),
    ],
)
def test_tables_of_other_tools_are_recognised(table, text, threshold, told, scores, called):
    found = read_table(table(text), threshold=threshold)
    assert (found.format, found.called_by) == told
    assert found.only_viral == (told[1] == "listed")
    assert [one.score for one in found.rows.values()] == scores
    assert calls(found) == dict(zip(("cut_1", "cut_2"), called, strict=False))


def test_names_of_deepvirfinder_may_have_descriptions(tmp_path):
    path = tmp_path / "described.txt"
    path.write_text("name\tlen\tscore\tpvalue\ncut_1 a phage\t500\t0.93\t0.001\n")
    assert set(read_table(path).rows) == {"cut_1"}


def test_logits_of_jaeger_become_the_share_of_viral_classes(table):
    found = read_table(table(JAEGER))
    assert found.score_column == (
        "phage_score after softmax over bacteria_score, phage_score, eukarya_score"
    )
    first = math.exp(3) / (math.exp(3) + 2 * math.exp(-1))
    second = math.exp(1) / (math.exp(2) + math.exp(1) + math.exp(0))
    assert [one.score for one in found.rows.values()] == pytest.approx([first, second])
    assert calls(found) == {"cut_1": "viral", "cut_2": "non-viral"}
    raw = read_table(table(JAEGER), score_column="phage_score", threshold=2)
    assert [one.score for one in raw.rows.values()] == [3, 1]
    assert all(math.isnan(one.probability) for one in raw.rows.values())


def test_a_table_of_virnucpro_keeps_calls_and_probabilities(table):
    found = read_table(table(OWN))
    assert calls(found) == {"cut_1": "ambiguous", "cut_2": "not_called"}
    assert found.rows["cut_1"].score == 0.8
    assert found.rows["cut_1"].probability == 0.7
    assert math.isnan(found.rows["cut_2"].score)
    uncalibrated = read_table(table(OWN.replace("0.7", "NA")))
    assert uncalibrated.rows["cut_1"].probability == 0.8


def test_a_calibrated_table_of_virnucpro_is_ranked_by_its_calibrated_probability(table):
    lines = OWN.splitlines()
    text = "\n".join(
        map(" ".join, zip(lines, ("calibrated_probability", "0.6", "NA"), strict=True))
    )
    found = read_table(table(text))
    assert found.score_column == "calibrated_probability"
    assert found.rows["cut_1"][:2] == (0.6, 0.6)
    assert calls(found) == {"cut_1": "ambiguous", "cut_2": "not_called"}
    assert read_table(table(text), score_column="score").rows["cut_1"][:2] == (0.8, 0.7)
    assert read_table(table(text.replace("0.6", "NA"))).score_column == "score"


def test_the_table_of_phages_of_jaeger_lists_viral_sequences_only(table):
    text = "\n".join(JAEGER.splitlines()[:2])
    found = read_table(table(text, "x_phages_jaeger.tsv"))
    assert (found.only_viral, calls(found)) == (True, {"cut_1": "viral"})
    assert not read_table(table(text)).only_viral
    assert read_table(table(JAEGER.splitlines()[0], "x_phages_jaeger.tsv")).rows == {}


def test_plain_tables_may_be_comma_separated_or_have_other_columns(table, tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text('seq_name,score\n"cut_1",0.7\ncut_2,0.2\n')
    assert calls(read_table(path)) == {"cut_1": "viral", "cut_2": "non-viral"}
    odd = read_table(table("contig virality\ncut_1 5.5\n"), score_column="virality", threshold=5)
    assert calls(odd) == {"cut_1": "viral"}


def test_scores_that_are_not_shares_need_a_threshold(table):
    percent = table("seq_name score\ncut_1 87\ncut_2 12\n")
    with pytest.raises(InputError, match=r"2, cut_1: the score 87 .* --call-threshold TOOL=X"):
        read_table(percent)
    assert calls(read_table(percent, threshold=50)) == {"cut_1": "viral", "cut_2": "non-viral"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contig virality\nx 1", r"unknown table, with the columns contig, virality.*--score-col"),
        ("\n", "unknown table, with the columns without names. Give a table of geNomad"),
        ("seq_name score\nx high", "line 2, x: 'high' in column 'score' is not a number"),
        ("seq_name score\nx inf", "line 2, x: 'inf' in column 'score' is not a number"),
        ("seq_name score\nx 1\nx 0.5", "line 3: x has two rows"),
        ("seq_name score call\nx 1 perhaps", "line 2, x: unknown call 'perhaps'"),
        ("seq_name score", "the table has no rows"),
        ("contig_id prediction\nx phage", "the table of Jaeger has no scores"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(table, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read_table(table(text))
    assert "table.tsv" in str(caught.value)


def test_missing_files_and_columns_are_named(table, tmp_path):
    with pytest.raises(InputError, match=r"nosuch\.tsv: the table cannot be read"):
        read_table(tmp_path / "nosuch.tsv")
    with pytest.raises(UsageError, match="no column 'virality'; its columns: name, len, score"):
        read_table(table(DVF), score_column="virality")


def test_tables_of_one_tool_are_joined(table):
    one, two = table(DVF, "a.txt"), table(DVF.replace("cut", "other"), "b.txt")
    both = merged([(path, read_table(path)) for path in (one, two)])
    assert len(both.rows) == 4
    with pytest.raises(InputError, match=r"a\.txt: cut_1 is in an earlier table"):
        merged([(one, read_table(one)), (one, read_table(one))])
    summary = table(GENOMAD_SUMMARY, "c.tsv")
    with pytest.raises(InputError, match=r"c\.tsv is a table of geNomad virus summary, and"):
        merged([(one, read_table(one)), (summary, read_table(summary))])


def test_names_that_are_not_evaluated_are_reported(table, fragments_of):
    members = fragments_of([(True, "viral", "A"), (False, "host", "B")])
    with pytest.raises(InputError, match=r"none of its 2 names .*cut_1, cut_2; expected: s0, s1"):
        check_names("--predictions dvf", read_table(table(DVF)), members)
    partly = read_table(table(DVF.replace("cut_1", "s0")))
    assert "1 of 2 names are not evaluated here and are ignored: cut_2" in check_names(
        "--predictions dvf", partly, members
    )
    assert check_names("x", read_table(table(GENOMAD_SUMMARY.splitlines()[0])), members) == ""
