"""Measure how well `predict` finds viral stretches: pieces of phages inserted into bacteria.

Hosts give pieces of 100,000 bases. Each gets no insert, or a piece of a tailed phage (or a whole
phage), at a random place and strand. `virnucpro predict` divides them, and its regions.tsv is
compared with the truth. Whole phages without a host should not be divided. Rivals are computed from
the same window scores: maximal-scoring segments (Ruzzo and Tompa 1999), and each window by itself.

With --curated, also a genome with a table of its prophages (accession, start, end; 1-based), with
--viruses whole viruses, which should stay whole, and with --hosts sequences without viruses.

Regions of phage_like_regions.bed are neither viral nor non-viral here. Other prophages of the hosts
are not marked and count as errors. Intervals: bootstrap over hosts and phages at once.

    python scripts/bench/regions.py --genomes ../shared/genomes --genomes ../shared/genomes-2 \
        [--split valid] [--bundle mini] [--figure docs/images/regions.png]
        [--curated GENOME.fna PROPHAGES.tsv] [--viruses FASTA] [--hosts FASTA]
"""

import argparse
import csv
import gzip
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from virnucpro.classifier.regions import evidence_of, window_log_odds
from virnucpro.run.calls import call_run, survey_segments
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import reopened
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.translation import reverse_complement

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Spans = list[tuple[int, int]]
"""Regions of one record: 0-based, half open."""

PIECE = 100_000
MARGIN = 10_000
"""Least host bases on either side of an insert."""
LENGTHS: Mapping[str, int] = {"5 kb": 5000, "10 kb": 10_000, "20 kb": 20_000, "40 kb": 40_000}
WHOLE, NONE = "whole phage", "no insert"
WHOLE_BASES = range(20_000, 70_001)
CLASSES = (*LENGTHS, WHOLE, NONE)
DRAWS = 1000
SEGMENT_LEAST = 10.0
"""Least log-odds of a segment: about as many errors as two states (decision 0063)."""
PRODUCT, SEGMENTS, WINDOWS = METHODS = ("two states", "maximal segments", "single windows")
COLOURS = {PRODUCT: "#0072B2", SEGMENTS: "#D55E00", WINDOWS: "#999999"}
Table = dict[tuple[str, str], dict[str, tuple[float, float, float]]]
"""Figure, lower and upper limit of its interval, by method and class, then name."""


@dataclass(frozen=True)
class Genome:
    """Records of a genome, upper case."""

    name: str
    records: Mapping[str, bytes]


@dataclass(frozen=True)
class Chimera:
    """A host piece with the insert `start` to `end` (0-based, half open; equal without one).

    `masked` is true for bases that are left out of the figures.
    """

    name: str
    kind: str
    host: str
    phage: str
    bases: bytes
    start: int
    end: int
    masked: BoolArray


def genomes_of(folders: Sequence[Path], names: set[str] | None, split: str) -> Iterator[Genome]:
    """Yield bacteria and tailed phages of a split, or those with the given names."""
    for folder in folders:
        with (folder / "genomes.tsv").open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))
        for row in rows:
            chosen = row["split"] == split if names is None else row["id"] in names
            if chosen and (row["group"] == "bacteria" or row["realm"] == "Duplodnaviria"):
                path = folder / row["group"] / f"{row['id']}.fa.gz"
                parts = gzip.decompress(path.read_bytes()).split(b">")[1:]
                pairs = (part.partition(b"\n") for part in parts)
                yield Genome(
                    row["id"],
                    {
                        head.split()[0].decode(): body.replace(b"\n", b"").upper()
                        for head, _, body in pairs
                    },
                )


def chimeras(
    genomes: Sequence[Genome], masked: Mapping[str, Spans], repeats: int, seed: int
) -> Iterator[Chimera]:
    """Yield `repeats` chimeras of each class for each host with a record of 100,000 bases."""
    dice = np.random.default_rng(seed)
    hosts = [one for one in genomes if max(map(len, one.records.values())) >= PIECE]
    hosts = [one for one in hosts if not one.name.startswith("VIR")]
    phages = [one for one in genomes if one.name.startswith("VIR")]
    for host in hosts:
        places = [name for name, bases in host.records.items() if len(bases) >= PIECE]
        for number in range(repeats * len(CLASSES)):
            kind = CLASSES[number % len(CLASSES)]
            record = places[dice.integers(len(places))]
            begin = int(dice.integers(len(host.records[record]) - PIECE + 1))
            piece = host.records[record][begin : begin + PIECE]
            mask = np.zeros(PIECE, np.bool_)
            for low, high in masked.get(record, []):
                mask[max(0, low - begin) : max(0, high - begin)] = True
            phage, insert = _insert(phages, kind, dice)
            at = int(dice.integers(MARGIN, PIECE - MARGIN))
            yield Chimera(
                f"{host.name}|{number}",
                kind,
                host.name,
                phage,
                piece[:at] + insert + piece[at:],
                at,
                at + len(insert),
                np.concatenate([mask[:at], np.zeros(len(insert), np.bool_), mask[at:]]),
            )


