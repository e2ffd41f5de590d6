"""Compare ``virnucpro embed --format pt`` with fair-esm's scripts/extract.py (esm-extract).

python scripts/bench/extract.py --script ESM_CHECKOUT/scripts/extract.py [--layers 6 --width 320]

Both compute the same FASTA with the same random checkpoint, in turns, with equal threads: numbers,
seconds, CPU seconds, peak memory of the process tree, and the work after a kill in the middle.

python scripts/bench/extract.py --residues 100000 10000000

Peak memory of vectors of all residues, for a small encoder: workers, and the writing of
embeddings.h5 by ``virnucpro aggregate``.
"""

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from commands import cpu_seconds
from esm.model.esm2 import ESM2

from virnucpro.run_dir import RunDirectory

RESIDUES = "LAGVSERTIDPKQNFYMHWC"
LONGEST = 1022


class Cost(NamedTuple):
    """Seconds, CPU seconds, and peak memory in MB of a process tree and of its largest process.

    Memory is the proportional set size.
    """

    seconds: float
    cpu: float
    peak: float
    largest: float


def main() -> None:
    """Measure what the options ask for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--script", type=Path, help="scripts/extract.py of facebookresearch/esm")
    parser.add_argument("--residues", type=int, nargs="+", default=[])
    parser.add_argument("--sequences", type=int, default=300)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        for residues in given.residues:
            measure_residues(Path(name), residues)
        if given.script:
            compare(Path(name), given)


def compare(folder: Path, given: argparse.Namespace) -> None:
    """Run both programs in turns on one FASTA, then kill each of them in the middle."""
    checkpoint, fasta = folder / "esm2_random.pt", folder / "proteins.faa"
    write_checkpoint(checkpoint, given.layers, given.width, 20)
    dice = random.Random(2)  # noqa: S311
    lengths = [dice.randint(30, LONGEST) for _ in range(given.sequences)]
    write_fasta(fasta, lengths)
    commands = {
        "esm-extract": lambda out: [
            *(sys.executable, given.script, checkpoint, fasta, out, "--include", "mean", "--nogpu")
        ],
        "virnucpro": lambda out: [
            *(sys.executable, "-m", "virnucpro", "embed", fasta, "-e", checkpoint, "-o", out),
            *("--embeddings", "fp32", "--format", "pt", "--devices", "cpu:1", "-q"),
        ],
    }
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(given.turns):
        for name, command in commands.items():
            out = folder / f"{name}-{turn}"
            costs[name].append(measured(command(out)))
    middle = {
        name: Cost(*(statistics.median(one) for one in zip(*found, strict=True)))
        for name, found in costs.items()
    }
    print(
        f"{given.sequences} sequences, {sum(lengths):,} residues, "
        f"{given.layers} layers of {given.width}"
    )
    for name, cost in middle.items():
        print(f"{name}: {cost.seconds:.1f} s, {cost.cpu:.1f} s of CPU, {cost.peak:.0f} MB")
    ratios = [a / b for a, b in zip(middle["esm-extract"], middle["virnucpro"], strict=True)]
    print("esm-extract / virnucpro: {:.2f} time, {:.2f} CPU, {:.2f} memory".format(*ratios[:3]))
    print(f"largest difference: {difference(folder / 'esm-extract-0', folder / 'virnucpro-0'):.2g}")
    for name, command in commands.items():
        total = len(results(folder / f"{name}-0"))
        kill_in_the_middle(name, command, folder / f"{name}-killed", (total, middle[name].cpu))


def kill_in_the_middle(
    name: str, command: Callable[[Path], Sequence[object]], out: Path, whole: tuple[int, float]
) -> None:
    """Kill a program when half of its results exist; print what its second run repeats.

    `whole` is the number of results and the CPU seconds of a whole run.
    """
    total, cpu = whole
    process = subprocess.Popen(
        [*map(str, command(out))], stdout=subprocess.DEVNULL, env=environment()
    )
    while process.poll() is None and len(results(out)) < total / 2:
        time.sleep(0.02)
    for pid in tree_of(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in results(out)}
    again = measured([*command(out), *(["--resume"] if name == "virnucpro" else [])])
    # Segments of a complete run are joined; their units were not computed again.
    repeated = sum(path.exists() and path.stat().st_mtime_ns != at for path, at in kept.items())
    print(
        f"{name}, killed with {len(kept)} of {total} results: {repeated} of them computed again; "
        f"the second run took {again.seconds:.1f} s, {again.cpu:.1f} s of CPU "
        f"({again.cpu / cpu:.0%} of a whole run)"
    )


def results(out: Path) -> list[Path]:
    """Return the files of results: .pt files, or segments of a run."""
    segments = [path for _, path in RunDirectory(out).segments()]
    return segments or [*out.glob("*.pt")]


def difference(one: Path, other: Path) -> float:
    """Return the largest difference of two folders of .pt files with equal names."""
    largest = 0.0
    names = sorted(path.name for path in one.glob("*.pt"))
    other = other / "embeddings.pt"
    assert names == sorted(path.name for path in other.glob("*.pt"))
    for name in names:
        left, right = (torch.load(folder / name) for folder in (one, other))
        assert left["label"] == right["label"]
        (a,), (b,) = (found["mean_representations"].items() for found in (left, right))
        assert a[0] == b[0]
        largest = max(largest, float((a[1] - b[1]).abs().max()))
    return largest


def measure_residues(folder: Path, residues: int) -> None:
    """Print the peak memory of a run with vectors of residues, and of writing its output again."""
    checkpoint, fasta, out = folder / "small.pt", folder / "residues.faa", folder / "run"
    write_checkpoint(checkpoint, 1, 64, 2)
    write_fasta(fasta, [500] * (residues // 500))
    run = ("embed", fasta, "-e", checkpoint, "-o", out, "--pooling", "none", "--devices", "cpu:1")
    cost = measured([sys.executable, "-m", "virnucpro", *run, "-q"])
    size = (out / "embeddings.h5").stat().st_size / 1e6
    again = measured([sys.executable, "-m", "virnucpro", "aggregate", out])
    print(
        f"{residues:,} residues, {size:,.1f} MB: run {cost.seconds:.1f} s, peak {cost.peak:.0f} MB "
        f"of all processes, {cost.largest:.0f} MB of one; aggregate {again.seconds:.1f} s, "
        f"peak {again.peak:.0f} MB"
    )
    shutil.rmtree(out)


def write_checkpoint(path: Path, layers: int, width: int, heads: int) -> None:
    """Save a random ESM-2 in fair-esm's format, with the file of its contact head."""
    torch.manual_seed(1)
    model = ESM2(layers, width, heads)
    state = model.state_dict()
    head = {name: tensor for name, tensor in state.items() if name.startswith("contact_head")}
    prefix = "encoder.sentence_encoder."
    renamed = {
        ("encoder." if name.startswith("lm_head") else prefix) + name: tensor
        for name, tensor in state.items()
        if name not in head
    }
    sizes = {"encoder_layers": layers, "encoder_embed_dim": width, "encoder_attention_heads": heads}
    settings = Namespace(arch="esm2", token_dropout=True, **sizes)
    torch.save({"cfg": {"model": settings}, "model": renamed}, path)
    torch.save({"model": head}, path.with_name(f"{path.stem}-contact-regression.pt"))


