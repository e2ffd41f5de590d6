import pytest

from virnucpro.encoders.bases import BaseTokeniser
from virnucpro.errors import BundleError


@pytest.fixture
def tokeniser(tmp_path, small_tokenizer):
    path = tmp_path / "tokenizer.json"
    small_tokenizer.save(str(path))
    return BaseTokeniser(path)


def test_truncation_and_padding_of_the_file_are_off(tokeniser, bases, small_tokenizer):
    long, short = bases([500, 1])
    assert len(small_tokenizer.encode(long.decode()).ids) == 12
    ids = tokeniser([long, short])
    assert len(ids[0]) > 100
    assert len(ids[1]) == 3


def test_a_sequence_stands_between_cls_and_sep(tokeniser, bases):
    for ids in tokeniser(bases([5, 40])):
        assert (ids[0], ids[-1]) == (1, 2)
        assert (ids[1:-1] > 4).all()


def test_lower_case_counts_as_upper_case(tokeniser, bases):
    (sequence,) = bases([200])
    upper, lower = tokeniser([sequence, sequence.lower()])
    assert upper.tolist() == lower.tolist()


def test_unknown_letters_become_unk_one_by_one(tokeniser):
    ids = tokeniser([b"NNN", b"\xe4"])
    assert [list(i) for i in ids] == [[1, 0, 0, 0, 2], [1, 0, 2]]


def test_ids_decode_to_the_sequence(tokeniser, bases, small_tokenizer):
    (sequence,) = bases([333])
    (ids,) = tokeniser([sequence])
    assert "".join(small_tokenizer.id_to_token(i) for i in ids[1:-1]).encode() == sequence


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": "1.0"}', b"\xff\xfe"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"tokenizer\.json.*Get the file again"):
        BaseTokeniser(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        BaseTokeniser(tmp_path / "tokenizer.json")


@pytest.mark.shared
def test_the_published_tokenizer_gives_109_tokens_for_500_bases(shared, bases):
    tokeniser = BaseTokeniser(shared / "reference" / "dnabert-s" / "tokenizer.json")
    assert tokeniser.vocabulary_size == 4096
    counts = [len(ids) for ids in tokeniser(bases([500] * 200))]
    assert sum(counts) / len(counts) == pytest.approx(109, abs=1)
    assert tokeniser([b"acgtn"])[0].tolist() == tokeniser([b"ACGTN"])[0].tolist()
