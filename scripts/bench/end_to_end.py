"""Measure the share of a whole `virnucpro predict` that its ranks spend in the encoders.

Predicts genomes of ../shared/genomes (or VIRNUCPRO_SHARED), of all groups, up to a number of bases,
in a process of its own. The stages are those that the ranks report in run.json, as means over the
ranks; together with the coordinator's stages they add up to the wall time. The time in the encoders
is that of the stages tokenise and encode.

    python scripts/bench/end_to_end.py [--megabases 5] [--devices cpu:1] [--threads 1] [--repeats 1]

Targets on a CPU: bundle mini-deep, at least 85 % of 5 Mb; bundle mini, at least 2 Mb/s per core
from FASTA to tables, start of the command included (50 Mb). On a busy machine compare several
repeats. The bytecode is compiled first, as by an installation. On a GPU see scripts/gpu_check.sh.
"""

import argparse
import compileall
import csv
import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import commands

import virnucpro
from virnucpro.run.manifest import read_manifest
from virnucpro.run_dir import RunDirectory

SHARED = Path(os.environ.get("VIRNUCPRO_SHARED", Path(__file__).parents[3] / "shared"))
INSIDE = ("tokenise", "encode")


def main() -> None:
    """Predict; print the seconds and the share of each stage."""
    options = _options()
    inputs = genomes(SHARED / "genomes", options.megabases * 1e6)
    how = ["--devices", options.devices, "--bundle", options.bundle]
    how += ["--embeddings", options.embeddings]
    if options.threads is not None:
        how += ["--threads", str(options.threads)]
    compileall.compile_dir(Path(virnucpro.__file__).parent, quiet=1)
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            print_shares(predict(inputs, Path(name) / "run", how))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabases", type=float, default=5.0)
    parser.add_argument("--devices", default="auto", help="default: %(default)s")
    parser.add_argument("--threads", type=int, help="of all ranks; default: all CPUs")
    parser.add_argument("--bundle", default="mini", help="default: %(default)s")
    parser.add_argument("--embeddings", default="none", help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary one")
    return parser.parse_args()


def genomes(folder: Path, bases: float) -> list[Path]:
    """Choose genomes in a fixed random order until they have `bases` bases together."""
    with (folder / "genomes.tsv").open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    random.Random(1).shuffle(rows)  # noqa: S311 - the same choice each time
    chosen, total = [], 0.0
    for row in rows:
        if total < bases:
            chosen.append(folder / row["group"] / f"{row['id']}.fa.gz")
            total += int(row["length"])
    return chosen


def predict(inputs: Sequence[Path], outdir: Path, how: Sequence[str]) -> dict[str, float]:
    """Run the command; return the seconds of the whole and of each stage."""
    command = [sys.executable, "-m", "virnucpro", "predict", *inputs, "-o", outdir, "--quiet"]
    wall, cpu, _ = commands.run([*command, *how])
    run = RunDirectory(outdir)
    n_bases = sum(file.n_bases for file in read_manifest(run).inputs)
    cores = len(read_manifest(run).launches[0].ranks)
    print(
        f"{n_bases / 1e6:.1f} Mb: {n_bases / 1e6 / wall / cores:.2f} Mb/s per worker, "
        f"{n_bases / 1e6 / cpu:.2f} Mb per CPU second of the whole command"
    )
    return {"wall": wall} | stages_of(run, wall)


def stages_of(run: RunDirectory, wall: float) -> dict[str, float]:
    """Return the seconds of all stages in run.json; they add up to `wall`."""
    manifest = read_manifest(run)
    (launch,) = manifest.launches
    ranks = [record["seconds"] for record in launch.ranks.values()]
    means = {
        stage: sum(one.get(stage, 0.0) for one in ranks) / len(ranks)
        for stage in dict.fromkeys(stage for one in ranks for stage in one)
    }
    coordinator = manifest.seconds["index"] + launch.seconds["ranks"] + manifest.seconds["outputs"]
    return {
        "start and end of the command": wall - coordinator,
        "index": manifest.seconds["index"],
        **{f"ranks: {stage}": seconds for stage, seconds in means.items()},
        "ranks: start, end, waiting": launch.seconds["ranks"] - sum(means.values()),
        "outputs": manifest.seconds["outputs"],
    }


def print_shares(seconds: Mapping[str, float]) -> None:
    """Print the seconds of each stage and its share of the wall time."""
    wall = seconds["wall"]
    for stage, spent in seconds.items():
        print(f"{stage:30}{spent:9.2f} s{spent / wall:8.1%}")
    inside = sum(seconds[f"ranks: {stage}"] for stage in INSIDE)
    print(f"{'inside the encoders':30}{inside:9.2f} s{inside / wall:8.1%}")


if __name__ == "__main__":
    main()
