"""Measure the overhead of a run over a bare loop that encodes the same rows in one process.

Both sides are processes with one thread. They use the same index, units, batches, encoders and
head; their scores must be equal. The bare loop opens an existing index and writes nothing. The run
is ``virnucpro predict`` with one CPU rank: it reads the sequences, supervises, sends heartbeats,
commits and verifies segments, and writes all tables. The sides alternate (run, bare, bare, run).

    python scripts/bench/overhead.py [--records 10000] [--turns 2]

CPU seconds are printed beside wall seconds: on a busy machine only CPU seconds are comparable.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import commands
import numpy as np

from virnucpro.run.manifest import read_manifest
from virnucpro.run_dir import RunDirectory

BARE_LOOP = Path(__file__).with_name("bare_loop.py")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")

_STOPS = {"TAA", "TAG", "TGA"}


def main() -> None:
    """Measure both sides in turns; print medians."""
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        fasta = write_records(folder / "input.fa", options.records, options.bases)
        run_once(fasta, folder / "first")  # fills the file cache and makes the index
        runs, bares = take_turns(folder, fasta, options.turns)
        print_comparison(RunDirectory(folder / "first"), runs, bares)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument(
        "--bases", type=int, default=480, help="of the longest record (%(default)s)"
    )
    parser.add_argument("--turns", type=int, default=2, help="of run, bare, bare, run")
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary one")
    return parser.parse_args()


def write_records(path: Path, n_records: int, bases: int) -> Path:
    """Write records of up to `bases` bases with one open frame each."""
    dice = random.Random(1)  # noqa: S311 - the same input each time
    codons = [codon for codon in map("".join, product("ACGT", repeat=3)) if codon not in _STOPS]
    with path.open("w") as stream:
        for number in range(n_records):
            n_codons = dice.randint(bases // 6, bases // 3)
            stream.write(f">r{number}\n{''.join(dice.choices(codons, k=n_codons))}\n")
    return path


def take_turns(
    folder: Path, fasta: Path, turns: int
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Measure both sides in an order that cancels out a drift of the machine."""
    runs, bares = [], []
    for turn in range(turns):
        runs.append(run_once(fasta, folder / f"run-{turn}-a"))
        bares += [bare_once(folder) for _ in range(2)]
        runs.append(run_once(fasta, folder / f"run-{turn}-b"))
        wall = [f"{one['wall']:.2f}" for one in (runs[-2], *bares[-2:], runs[-1])]
        print(f"turn {turn + 1}: run, bare, bare, run {', '.join(wall)} s", flush=True)
        check_scores(folder / f"run-{turn}-a", folder / "scores.npy")
        for side in "ab":
            shutil.rmtree(folder / f"run-{turn}-{side}")
    return runs, bares


def run_once(fasta: Path, outdir: Path) -> dict[str, float]:
    """Predict; return the seconds of all stages."""
    command = [sys.executable, "-m", "virnucpro", "predict", fasta, "-o", outdir, "--embeddings"]
    command += ["--devices", "cpu:1", "--threads", "1", "--quiet", "--bundle", "mini-deep"]
    seconds, _ = measured(command)
    run = RunDirectory(outdir)
    manifest = read_manifest(run)
    launch = manifest.launches[0]
    ranks, of_rank = launch.seconds["ranks"], launch.ranks["0"]["seconds"]
    load, loop = of_rank["load"], sum(of_rank.values()) - of_rank["load"]
    stages = {
        "load": load,
        "loop": loop,
        "rank's start and end": ranks - load - loop,
        "index": manifest.seconds["index"],
        "outputs": manifest.seconds["outputs"],
    }
    rest = seconds["wall"] - ranks - manifest.seconds["index"] - manifest.seconds["outputs"]
    return seconds | stages | {"coordinator's start and end": rest}


def bare_once(folder: Path) -> dict[str, float]:
    """Run the bare loop in a process of its own."""
    command = [sys.executable, BARE_LOOP, folder / "first", folder / "scores.npy"]
    seconds, output = measured(command)
    return seconds | json.loads(output)


def measured(command: Sequence[str | Path]) -> tuple[dict[str, float], bytes]:
    """Run a command on one thread; return its wall and CPU seconds, and its standard output."""
    os.sync()
    wall, cpu, output = commands.run(command, **ONE_THREAD)
    return {"wall": wall, "cpu": cpu}, output


def check_scores(outdir: Path, scores: Path) -> None:
    """Exit unless the scores of both sides are bitwise equal: their batches are the same."""
    from virnucpro.store.segment import read_segment  # noqa: PLC0415 - heavy, and not needed before

    stored = [read_segment(path).scores for _, path in RunDirectory(outdir).segments()]
    if not np.array_equal(np.concatenate(stored), np.load(scores)):
        sys.exit("the scores of run and bare loop differ: their times are not comparable")


def print_comparison(
    first: RunDirectory, runs: Sequence[Mapping[str, float]], bares: Sequence[Mapping[str, float]]
) -> None:
    """Print the median and the minimum of every stage on both sides."""
    size = first.embeddings.stat().st_size / 1e6
    print(f"{bares[0]['rows']:,.0f} rows, {size:,.1f} MB of embeddings, {len(runs)} times each")
    print(f"{'seconds':30}{'run':>8}{'least':>8}{'bare':>8}{'least':>8}{'ratio':>8}{'least':>8}")
    for stage in runs[0]:
        ours = [one[stage] for one in runs]
        line = f"{stage:30}{statistics.median(ours):8.2f}{min(ours):8.2f}"
        if stage in bares[0]:
            theirs = [one[stage] for one in bares]
            line += f"{statistics.median(theirs):8.2f}{min(theirs):8.2f}"
            line += f"{statistics.median(ours) / statistics.median(theirs):8.3f}"
            line += f"{min(ours) / min(theirs):8.3f}"
        print(line)


if __name__ == "__main__":
    main()