def _insert(phages: Sequence[Genome], kind: str, dice: np.random.Generator) -> tuple[str, bytes]:
    if kind == NONE:
        return "", b""
    whole = {one.name: max(one.records.values(), key=len) for one in phages}
    fits = WHOLE_BASES if kind == WHOLE else range(LENGTHS[kind], 1 << 30)
    names = sorted(name for name, bases in whole.items() if len(bases) in fits)
    name = names[dice.integers(len(names))]
    bases = whole[name]
    if kind != WHOLE:
        start = int(dice.integers(len(bases) - LENGTHS[kind] + 1))
        bases = bases[start : start + LENGTHS[kind]]
    return name, reverse_complement(bases) if dice.random() < 0.5 else bases


def predicted(run: RunDirectory, names: Sequence[str]) -> dict[str, dict[str, Spans]]:
    """Return the viral stretches of each record by method, from regions.tsv and from the scores."""
    found: dict[str, dict[str, Spans]] = {
        method: {name: [] for name in names} for method in METHODS
    }
    with run.regions.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            if row["state"] == "viral":
                found[PRODUCT][row["seq_name"]].append((int(row["start"]) - 1, int(row["end"])))
    with reopened(run) as opened:
        scores = call_run(opened, survey_segments(opened, Reporter()))
        index, windows, calibration = scores.index, scores.windows, scores.calibration
        calls = windows.block(0, index.n_windows)
        lengths = index.window_ends - index.window_starts
        odds = window_log_odds(calls, lengths, calibration, slice(None))
        evidence = evidence_of(odds, index.record_first_window)
        for record, name in enumerate(names):
            low, high = index.record_first_window[record : record + 2].tolist()
            starts, ends = (
                index.window_starts[low:high].tolist(),
                index.window_ends[low:high].tolist(),
            )
            own = evidence[low:high]
            found[SEGMENTS][name] = [
                (starts[a], ends[b - 1])
                for a, b, total in maximal_segments(own.tolist())
                if total >= SEGMENT_LEAST * 1000
            ]
            found[WINDOWS][name] = [(starts[n], ends[n]) for n in np.flatnonzero(own > 0).tolist()]
    return found


