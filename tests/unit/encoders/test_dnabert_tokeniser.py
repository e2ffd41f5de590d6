import json
import os
import re
import string
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import run_captured
from tokenizers import Tokenizer

from virnucpro.encoders.dnabert_s.encoder import BpeTokeniser
from virnucpro.encoders.registry import load_encoder, open_spec
from virnucpro.errors import BundleError


@pytest.fixture
def tokenizer_json(tmp_path, small_tokenizer):
    path = tmp_path / "tokenizer.json"
    small_tokenizer.save(str(path))
    return path


@pytest.fixture
def tokeniser(tokenizer_json):
    return BpeTokeniser(tokenizer_json)


@pytest.fixture
def one_by_one(tokenizer_json):
    """Return ids by the library itself: one sequence at a time, no truncation, no padding."""
    plain = Tokenizer.from_file(str(tokenizer_json))
    plain.no_truncation()
    plain.no_padding()
    return lambda sequences: [
        plain.encode("".join(chr(b).upper() if chr(b) in LETTERS else "N" for b in sequence)).ids
        for sequence in sequences
    ]


LETTERS = string.ascii_letters
PARALLELISM = "TOKENIZERS_PARALLELISM"
BASES = st.text("ACGTNacgtn", max_size=300).map(str.encode)
BYTES = st.binary(max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(BASES | BYTES, max_size=12))
def test_ids_equal_those_of_single_sequences_by_the_library(tokeniser, one_by_one, sequences):
    ids = tokeniser(sequences)
    assert [one.tolist() for one in ids] == one_by_one(sequences)
    assert all(one.dtype == np.int64 for one in ids)


def test_truncation_and_padding_of_the_file_are_disabled(tokeniser, bases, small_tokenizer):
    long, short = bases([500, 1])
    assert len(small_tokenizer.encode(long.decode()).ids) == 12
    ids = tokeniser([long, short])
    assert len(ids[0]) > 100
    assert len(ids[1]) == 3


def test_each_unknown_letter_becomes_one_unk(tokeniser):
    ids = tokeniser([b"NNN", b"\xe4"])
    assert [list(i) for i in ids] == [[1, 0, 0, 0, 2], [1, 0, 2]]


@pytest.mark.parametrize("text", [b"[SEP]", b"[MASK]", b"[CLS][PAD]", b" A\tC\n", b"<s>"])
def test_no_sequence_spells_a_special_token_and_no_byte_is_dropped(tokeniser, text):
    within, expected = tokeniser(
        [b"ACGT" + text + b"ACGT", b"ACGT" + re.sub(rb"[^A-Z]", b"N", text.upper()) + b"ACGT"]
    )
    assert within.tolist() == expected.tolist()
    assert (within[1:-1] == 0).sum() >= len(re.sub(rb"[ACGT]", b"", text.upper()))
    assert not {1, 2, 3, 4} & set(within[1:-1].tolist())


def test_ids_decode_to_the_sequence(tokeniser, bases, small_tokenizer):
    (sequence,) = bases([333])
    (ids,) = tokeniser([sequence])
    assert "".join(small_tokenizer.id_to_token(i) for i in ids[1:-1]).encode() == sequence


PROGRAM = """
import os, sys
from pathlib import Path
from virnucpro.encoders.dnabert_s.encoder import BpeTokeniser

BpeTokeniser(Path(sys.argv[1]))([b"ACGT" * 100] * 500)
print(len(os.listdir("/proc/self/task")), os.environ["TOKENIZERS_PARALLELISM"])
"""


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two cores: one has no pool in any case")
@pytest.mark.slow
@pytest.mark.parametrize(("asked", "parallel"), [(None, False), ("true", True)])
def test_the_library_starts_threads_only_on_request(tokenizer_json, asked, parallel):
    environment = {key: text for key, text in os.environ.items() if "PARALLELISM" not in key}
    environment |= {"OPENBLAS_NUM_THREADS": "1"} | ({} if asked is None else {PARALLELISM: asked})
    done = run_captured(sys.executable, "-c", PROGRAM, tokenizer_json, env=environment)
    threads, setting = done.stdout.split()
    assert (int(threads) > 1) is parallel
    assert setting == (asked or "false")


GROW = {"type": "Replace", "pattern": {"String": "A"}, "content": "A" * 10_000}


def with_a_bomb(path):
    bomb = {"normalizer": {"type": "Sequence", "normalizers": [GROW] * 4}}
    path.write_text(json.dumps(json.loads(path.read_text()) | bomb))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            (lambda path, content=content: path.write_bytes(content), "Get the file again")
            for content in (b"", b"{", b'{"version": "1.0"}', b"\xff\xfe")
        ),
        (Path.unlink, "Get the file again"),
        (with_a_bomb, "has a normalizer, which changes letters.*Get the file"),
        (lambda path: os.truncate(path, 8 << 30), "larger than 64 MiB"),
    ],
    ids=["empty", "cut", "without model", "not UTF-8", "missing", "normalizer", "huge"],
)
def test_a_damaged_missing_or_huge_file_is_named(tokenizer_json, change, message):
    change(tokenizer_json)
    with pytest.raises(BundleError, match=rf"tokenizer\.json.*{message}"):
        BpeTokeniser(tokenizer_json)


SEP = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}


def _with_ends_by_another_name(settings):
    for one in settings["added_tokens"]:
        one["content"] = one["content"].replace("[CLS]", "<s>")
    settings["model"]["vocab"]["<s>"] = settings["model"]["vocab"].pop("[CLS]")


@pytest.mark.parametrize(
    "change",
    [
        lambda settings: settings.update(post_processor=None),
        lambda settings: settings["post_processor"]["single"].pop(),
        lambda settings: settings["post_processor"]["single"].append(SEP),
        lambda settings: settings["post_processor"]["special_tokens"]["[SEP]"].update(ids=[3]),
        _with_ends_by_another_name,
    ],
    ids=["no end", "one end", "an end twice", "another end", "another name"],
)
def test_a_file_that_does_not_add_cls_and_sep_is_refused(dnabert, change):
    folder, _ = dnabert()
    spec = open_spec(folder)
    settings = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    load_encoder(spec)
    change(settings)
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    for attempt in (lambda: open_spec(folder), lambda: load_encoder(spec)):
        with pytest.raises(BundleError, match=r"tokenizer\.json: .* add \[CLS\] and \[SEP\]"):
            attempt()


@pytest.mark.shared
def test_the_published_tokenizer_gives_109_tokens_for_500_bases(shared, bases):
    tokeniser = BpeTokeniser(shared / "reference" / "dnabert-s" / "tokenizer.json")
    assert tokeniser.vocabulary_size == 4096
    counts = [len(ids) for ids in tokeniser(bases([500] * 200))]
    assert sum(counts) / len(counts) == pytest.approx(109, abs=1)
    assert tokeniser([b"acgtn"])[0].tolist() == tokeniser([b"ACGTN"])[0].tolist()
