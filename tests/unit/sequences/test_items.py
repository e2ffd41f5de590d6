"""Whole windows as items, alone and beside open frames."""

import hashlib
import itertools
import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples import QUICK, any_spec, index_of

from virnucpro.errors import UsageError
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.items import (
    DIGEST_BYTES,
    ITEM_NAMES,
    WINDOW_ITEM,
    cut_records,
    divide_records,
)
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec, InputFile, RecordStatus, fingerprint
from virnucpro.sequences.windows import tile

WINDOWS = IndexSpec("windows", Alphabet.NUCLEOTIDE, 100, "even", 11)
FRAMES = IndexSpec("frames", Alphabet.NUCLEOTIDE, 100, "even", 11)
BOTH = replace(FRAMES, fallback=True)

OPEN = b"GCC" * 40  # 120 bases, all six frames are open
CLOSED = b"TTAA" * 25  # a stop in each of the six frames


@pytest.fixture
def build(tmp_path):
    """Build an index of sequences; each index has its own numbered folder."""
    numbers = iter(range(100))

    def build_records(sequences, spec) -> SequenceIndex:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return index_of(folder, sequences, spec)

    return build_records


def are_items(windows):
    """Return which windows of a record are items, by the rule as it is written in `IndexSpec`."""
    known = [sum(one.count(base) for base in b"ACGT") for one in windows]
    both = list(zip(windows, known, strict=True))
    found = [len(one) >= 60 and 10 * bases >= 9 * len(one) for one, bases in both]
    return found if any(found) else [bases >= 60 and 2 * bases >= len(one) for one, bases in both]


def divided(items):
    """Return (frame, length, digest) of the items of each window, as lists."""
    size = DIGEST_BYTES
    digests = [items.digests[at : at + size] for at in range(0, len(items.digests), size)]
    found = list(zip(items.frame.tolist(), items.length.tolist(), digests, strict=True))
    ends = np.cumsum(items.per_window)
    assert len(found) == (ends[-1] if len(ends) else 0)
    counts = items.per_window.tolist()
    return [found[end - n : end] for end, n in zip(ends.tolist(), counts, strict=True)]


@pytest.mark.parametrize(
    ("sequence", "n_items", "status"),
    [
        (b"", 0, RecordStatus.TOO_SHORT),
        (b"ACG", 0, RecordStatus.TOO_SHORT),
        (b"A" * 59, 0, RecordStatus.TOO_SHORT),
        (b"N" * 59, 0, RecordStatus.TOO_SHORT),
        (b"A" * 60, 1, RecordStatus.SCORABLE),
        (b"A" * 54 + b"N" * 6, 1, RecordStatus.SCORABLE),
        (b"A" * 53 + b"N" * 7, 0, RecordStatus.AMBIGUOUS_BASES),
        (b"A" * 54 + b"R" * 6 + b"Y", 0, RecordStatus.AMBIGUOUS_BASES),
        # no window has 90 % known bases: half of them, and 60, suffice
        (b"A" * 60 + b"N" * 19, 1, RecordStatus.SCORABLE),
        (b"AN" * 30 + b"A" * 30, 1, RecordStatus.SCORABLE),
        (b"ANN" * 20 + b"A" * 39, 0, RecordStatus.AMBIGUOUS_BASES),
        (b"A" * 30 + b"ACGTN" * 14 + b"A" * 30, 2, RecordStatus.SCORABLE),
        ((b"A" * 48 + b"N" * 52) * 2, 0, RecordStatus.AMBIGUOUS_BASES),
        (b"ACGTN" * 20 + b"C" * 100, 1, RecordStatus.SCORABLE),
        (CLOSED, 1, RecordStatus.SCORABLE),
        (b"N" * 100 + b"C" * 100, 1, RecordStatus.SCORABLE),
    ],
)
def test_a_window_of_60_bases_with_90_percent_known_ones_is_an_item(sequence, n_items, status):
    items = divide_records([OPEN, sequence, OPEN], WINDOWS)
    around = len(divide_records([OPEN], WINDOWS).frame)
    assert len(items.frame) == n_items + 2 * around
    assert items.status.tolist() == [RecordStatus.SCORABLE, status, RecordStatus.SCORABLE]
    assert set(items.frame.tolist()) == {WINDOW_ITEM}


