"""Rounds on this machine: tasks, then a merge, until nothing is missing or rounds have run out."""

import pytest

from virnucpro.cluster.request import LocalEngine, Request
from virnucpro.errors import UsageError

WORK, RESCUE, LAST = "work", "merge --then-rescue", "merge"


@pytest.mark.parametrize(
    ("codes", "calls", "code"),
    [
        ("0", [WORK, WORK, RESCUE], 0),
        ("2 0", [WORK, WORK, RESCUE, WORK, WORK, RESCUE], 0),
        ("2 2 2", [WORK, WORK, RESCUE, WORK, WORK, RESCUE, WORK, WORK, LAST], 2),
        ("1", [WORK, WORK, RESCUE], 1),
    ],
)
def test_rounds_end_as_soon_as_nothing_is_missing(tmp_path, codes, calls, code):
    """The program notes its calls; each merge ends with the next of `codes`, each task with 1."""
    log, left = tmp_path / "calls", tmp_path / "codes"
    left.write_text(codes.replace(" ", "\n") + "\n")
    program = tmp_path / "program"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\n[ "$1" = merge ] || exit 1\n'
        f'code=$(head -n 1 {left})\nsed -i 1d {left}\nexit "$code"\n'
    )
    request = Request(tmp_path / "run", ("sh", str(program)), tasks=2, limit=1, rescues=2)
    assert LocalEngine().submit(request) == code
    found = log.read_text().replace(f" {tmp_path / 'run'}", "").splitlines()
    assert [line.partition(" --task ")[0] for line in found] == calls
    assert [line[-3:] for line in found[:2]] == ["0/2", "1/2"]


def test_options_of_a_scheduler_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no options of a scheduler"):
        LocalEngine().submit(Request(tmp_path, ("true",), 1, merge_options=("--mem=5G",)))
