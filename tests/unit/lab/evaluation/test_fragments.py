import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from virnucpro.errors import InputError
from virnucpro.lab.evaluation.fragments import cut, group_key
from virnucpro.lab.evaluation.input_table import read_regions
from virnucpro.lab.evaluation.labels import Source

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def bases(seed, length):
    return "".join(random.Random(seed).choices("ACGT", k=length))


def source(tmp_path, name, records, *, viral, group="", kingdom=""):
    path = tmp_path / f"{name}.fa"
    path.write_text("".join(f">{one} text\n{text}\n" for one, text in records.items()))
    label = kingdom or ("viral" if viral else "non-viral")
    return Source(path, viral, label, group or None, None, "labels.tsv, line 2")


@pytest.fixture
def sources(tmp_path):
    many = {f"t{number}": bases(number, 120) for number in range(300)}
    return [
        source(tmp_path, "virus", {"v": bases(1, 5000)}, viral=True, group="V"),
        source(tmp_path, "genome", {"g": bases(2, 9000)}, viral=False, group="H", kingdom="fungi"),
        source(tmp_path, "transcripts", many, viral=False, group="H", kingdom="fungi"),
        source(tmp_path, "short", {"s": bases(3, 90)}, viral=False, group="S", kingdom="fungi"),
    ]


def cut_all(sources, lengths=("100",), per_group=10, per_class=1000, seed=1, **options):
    return cut(sources, lengths, per_group=per_group, per_class=per_class, seed=seed, **options)


def test_fragments_are_pieces_of_their_records_that_do_not_overlap(sources):
    texts = {"v": bases(1, 5000), "g": bases(2, 9000)}
    texts |= {f"t{number}": bases(number, 120) for number in range(300)}
    result = cut_all(sources, per_group=40)
    places = {}
    for fragment, sequence in result.sequences["100"]:
        piece = texts[fragment.record][fragment.start - 1 : fragment.end]
        if fragment.strand == "-":
            piece = piece.translate(COMPLEMENT)[::-1]
        assert sequence.decode() == piece
        places.setdefault(fragment.record, []).append((fragment.start, fragment.end))
    for spans in places.values():
        spans.sort()
        assert all(one[1] < other[0] for one, other in pairwise(spans))
    assert {fragment.strand for fragment in result.fragments("100")} == {"+", "-"}


def test_a_group_has_at_most_its_share_and_its_files_take_turns(sources):
    fragments = cut_all(sources).fragments("100")
    assert Counter(map(group_key, fragments)) == {
        (True, "viral", "V"): 10,
        (False, "fungi", "H"): 10,
    }
    assert Counter(Path(one.file).stem for one in fragments if not one.viral) == {
        "genome": 5,
        "transcripts": 5,
    }


def test_groups_share_the_maximum_of_a_class(tmp_path):
    hosts = {f"h{number}": bases(number, 1000) for number in range(20)}
    sources = [
        source(tmp_path, "v", {"v": bases(99, 5000)}, viral=True, group="V"),
        source(tmp_path, "h", hosts, viral=False),
    ]
    by_group = Counter(one.group for one in cut_all(sources, per_class=40).fragments("100"))
    assert by_group.pop("V") == 10
    assert set(by_group.values()) == {2}
    few = Counter(one.group for one in cut_all(sources, per_class=7).fragments("100"))
    assert few.pop("V") == 7
    assert sorted(few.values()) == [1] * 7


def test_equal_seeds_give_equal_fragments_and_other_files_do_not_matter(sources, tmp_path):
    first = cut_all(sources, per_group=3)
    assert cut_all(sources, per_group=3).sequences == first.sequences
    assert cut_all(sources, per_group=3, seed=2).sequences != first.sequences
    other = source(tmp_path, "other", {"o": bases(9, 900)}, viral=False, group="O")
    more = cut_all([other, *sources], per_group=3)
    wanted = {text for one, text in first.sequences["100"] if one.viral}
    assert {text for one, text in more.sequences["100"] if one.viral} == wanted


def test_a_fragment_of_other_bases_has_another_name(sources):
    first, again, other = (cut_all(sources, seed=seed).sequences["100"] for seed in (1, 1, 2))
    assert [one.name for one, _ in first] == [one.name for one, _ in again]
    by_name = {one.name: text for one, text in first}
    assert len(by_name) == len(first)
    common = by_name.keys() & {one.name for one, _ in other}
    assert len(common) < len(first)
    assert all(by_name[one.name] == text for one, text in other if one.name in common)


def test_a_length_without_a_class_is_left_out_and_losses_are_counted(sources):
    result = cut_all(sources, ("100", "6000"))
    assert list(result.sequences) == ["100"]
    assert result.groups_without("100") == [(False, "fungi", "S")]


def test_gaps_and_excluded_regions_are_skipped(tmp_path):
    gap = bases(1, 300) + "N" * 300 + bases(2, 300)
    sources = [
        source(tmp_path, "v", {"v": gap}, viral=True, group="V"),
        source(tmp_path, "h", {"h": bases(3, 2000)}, viral=False, group="H"),
    ]
    bed = tmp_path / "prophages.bed"
    bed.write_text("# prophages\nh\t0\t1500\tprophage\n")
    result = cut_all(sources, per_group=100, excluded=read_regions(bed))
    assert all(text.count(b"N") <= 10 for _, text in result.sequences["100"])
    assert all(one.start > 1500 for one in result.fragments("100") if not one.viral)


def test_an_invalid_region_is_named(tmp_path):
    bed = tmp_path / "bad.bed"
    bed.write_text("h\t1\t5\nh\t9\t3\n")
    with pytest.raises(InputError, match=r"bad\.bed, line 2: not a region"):
        read_regions(bed)


def test_whole_records_keep_their_names_which_must_differ(tmp_path):
    virus = source(tmp_path, "v", {"one": "ACGT" * 9, "two": "GGCA" * 9}, viral=True, group="V")
    host = source(tmp_path, "h", {"three": "ACCT" * 9}, viral=False, group="H")
    result = cut_all([virus, host], ("whole",))
    assert {one.name for one in result.fragments("whole")} == {"one", "two", "three"}
    again = source(tmp_path, "again", {"two": "ACCT" * 9}, viral=False, group="H")
    with pytest.raises(InputError, match=r"record two is in .*v\.fa and in .*again\.fa"):
        cut_all([virus, again], ("whole",))


def test_records_that_are_groups_of_both_classes_are_refused(tmp_path):
    virus = source(tmp_path, "v", {"same": bases(1, 500)}, viral=True)
    host = source(tmp_path, "h", {"same": bases(2, 500)}, viral=False)
    with pytest.raises(InputError, match="same: a record or group with this name is labelled"):
        cut_all([virus, host])


def test_a_labelled_record_must_exist(tmp_path):
    virus = source(tmp_path, "v", {"one": bases(1, 500)}, viral=True, group="V")
    missing = Source(virus.path, viral=True, kingdom="viral", group="V", record="x", where="line 7")
    with pytest.raises(InputError, match=r"line 7: .*v\.fa has no record x"):
        cut_all([missing])
