"""Rounds: division into strides, and files that are written once."""

import errno
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import empty_run

from virnucpro.compute.rounds import (
    Round,
    find_latest_round,
    own_strides,
    read_latest_round,
    write_round,
)
from virnucpro.errors import RunError, RunExistsError
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.spec import json_digest


@given(
    strides=st.integers(1, 40),
    ranks_of_tasks=st.lists(st.integers(1, 5), min_size=1, max_size=9),
)
def test_every_stride_belongs_to_one_worker(strides, ranks_of_tasks):
    owned = [
        stride
        for task, ranks in enumerate(ranks_of_tasks)
        for rank in range(ranks)
        for stride in own_strides(strides, task, len(ranks_of_tasks), rank, ranks)
    ]
    assert sorted(owned) == list(range(strides))


@given(units=st.sets(st.integers(0, 300)), strides=st.integers(1, 20))
def test_every_unit_belongs_to_one_stride(units, strides):
    one = Round(1, tuple(sorted(units)), strides, "mini")
    assert sorted(unit for s in range(strides) for unit in one.stride(s)) == sorted(units)


@pytest.mark.parametrize("units", [(), (0,), (3, 4, 5), (0, 1, 7, 9, 10)])
def test_a_round_is_read_as_it_was_written(tmp_path, units):
    run = empty_run(tmp_path)
    written = write_round(run, units, 3, "mini")
    assert read_latest_round(run) == written == Round(1, units, 3, "mini")
    damaged = run.part("0001.00000000").segment(0, 7)
    second = write_round(run, units[:1], 2, "/bundles/own", [damaged])
    assert read_latest_round(run) == second
    assert second.number == 2
    assert second.rejected == ("run/parts/0001.00000000/run/shards/rank-0000/unit-000007.h5",)


def test_an_incomplete_file_is_not_the_latest_round(tmp_path):
    run = empty_run(tmp_path)
    first = write_round(run, range(4), 2, "mini")
    whole = run.round(1).read_bytes().replace(b'"number": 1', b'"number": 2')
    for text in (b"", whole[:30], whole, b"[]", b"{}"):
        run.round(2).write_bytes(text)
        assert read_latest_round(run) == first


def test_a_round_without_space_leaves_no_file(tmp_path, monkeypatch):
    run = empty_run(tmp_path)
    write_round(run, range(4), 2, "mini")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_round(run, range(9), 2, "mini")
    assert run.round_numbers() == [1]


@pytest.mark.parametrize(
    "change",
    [
        *({"strides": 0}, {"strides": "x"}, {"units": None}, {"number": []}),
        *({"rejected": [path]} for path in ("../other/unit-000001.h5", "/a/unit-000001.h5", 7)),
    ],
)
def test_a_round_with_invalid_fields_is_ignored(tmp_path, change):
    run = empty_run(tmp_path)
    write_round(run, range(4), 2, "mini")
    content = json.loads(run.round(1).read_bytes()) | change
    del content["sha256"]
    run.round(1).write_text(json.dumps({**content, "sha256": json_digest(content)}))
    assert find_latest_round(run) is None


def test_a_round_is_never_written_twice(tmp_path, monkeypatch):
    run = empty_run(tmp_path)
    write_round(run, range(4), 2, "mini")
    before = run.round(1).read_bytes()
    monkeypatch.setattr(RunDirectory, "round_numbers", lambda _: [])
    with pytest.raises(RunExistsError, match="just written by another process"):
        write_round(run, range(9), 2, "mini")
    assert run.round(1).read_bytes() == before


def test_without_a_round_the_error_names_the_next_step(tmp_path):
    with pytest.raises(RunError, match="virnucpro rescue"):
        read_latest_round(empty_run(tmp_path))


def test_spans_keep_the_file_small(tmp_path):
    run = empty_run(tmp_path)
    write_round(run, [*range(100_000), 200_000], 64, "mini")
    assert json.loads(run.round(1).read_bytes())["units"] == [[0, 100_000], [200_000, 200_001]]