def maximal_segments(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return start, end and sum of all maximal-scoring segments (Ruzzo and Tompa 1999)."""
    kept: list[tuple[int, int, int, int]] = []
    total = 0
    for place, value in enumerate(values):
        left, total = total, total + value
        if value <= 0:
            continue
        start, right = place, total
        while True:
            lower = next((n for n in reversed(range(len(kept))) if kept[n][2] < left), None)
            if lower is None or kept[lower][3] >= right:
                kept.append((start, place + 1, left, right))
                break
            start, left = kept[lower][0], kept[lower][2]
            del kept[lower:]
    return [(start, end, right - left) for start, end, left, right in kept]


@dataclass(frozen=True)
class Outcome:
    """Bases of one chimera: found in the insert, of the insert, found outside, outside.

    `false` is the number of stretches that touch no insert, `errors` has the distance of both ends
    of the insert to those of the stretch with the largest overlap, if half of the insert is found.
    """

    chimera: Chimera
    hit: int
    insert: int
    wrong: int
    host: int
    false: int
    errors: tuple[int, ...]

    @property
    def found(self) -> bool:
        """Return whether half of the insert is found."""
        return self.insert > 0 and 2 * self.hit >= self.insert


def outcome(chimera: Chimera, spans: Spans) -> Outcome:
    """Compare the stretches of a chimera with the truth."""
    viral = np.zeros(len(chimera.bases), np.bool_)
    for low, high in spans:
        viral[low:high] = True
    inside = np.zeros(len(viral), np.bool_)
    inside[chimera.start : chimera.end] = True
    outside = ~inside & ~chimera.masked
    hit, insert = int(viral[inside].sum()), int(inside.sum())
    touching = [one for one in spans if one[0] < chimera.end and one[1] > chimera.start]
    errors: tuple[int, ...] = ()
    if insert and 2 * hit >= insert:
        low, high = max(
            touching, key=lambda one: min(one[1], chimera.end) - max(one[0], chimera.start)
        )
        errors = (abs(low - chimera.start), abs(high - chimera.end))
    false = [one for one in spans if one not in touching and outside[one[0] : one[1]].any()]
    return Outcome(
        chimera, hit, insert, int(viral[outside].sum()), int(outside.sum()), len(false), errors
    )


Figure = Callable[[Sequence[Outcome], IntArray], float]


def _share(part: FloatArray, whole: FloatArray) -> float:
    return float(part.sum() / whole.sum()) if whole.sum() else float("nan")


def _precision(outcomes: Sequence[Outcome], times: IntArray) -> float:
    hit = times * np.array([one.hit for one in outcomes])
    return _share(hit, hit + times * np.array([one.wrong for one in outcomes]))


def _recall(outcomes: Sequence[Outcome], times: IntArray) -> float:
    return _share(
        times * np.array([one.hit for one in outcomes]),
        times * np.array([one.insert for one in outcomes]),
    )


def _found(outcomes: Sequence[Outcome], times: IntArray) -> float:
    return _share(times * np.array([one.found for one in outcomes]), times.astype(np.float64))


def _error(outcomes: Sequence[Outcome], times: IntArray) -> float:
    pairs = zip(outcomes, times.tolist(), strict=True)
    values = [error for one, number in pairs for error in one.errors * number]
    return float(np.median(values)) if values else float("nan")


def _false(outcomes: Sequence[Outcome], times: IntArray) -> float:
    return 1e6 * _share(
        times * np.array([one.false for one in outcomes]),
        times * np.array([one.host for one in outcomes]),
    )


def _false_bases(outcomes: Sequence[Outcome], times: IntArray) -> float:
    return _share(
        times * np.array([one.wrong for one in outcomes]),
        times * np.array([one.host for one in outcomes]),
    )


COLUMNS: Mapping[str, Figure] = {
    "precision": _precision,
    "recall": _recall,
    "found": _found,
    "boundary_error": _error,
}


def interval(figure: Figure, outcomes: Sequence[Outcome], seed: int) -> tuple[float, float, float]:
    """Return a figure and its 95 % interval; hosts and phages are drawn with replacement."""
    dice = np.random.default_rng(seed)
    sides = [
        np.unique([getattr(one.chimera, side) for one in outcomes], return_inverse=True)
        for side in ("host", "phage")
    ]
    values = []
    for _ in range(DRAWS):
        times = np.ones(len(outcomes), np.int64)
        for names, number in sides:
            drawn = dice.integers(len(names), size=len(names))
            times *= np.bincount(drawn, minlength=len(names))[number]
        values.append(figure(outcomes, times))
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return figure(outcomes, np.ones(len(outcomes), np.int64)), float(low), float(high)


def report(outcomes: Mapping[str, Sequence[Outcome]], seed: int) -> Table:
    """Print the figures of all methods and classes, and return them."""
    table: Table = {}
    print("method\tinsert\tchimeras\tprecision\trecall\tfound\tboundary_error")
    for method, all_of_it in outcomes.items():
        for kind in (*LENGTHS, WHOLE):
            some = [one for one in all_of_it if one.chimera.kind == kind]
            cells = [interval(figure, some, seed) for figure in COLUMNS.values()]
            table[method, kind] = dict(zip(COLUMNS, cells, strict=True))
            shown = [_cell(*cell, 2) for cell in cells[:-1]] + [_cell(*cells[-1], 0)]
            print("\t".join([method, kind, str(len(some)), *shown]))
    print("\nmethod\tfalse stretches per Mb of host\tshare of host bases\tof pieces without insert")
    for method, all_of_it in outcomes.items():
        bare = [one for one in all_of_it if one.chimera.kind == NONE]
        touched = np.mean([one.false > 0 for one in bare])
        rates = [_cell(*interval(figure, all_of_it, seed), 3) for figure in (_false, _false_bases)]
        print("\t".join([method, *rates, f"{touched:.2f}"]))
    print("\nhost\tfalse stretches per Mb\tshare of host bases")
    by_host = defaultdict(list)
    for one in outcomes[PRODUCT]:
        by_host[one.chimera.host].append(one)
    for host, some in by_host.items():
        times = np.ones(len(some), np.int64)
        print(f"{host}\t{_false(some, times):.2f}\t{_false_bases(some, times):.3f}")
    return table


def whole_phages(genomes: Sequence[Genome]) -> dict[str, bytes]:
    """Return the longest record of each phage."""
    phages = [one for one in genomes if one.name.startswith("VIR")]
    return {one.name: max(one.records.values(), key=len) for one in phages}


def report_whole(spans: Mapping[str, Mapping[str, Spans]], phages: Mapping[str, bytes]) -> None:
    """Print which share of whole phages is divided, and which is viral from end to end."""
    print(
        f"\nmethod\tof {len(phages)} whole phages: viral from end to end\tof both kinds\tnon-viral"
    )
    for method, found in spans.items():
        kinds = np.zeros(3, np.int64)
        for name, bases in phages.items():
            viral = np.zeros(len(bases), np.bool_)
            for low, high in found[name]:
                viral[low:high] = True
            kinds[0 if viral.all() else 1 if viral.any() else 2] += 1
        print("\t".join([method, *(f"{number / len(phages):.2f}" for number in kinds)]))


def _cell(value: float, low: float, high: float, digits: int) -> str:
    return f"{value:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def draw(path: Path, table: Table) -> None:
    """Draw precision, recall, found inserts and boundary error by class."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    kinds = (*LENGTHS, WHOLE)
    titles = {
        "precision": "Base precision (100 kb of host)",
        "recall": "Base recall",
        "found": "Inserts found (half of the bases)",
        "boundary_error": "Median boundary error (bases)",
    }
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.8), layout="constrained")
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        for shift, (method, colour) in enumerate(COLOURS.items()):
            cells = np.array([table[method, kind][name] for kind in kinds])
            bars = np.abs(cells[:, 1:] - cells[:, :1]).T
            at = np.arange(len(kinds)) + 0.16 * (shift - 1)
            axis.errorbar(at, cells[:, 0], bars, fmt="o", color=colour, label=method, capsize=2)
        axis.set_xticks(range(len(kinds)), kinds, rotation=25)
        axis.set_title(title, fontsize=10)
        axis.grid(axis="y", alpha=0.3)
        if name == "boundary_error":
            axis.set_yscale("log")
            axis.set_ylim(50, 50_000)
        else:
            axis.set_ylim(0, 1.02)
    axes[0].legend(fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


Region = tuple[int, int, bool]
"""First base, from 0, last base, exclusive, and whether the state is viral."""


def regions_of(fasta: Path, bundle: str) -> tuple[dict[str, str], dict[str, list[Region]]]:
    """Return calls and stretches of the sequences of a file."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        command = [sys.executable, "-m", "virnucpro", "predict", fasta, "-o", run.root, "-q"]
        subprocess.run([*command, "--bundle", bundle, "--no-report"], check=True)
        with run.predictions.open(newline="", encoding="utf-8") as stream:
            calls = {row["seq_name"]: row["call"] for row in csv.DictReader(stream, delimiter="\t")}
        found = defaultdict(list)
        with run.regions.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream, delimiter="\t"):
                place = int(row["start"]) - 1, int(row["end"]), row["state"] == "viral"
                found[row["seq_name"]].append(place)
    return calls, found


def report_curated(fasta: Path, table: Path, bundle: str) -> None:
    """Print how many curated prophages are at least half covered, base recall and precision."""
    _, found = regions_of(fasta, bundle)
    truth = defaultdict(list)
    with table.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            truth[row["accession"]].append((int(row["start"]) - 1, int(row["end"])))
    covered = hit = viral_bases = 0
    for name, regions in found.items():
        viral = np.zeros(max(end for _, end, _ in regions), np.bool_)
        for low, high, is_viral in regions:
            viral[low:high] = is_viral
        inserts = truth[name.partition(".")[0]]
        covered += sum(2 * viral[low:high].sum() >= high - low for low, high in inserts)
        hit += sum(int(viral[low:high].sum()) for low, high in inserts)
        viral_bases += int(viral.sum())
    n, n_bases = sum(map(len, truth.values())), sum(b - a for v in truth.values() for a, b in v)
    print(
        f"\n{fasta.name}: {covered} of {n} prophages half covered, base recall "
        f"{hit / n_bases:.2f}, precision {hit / max(viral_bases, 1):.2f}"
    )


def report_viruses(fasta: Path, bundle: str) -> None:
    """Print which share of the bases of viruses called viral is kept."""
    calls, found = regions_of(fasta, bundle)
    viral = {name: found[name] for name, call in calls.items() if call == "viral" and found[name]}
    cut = {name: sum(b - a for a, b, kept in one if not kept) for name, one in viral.items()}
    total = sum(b - a for one in viral.values() for a, b, _ in one)
    print(
        f"\n{fasta.name}: {len(viral)} viruses with stretches, {sum(map(bool, cut.values()))} cut, "
        f"{1 - sum(cut.values()) / max(total, 1):.4f} of the bases kept"
    )


def report_hosts(fasta: Path, masked: Mapping[str, Spans], bundle: str) -> None:
    """Print viral stretches per Mb; without those of which 30 % are known phage-like regions."""
    calls, found = regions_of(fasta, bundle)
    false = [
        high - low
        for name, regions in found.items()
        for low, high, viral in regions
        if viral and calls[name] != "viral"
        if not any(min(high, b) - max(low, a) > 0.3 * (high - low) for a, b in masked.get(name, []))
    ]
    total = sum(max(b for _, b, _ in regions) for regions in found.values())
    print(
        f"\n{fasta.name}: {1e6 * len(false) / max(total, 1):.2f} viral stretches per Mb of "
        f"sequences that are not viral, longest {max(false, default=0):,} bases, "
        f"{sum(length > 40_000 for length in false)} above 40 kb; "
        f"{sum(call == 'viral' for call in calls.values())} of {len(calls)} sequences viral"
    )


def main() -> None:
    """Make the chimeras, predict them, print and draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--genomes", type=Path, action="append", required=True, metavar="DIR")
    parser.add_argument("--split", default="valid", help="default: valid")
    text = "file with the names of the genomes, one a line; default: all of the split"
    parser.add_argument("--names", type=Path, metavar="FILE", help=text)
    parser.add_argument("--bundle", default="mini", help="default: mini")
    parser.add_argument("--repeats", type=int, default=4, help="chimeras of each host and class")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--figure", type=Path, metavar="PNG")
    parser.add_argument("--curated", type=Path, nargs=2, metavar=("FASTA", "TSV"))
    parser.add_argument("--viruses", type=Path, action="append", default=[], metavar="FASTA")
    parser.add_argument("--hosts", type=Path, action="append", default=[], metavar="FASTA")
    text = "further phage-like regions: columns name, record, start, end"
    parser.add_argument("--exclude", type=Path, action="append", default=[], help=text)
    given = parser.parse_args()
    names = set(given.names.read_text().split()) if given.names else None
    beds = [folder / "phage_like_regions.bed" for folder in given.genomes]
    masked: dict[str, Spans] = {}
    for bed in filter(Path.exists, beds + given.exclude):
        rows = (line.split("\t") for line in bed.read_text().splitlines())
        for _, record, low, high in rows:
            masked.setdefault(record, []).append((int(low), int(high)))
    genomes = list(genomes_of(given.genomes, names, given.split))
    made = list(chimeras(genomes, masked, given.repeats, given.seed))
    hosts, phages = {one.host for one in made}, {one.phage for one in made} - {""}
    bases = sum(len(one.bases) for one in made)
    left_out = sum(int(one.masked.sum()) for one in made)
    print(
        f"{len(made)} chimeras, {bases:,} bases, {len(hosts)} hosts, {len(phages)} phages; "
        f"{left_out:,} bases of known phage-like regions left out",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        fasta, run = Path(folder) / "chimeras.fa", RunDirectory(Path(folder) / "run")
        entries = {one.name: one.bases for one in made} | whole_phages(genomes)
        fasta.write_bytes(b"".join(b">%s\n%s\n" % (n.encode(), b) for n, b in entries.items()))
        command = [sys.executable, "-m", "virnucpro", "predict", fasta, "-o", run.root, "-q"]
        subprocess.run([*command, "--bundle", given.bundle], check=True)
        spans = predicted(run, list(entries))
    outcomes = {
        method: [outcome(one, found[one.name]) for one in made] for method, found in spans.items()
    }
    table = report(outcomes, given.seed)
    report_whole(spans, whole_phages(genomes))
    if given.curated:
        report_curated(*given.curated, given.bundle)
    for fasta in given.viruses:
        report_viruses(fasta, given.bundle)
    for fasta in given.hosts:
        report_hosts(fasta, masked, given.bundle)
    if given.figure:
        draw(given.figure, table)


if __name__ == "__main__":
    main()