def test_items_of_windows_are_named_and_read_as_they_are(build):
    sequences = [b"ACGTN" * 12 + b"A" * 10, OPEN, b"ACG"]
    index = build(sequences, WINDOWS)
    names = index.item_names(np.arange(index.n_items))
    assert names == ["r0_chunk_1W", "r1_chunk_1W", "r1_chunk_2W"][-index.n_items :]
    assert names == ["r1_chunk_1W", "r1_chunk_2W"]  # r0 has too many N
    assert ITEM_NAMES[WINDOW_ITEM] == "W"
    expected = [index.window_sequence(window) for window in (1, 2)]
    assert index.sequences(index.item_row, "nucleotide") == expected
    with pytest.raises(UsageError, match="no protein view"):
        index.sequences(index.item_row, "protein")
    assert (index.kinds(index.item_row) == WINDOW_ITEM).all()


@pytest.mark.parametrize("spec", [WINDOWS, BOTH])
def test_a_frame_and_a_window_of_equal_bases_are_different_rows(build, spec):
    # The first frame of OPEN[:60] are its 60 bases.
    window, frame = divide_records([OPEN[:60]], WINDOWS), divide_records([OPEN[:60]], FRAMES)
    frames = {one[2] for one in divided(frame)[0]}
    assert divided(window)[0][0][2] not in frames
    if spec is BOTH:
        index = build([OPEN, CLOSED], BOTH)
        whole = index.kinds(np.arange(index.n_rows)) == WINDOW_ITEM
        assert whole.sum() == 1
        assert index.sequences(np.flatnonzero(whole), "nucleotide") == [CLOSED]


def test_a_fallback_adds_windows_in_their_order(build):
    # windows: open, closed, closed and too unknown, closed and too short
    sequences = [OPEN[:99] + CLOSED, CLOSED[:48] + b"N" * 52, b"TTAA" * 14, CLOSED]
    index = build(sequences, BOTH)
    names = index.item_names(np.arange(index.n_items))
    frames = [f"r0_chunk_1{name}" for name in ITEM_NAMES[:6]]
    assert names == [*frames, "r0_chunk_2W", "r3_chunk_1W"]
    assert index.record_status.tolist() == [
        RecordStatus.SCORABLE,
        RecordStatus.NO_OPEN_FRAME,
        RecordStatus.NO_OPEN_FRAME,
        RecordStatus.SCORABLE,
    ]
    whole = np.flatnonzero(index.item_frame == WINDOW_ITEM)
    bases = index.sequences(index.item_row[whole], "nucleotide")
    assert bases == [index.window_sequence(1), CLOSED]
    assert np.all(np.diff(index.row_lengths) <= 0)


RUN = b"N" * 10 + b"R" * 10


@pytest.mark.parametrize(
    ("sequence", "spans"),
    [
        (OPEN + RUN[1:], [(0, 100), (39, 139)]),
        (OPEN[:80] + RUN + OPEN[:80], [(0, 80), (100, 180)]),
        (RUN + OPEN + RUN + OPEN + RUN, [(20, 120), (40, 140), (160, 260), (180, 280)]),
        (OPEN[:59] + RUN + OPEN[:60], [(79, 139)]),
        (OPEN[:59] + RUN + OPEN[:59], [(0, 100), (38, 138)]),
        (RUN * 4 + OPEN[:20], [(0, 100)]),
    ],
)
def test_a_window_covers_a_run_of_20_unknown_letters_only_if_all_do(sequence, spans):
    items = divide_records([RUN[:5] + OPEN[:50], sequence, OPEN], replace(WINDOWS, min_length=60))
    low, high = items.windows.first[1:3].tolist()
    assert items.windows.first[1] == 0
    found = zip(items.windows.starts.tolist(), items.windows.ends.tolist(), strict=True)
    assert list(found) == [*spans, (0, 100), (20, 120)]
    assert high - low == len(spans)
    published = divide_records([sequence], replace(WINDOWS, tiling="published"))
    starts, ends = tile(len(sequence), 100, "published")
    assert published.windows.starts.tolist() == starts.tolist()
    assert published.windows.ends.tolist() == ends.tolist()
    scored = len(sequence) - sequence.count(b"N") - sequence.count(b"R") >= 60
    expected = RecordStatus.SCORABLE if scored else RecordStatus.AMBIGUOUS_BASES
    assert items.status[1] == expected


