"""Run the command line with a rank that fails at a chosen point: ``faulty.py PLAN ARGUMENT ...``.

PLAN is JSON: ``point`` (load, batch, unit, flap, head, commit, rename, exit, poison, tokens, or
straggler), ``how``, ``rank`` (null for any), ``times`` (null for always), ``fired`` (a file
that counts failures), ``poison`` (sequences that kill encoder or tokeniser), ``shard`` and
``segments`` (see `arm_straggler`). Spawned ranks import this file as their main script, and install
the failures then.
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
        before(row_embedder, "unstorable_rows")
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
    poisonous = set()

    def tokenise(self, sequences):
        tokens = original(self, sequences)
        for sequence, ids in zip(sequences, tokens, strict=True):
            if self.view == "protein" and sequence.decode() in PLAN["poison"]:
                poisonous.add(ids.tobytes())
        return tokens

    encoder.tokenise = tokenise
    before(
        encoder, "encode", lambda _, packed: not poisonous.isdisjoint(map(bytes, rows_of(packed)))
    )


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
    """Return the tokens of each sequence of a batch."""
    starts = packed.offsets.tolist()
    return [packed.tokens[a:b].numpy() for a, b in pairwise(starts)]


def run_rank(rank, *arguments):
    """Replace `rank_main.run_rank` in a child."""
    has_plan = PLAN.get("rank") in (None, rank)
    if has_plan:
        arm()
    original_run_rank(rank, *arguments)
    if has_plan and PLAN["point"] == "exit":
        fire()


if __name__ == "__main__":
    from virnucpro.cli.main import main

    sys.exit(main(sys.argv[2:]))
else:
    from virnucpro.pipeline.worker import rank_main

    original_run_rank, rank_main.run_rank = rank_main.run_rank, run_rank
