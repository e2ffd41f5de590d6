"""Run the command line with a rank that fails at a chosen point: ``faulty.py PLAN ARGUMENT ...``.

PLAN is JSON: ``point`` (load, batch, unit, flap, head, commit, rename, waiting, exit, poison,
tokens, or none), ``how``, ``rank`` (null for any), ``times`` (null for always), ``fired`` (a file
that counts failures), ``gate`` (a file for which ``how`` = wait waits), ``poison`` (sequences that
kill encoder or tokeniser), ``number`` and ``folder`` (see `commit_number`), ``others`` (numbers of
failures and starts of the failing rank for which the others wait), ``slow`` (a rank that waits for
``segments`` in the folder ``shard``). Spawned ranks import this file as their main script, and
install the failures then.
"""

import ctypes
import functools
import json
import os
import signal
import sys
import time
from itertools import count, pairwise
from pathlib import Path

PLAN = json.loads(sys.argv[1])
GATE_S = 60.0


def fire():
    """Fail, unless the planned number of failures has occurred."""
    times, fired = PLAN.get("times"), Path(PLAN["fired"])
    if times is not None and fired.exists() and fired.stat().st_size >= times:
        return
    with fired.open("ab") as stream:
        stream.write(b"x")
    how = PLAN["how"]
    if how == "raise":
        raise RuntimeError("injected")
    if how == "os._exit":
        os._exit(3)
    if how == "sleep":
        time.sleep(600)
    elif how == "wait":
        while not Path(PLAN["gate"]).exists():
            time.sleep(0.01)
    elif how == "deadlock in C":
        mutex = ctypes.create_string_buffer(64)
        # The second call never returns and keeps the interpreter's lock; no signal ends it.
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    else:
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(600)  # a stopped process continues here after SIGCONT


def before(owner, name, when=lambda *_: True):
    """Fail before a call of ``owner.name``."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def changed(*arguments, **options):
        if when(*arguments):
            fire()
        return original(*arguments, **options)

    setattr(owner, name, changed)


def arm():
    """Install the planned failure in the process of a rank."""
    from virnucpro.compute import rank_encoder, row_embedder
    from virnucpro.store.writer import ShardWriter

    point = PLAN["point"]
    if point == "load":
        before(rank_encoder, "load_encoder")
    elif point == "head":
        before(row_embedder, "unstorable_rows")
    elif point == "waiting":
        arm_waiting()
    elif point == "commit":
        before(ShardWriter, "commit", commit_number(PLAN.get("number", 0), PLAN.get("folder")))
    elif point == "rename":
        before(Path, "replace", lambda path, *_: path.name.startswith("unit-"))
    elif point in OF_ENCODERS:
        arm_loaded(rank_encoder, OF_ENCODERS[point])


def commit_number(number, folder):
    """Return a condition: a commit of this process after `number` ones, into a run of this name."""
    commits = count()
    return lambda writer, _: folder in (None, writer._run.root.name) and next(commits) >= number


def arm_loaded(rank_encoder, arm_class):
    """Install a failure in the class of each encoder that the rank loads."""
    load, armed = rank_encoder.load_encoder, set()

    @functools.wraps(load)
    def loaded(*arguments):
        encoder = load(*arguments)
        if type(encoder) not in armed:
            armed.add(type(encoder))
            arm_class(type(encoder))
        return encoder

    rank_encoder.load_encoder = loaded


BATCHES = count()


def at_batch(number):
    """Return a function that makes an encoder fail at one batch of this rank."""
    return lambda encoder: before(encoder, "start", lambda *_: next(BATCHES) == number)


def arm_tokeniser(encoder):
    """Fail whenever one of some sequences is tokenised."""
    before(encoder, "tokenise", lambda _, rows: any(row.decode() in PLAN["poison"] for row in rows))


def arm_poison(encoder):
    """Fail whenever one of some sequences is in a batch of an encoder."""
    original = encoder.tokenise
    poisonous = set()

    def tokenise(self, sequences):
        tokens = original(self, sequences)
        for sequence, ids in zip(sequences, tokens, strict=True):
            if sequence.decode() in PLAN["poison"]:
                poisonous.add(tuple(ids))
        return tokens

    encoder.tokenise = tokenise
    before(encoder, "start", lambda _, batch: not poisonous.isdisjoint(map(tuple, rows_of(batch))))


def others_done():
    """Return whether the shard of the plan, of another rank, has its number of segments."""
    return len(list(Path(PLAN["shard"]).glob("*.h5"))) >= PLAN["segments"]


def arm_waiting():
    """Fail when the rank has reported that it waits for a unit."""
    from virnucpro.runtime.messages import WorkerChannel

    mark = WorkerChannel.mark

    def marked(self, place):
        mark(self, place)
        if not place and others_done():
            fire()

    WorkerChannel.mark = marked


def hold_until(is_open):
    """Make the first unit of this rank last until a condition holds, so that others go first."""
    from virnucpro.compute import row_embedder

    original = row_embedder.unstorable_rows
    deadline = time.monotonic() + GATE_S

    def of_unit(numbers):
        while not is_open() and time.monotonic() < deadline:
            time.sleep(0.01)
        return original(numbers)

    row_embedder.unstorable_rows = of_unit


def size(path):
    return Path(path).stat().st_size if Path(path).exists() else 0


def failed_and_started():
    """Return whether the failing rank has failed and started as often as the plan says."""
    failures, starts = PLAN["others"]
    return size(PLAN["fired"]) >= failures and size(PLAN["fired"] + ".starts") >= starts


OF_ENCODERS = {
    "batch": at_batch(0),
    "flap": at_batch(2),
    "unit": at_batch(7),
    "tokens": arm_tokeniser,
    "poison": arm_poison,
}


def rows_of(batch):
    """Return the tokens of each sequence of a batch, as integers."""
    if isinstance(batch, list):
        return batch
    return [batch.tokens[a:b].tolist() for a, b in pairwise(batch.offsets.tolist())]


def run_rank(rank, *arguments):
    """Replace `rank_main.run_rank` in a child."""
    has_plan = PLAN.get("rank") in (None, rank)
    if has_plan:
        arm()
    if has_plan:
        with Path(PLAN["fired"] + ".starts").open("ab") as stream:
            stream.write(b"x")
    elif "others" in PLAN:
        hold_until(failed_and_started)
    if PLAN.get("slow") == rank:
        is_waiting = PLAN["point"] == "waiting"
        hold_until(Path(PLAN["fired"]).exists if is_waiting else others_done)
    original_run_rank(rank, *arguments)
    if has_plan and PLAN["point"] == "exit":
        fire()


if __name__ == "__main__":
    from virnucpro.cli.main import main

    sys.exit(main(sys.argv[2:]))
else:
    from virnucpro.compute import rank_main

    original_run_rank, rank_main.run_rank = rank_main.run_rank, run_rank