def tiled_one_by_one(record, window):
    """Return starts and ends of the windows of a record, each part between runs by itself."""
    low, parts = 0, []
    for run in re.finditer(rb"[^ACGT]{20,}", record):
        parts.append((low, run.start()))
        low = run.end()
    long = [part for part in (*parts, (low, len(record))) if part[1] - part[0] >= 60]
    for low, high in long or [(0, len(record))]:
        starts, ends = tile(high - low, window, "even")
        yield from zip((low + starts).tolist(), (low + ends).tolist(), strict=True)


parts = st.sampled_from([RUN, RUN[1:], OPEN, OPEN[:59], OPEN[:60], OPEN[:1], b"N" * 200])


@given(st.lists(st.lists(parts, max_size=5).map(b"".join), max_size=6))
def test_records_are_tiled_around_unknown_runs_each_by_itself(records):
    windows = divide_records(records, WINDOWS).windows
    found = list(zip(windows.starts.tolist(), windows.ends.tolist(), strict=True))
    expected = [list(tiled_one_by_one(record, 100)) for record in records]
    assert found == [pair for pairs in expected for pair in pairs]
    assert np.diff(windows.first).tolist() == [len(pairs) for pairs in expected]


pieces = st.sampled_from(
    [b"GCC" * 9, b"TTAA" * 8, b"N", b"NNNNNN", b"ACGTTGCA" * 3, b"TAGCTAACTAGC", b"R", b"GATTACA"]
)
sequences = st.lists(pieces, max_size=14).map(b"".join)
specs = any_spec("frames", 40, 130)


@given(st.lists(sequences, max_size=6), specs)
@example([OPEN + CLOSED + b"N" * 30 + CLOSED, b"", CLOSED, b"A"], FRAMES)
def test_a_fallback_adds_one_item_to_each_scorable_window_without_a_frame(records, spec):
    frames = divide_records(records, spec)
    both = divide_records(records, replace(spec, fallback=True))
    windows = divide_records(records, replace(spec, kind="windows"))
    whole = divided(windows)
    expected = [
        one or whole[number] for number, one in enumerate(divided(frames))
    ]  # frames where there are any
    assert divided(both) == expected
    without = [[item for item in one if item[0] != WINDOW_ITEM] for one in divided(both)]
    assert without == divided(frames)
    for one in ("starts", "ends", "first"):
        assert getattr(both.windows, one).tolist() == getattr(frames.windows, one).tolist()
    scorable = RecordStatus.SCORABLE
    for number, status in enumerate(both.status.tolist()):
        if status != scorable:
            assert status == frames.status[number]
            assert windows.status[number] != scorable
        else:
            assert scorable in (frames.status[number], windows.status[number])


def simple_windows(sequence, spec):
    runs = [run.span() for run in re.finditer(rb"[^ACGT]{20,}", sequence)]
    if not runs or spec.tiling == "published":
        return [*zip(*map(list, tile(len(sequence), spec.window, spec.tiling)), strict=True)]
    between = itertools.pairwise([0, *itertools.chain(*runs), len(sequence)])
    parts = [(a, b) for a, b in itertools.islice(between, 0, None, 2) if b - a >= 60]
    return [
        (first + int(low), first + int(high))
        for first, last in parts or [(0, len(sequence))]
        for low, high in zip(*tile(last - first, spec.window, spec.tiling), strict=True)
    ]


