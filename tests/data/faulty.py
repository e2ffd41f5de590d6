"""Run the command line with a rank that fails at a chosen point: ``faulty.py PLAN ARGUMENT ...``.

PLAN is JSON: ``point`` (load, batch, unit, flap, head, commit, rename, exit, poison, tokens, or
straggler), ``how``, ``rank`` (null for any), ``times`` (null for always), ``fired`` (a file that
counts), ``poison`` (sequences that kill encoder or tokeniser), ``shard`` and ``segments`` (see
`arm_straggler`). A spawned child imports this file before its own work, as any main script; there
it is armed.
"""

import ctypes
import functools
import json
import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

PLAN = json.loads(sys.argv[1])
STARTED = time.monotonic()
GATE_S = 20.0


def fire():
    """Fail, unless it has been done often enough."""
    times, fired = PLAN.get("times"), Path(PLAN["fired"])
    if times is not None and fired.exists() and fired.stat().st_size >= times:
        return
    with fired.open("ab") as stream:
        stream.write(b"x")
    how = PLAN["how"]
    if how == "raise":
        raise RuntimeError("planted")
    if how == "os._exit":
        os._exit(3)
    if how == "sleep":
        time.sleep(600)
    elif how == "deadlock in C":
        mutex = ctypes.create_string_buffer(64)
        for _ in range(
            2
        ):  # the second never returns, keeps the interpreter's lock, and no signal wakes it
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    else:
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(600)  # SIGSTOP comes back, when the process goes on


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
    """Change what the plan names; in the rank's process alone."""
    from virnucpro.encoders.encoder import Encoder
    from virnucpro.pipeline.worker import rank_encoder, row_embedder
    from virnucpro.store.writer import ShardWriter

    batches = iter(range(1 << 30))
    point = PLAN["point"]
    if point == "load":
        before(rank_encoder, "load_encoder")
    elif point == "batch":
        before(Encoder, "encode", lambda *_: next(batches) == 0)
    elif point == "flap":
        before(Encoder, "encode", lambda *_: next(batches) == 2)
    elif point == "head":
        before(row_embedder, "problems")
    elif point == "tokens":
        before(
            Encoder,
            "tokenise",
            lambda _, rows: any(row.decode() in PLAN["poison"] for row in rows),
        )
    elif point == "unit":
        before(Encoder, "encode", lambda *_: next(batches) == 7)
    elif point == "commit":
        before(ShardWriter, "commit")
    elif point == "rename":
        before(Path, "replace", lambda path, *_: path.name.startswith("unit-"))
    elif point in SPECIAL:
        SPECIAL[point](Encoder)


def arm_poison(encoder):
    """Fail whenever one of some sequences is in a batch of the protein encoder."""
    original = encoder.tokenise
    doomed = set()

    def tokenise(self, sequences):
        tokens = original(self, sequences)
        for sequence, ids in zip(sequences, tokens, strict=True):
            if self.view == "protein" and sequence.decode() in PLAN["poison"]:
                doomed.add(ids.tobytes())
        return tokens

    encoder.tokenise = tokenise
    before(encoder, "encode", lambda _, packed: not doomed.isdisjoint(map(bytes, rows_of(packed))))


def arm_straggler(encoder):
    """Slow this rank down, so that another one computes some of its units.

    Its first unit takes as long as its start, and lasts until the other rank's shard holds the
    first number of segments in the plan. Its second unit waits for the second number.
    """
    Path(PLAN["fired"]).touch()
    shard, gates = Path(PLAN["shard"]), dict(enumerate(PLAN["segments"]))
    original = encoder.encode

    def encode(self, packed):
        unit = len(list(shard.with_name("rank-0000").glob("unit-*.h5")))
        if unit in gates:
            wanted = gates.pop(unit)
            if unit == 0:
                time.sleep(time.monotonic() - STARTED)
            deadline = time.monotonic() + GATE_S
            while len(list(shard.glob("unit-*.h5"))) < wanted and time.monotonic() < deadline:
                time.sleep(0.01)
        return original(self, packed)

    encoder.encode = encode


SPECIAL = {"poison": arm_poison, "straggler": arm_straggler}


def rows_of(packed):
    """Give the tokens of each sequence of a batch."""
    starts = packed.offsets.tolist()
    return [packed.tokens[a:b].numpy() for a, b in pairwise(starts)]


def run_rank(rank, *arguments):
    """Stand in for the product's own in a child."""
    mine = PLAN.get("rank") in (None, rank)
    if mine:
        arm()
    product(rank, *arguments)
    if mine and PLAN["point"] == "exit":
        fire()


if __name__ == "__main__":
    from virnucpro.cli.main import main

    sys.exit(main(sys.argv[2:]))
else:
    from virnucpro.pipeline.worker import rank_main

    product, rank_main.run_rank = rank_main.run_rank, run_rank