def write_fasta(path: Path, lengths: Sequence[int]) -> None:
    """Write random proteins."""
    dice = random.Random(3)  # noqa: S311
    with path.open("w") as stream:
        for number, length in enumerate(lengths):
            stream.write(f">p{number}\n{''.join(dice.choices(RESIDUES, k=length))}\n")


def measured(command: Sequence[object]) -> Cost:
    """Run a command; return its cost, of the process and all its descendants."""
    before, started = cpu_seconds(), time.perf_counter()
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, env=environment())
    peak = largest = 0
    while process.poll() is None:
        sizes = [memory_of(pid) for pid in tree_of(process.pid)]
        peak, largest = max(peak, sum(sizes)), max(largest, *sizes, 0)
        time.sleep(0.05)
    assert process.returncode == 0, command
    seconds, cpu = time.perf_counter() - started, cpu_seconds() - before
    return Cost(seconds, cpu, peak / 1e3, largest / 1e3)


def environment() -> dict[str, str]:
    """Return the environment of both programs; fair-esm's loader needs full pickles."""
    return os.environ | {
        "OMP_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
        "PYTHONWARNINGS": "ignore",
    }


def tree_of(pid: int) -> list[int]:
    """Return a process and its live descendants."""
    found = [pid]
    for parent in found:
        for thread in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, thread.read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def memory_of(pid: int) -> int:
    """Return the proportional set size of a process in kB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return int(text.partition("\nPss:")[2].split()[0]) if "\nPss:" in text else 0


if __name__ == "__main__":
    main()