@given(st.lists(sequences, max_size=6), specs)
@example([b"GCC" * 19 + b"N" * 24, b"GCC" * 30 + b"N" * 24 + b"GCC" * 25], FRAMES)
def test_window_items_equal_a_simple_implementation(records, spec):
    spec = replace(spec, kind="windows")
    found, status = [], []
    for sequence in records:
        spans = simple_windows(sequence, spec)
        chosen = are_items([sequence[low:high] for low, high in spans])
        found += [
            sequence[low:high] for (low, high), keep in zip(spans, chosen, strict=True) if keep
        ]
        if any(chosen):
            status.append(RecordStatus.SCORABLE)
        else:
            short = len(sequence) < 60
            status.append(RecordStatus.TOO_SHORT if short else RecordStatus.AMBIGUOUS_BASES)
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        index = index_of(Path(folder), records, spec)
        assert index.sequences(index.item_row, "nucleotide") == found
        assert index.record_status.tolist() == status
        assert index.n_rows == len(set(found))


def test_a_specification_is_read_from_its_description():
    for spec in (FRAMES, BOTH, WINDOWS):
        assert IndexSpec.from_json(json.loads(json.dumps(spec.as_json()))) == spec


def test_each_kind_of_items_has_a_fingerprint(build):
    index = build([b"ATGGCCAAAGGTCCCTTTGCA"], FRAMES)
    assert fingerprint(index.inputs, FRAMES) == index.fingerprint
    inputs = [InputFile("a.fa", hashlib.sha256(b"").hexdigest(), 1, 1)]
    kinds = {fingerprint(inputs, spec) for spec in (FRAMES, BOTH, WINDOWS)}
    assert len(kinds) == 3


@given(
    st.lists(st.text("ACGTN", max_size=90).map(str.encode), max_size=8),
    st.sampled_from(["frames", "stretches", "windows", "whole"]),
    st.integers(0, 60),
    st.data(),
)
def test_records_left_out_change_no_other_record(sequences, kind, least, data):
    spec = IndexSpec(kind, Alphabet.NUCLEOTIDE, 30, "even", 11)
    places = st.integers(0, len(sequences) - 1) if sequences else st.nothing()
    reasons = st.sampled_from([RecordStatus.INVALID_LETTERS, RecordStatus.TOO_LONG])
    left_out = data.draw(st.dictionaries(places, reasons)) if sequences else {}
    found = divide_records(sequences, replace(spec, min_length=least), left_out)
    kept = [i for i, one in enumerate(sequences) if i not in left_out and len(one) >= least]
    alone = divide_records([sequences[i] for i in kept], spec)
    assert found.digests == alone.digests
    assert found.windows.starts.tolist() == alone.windows.starts.tolist()
    assert found.status[kept].tolist() == alone.status.tolist()
    counts = np.diff(found.windows.first)
    assert counts[kept].tolist() == np.diff(alone.windows.first).tolist()
    for place in {*range(len(sequences))} - {*kept}:
        status = left_out.get(place, RecordStatus.TOO_SHORT)
        assert (found.status[place], counts[place]) == (status, 0)


@given(
    st.lists(st.sampled_from([b"", OPEN[:60], OPEN[:70], OPEN[:140], OPEN[70:140], b"N" * 80])),
    st.integers(60, 80),
    st.sampled_from(["published", "even"]),
)
def test_digests_of_pieces_depend_on_their_bases_alone(records, piece, tiling):
    spec = replace(WINDOWS, window=70, tiling=tiling, piece=piece)
    items = divide_records(records, spec)
    lengths = np.array([*map(len, records)], np.int64)
    found = cut_records(records, items, spec, lengths, np.zeros_like(lengths))
    bounds = np.repeat(np.arange(len(records)), found.per_record), found.start, found.length
    texts = [records[n][a : a + b] for n, a, b in zip(*bounds, strict=True)]
    size = DIGEST_BYTES
    digests = [found.digests[n : n + size] for n in range(0, len(found.digests), size)]
    assert len({*zip(texts, digests, strict=True)}) == len({*texts}) == len({*digests})
    of_windows = {items.digests[n : n + size] for n in range(0, len(items.digests), size)}
    assert of_windows.isdisjoint(digests)
