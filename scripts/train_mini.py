"""Train the embedded bundle `mini` again: labels from genomes.tsv, then ``virnucpro train``.

    python scripts/train_mini.py --genomes ../shared/genomes --genomes ../shared/genomes-2
        --genomes ../shared/genomes-3 --genomes ../shared/genomes-4 --genomes ../shared/genomes-5
        --out OUT

OUT/labels.tsv and OUT/exclude.bed are the inputs of ``virnucpro train``, and OUT/training/bundle is
the bundle. The same genomes, seed, versions and kind of processor give the same bundle. All genomes
of the splits `train` and `valid` are for training: the figures come from the cross-validations.
Each folder of genomes has a genomes.tsv, and may have a phage_like_regions.bed of regions to leave
out. mini_prophages.bed, beside this script, has prophages that a first round found in prokaryotes:

    virnucpro predict PROKARYOTES -b OUT/training/bundle --prevalence .05 -o RUN
    python scripts/train_mini.py --mark RUN [RUN ...]

Files with many genomes are divided into OUT/genomes; long open frames of hosts, and random
sequences, are written there, too. When the bundle
is in virnucpro/bundles/mini, ``python scripts/golden_figures.py mini`` records its scores.

Windows are encoded by the embedded bundle. Where the evidence of genes has a new version, that
bundle is refused: first delete ``record``, and ``records`` of ``calibration``, in its bundle.json.
"""

import argparse
import csv
import gzip
import subprocess
import sys
from bisect import bisect
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from virnucpro.lab.evaluation.input_table import Excluded, read_regions
from virnucpro.sequences.records import read_records
from virnucpro.sequences.translation import reverse_complement

SMALL_PHAGES = {
    "Microviridae", "Inoviridae", "Leviviridae", "Cystoviridae", "Fiersviridae", "Steitzviridae",
    "Duinviridae", "Paulinoviridae", "Finnlakeviridae", "Atkinsviridae", "Solspiviridae",
    "Blumeviridae",
}  # fmt: skip
RNA_VIRUSES = {
    "Phenuiviridae", "Flaviviridae", "Coronaviridae", "Alphaflexiviridae", "Sedoreoviridae",
    "Retroviridae", "Picornaviridae",
}  # fmt: skip
SMALL_DNA_VIRUSES = {
    "Parvoviridae", "Papillomaviridae", "Polyomaviridae", "Circoviridae", "Geminiviridae",
}  # fmt: skip
"""Families of the collection without a column of realms."""
REALMS = {
    "Riboviria": "rna_virus",
    "Ribozyviria": "rna_virus",
    "Duplodnaviria": "tailed_phage",
    "Monodnaviria": "small_dna_virus",
}
SHUFFLED = "shuffled"
"""Kingdom and class of random sequences: without them, one of two is taken for a virus."""
CHAINS = (0, 1, 1, 2, 2)
"""Orders of the Markov chains of a group of random sequences."""
SHUFFLED_SHARE, SHUFFLED_BASES = 20, 40_000
"""Training groups for each group of random sequences, and bases of a sequence."""
OTHERS = ("archaea", "bacteria", "organelle", "plasmid", SHUFFLED, "transcript")
"""Kingdoms that are a class of their own; the others are of the class eukaryote."""
SPLITS = ("train", "valid")
"""Splits whose genomes are for training; other rows have doubtful labels, or none."""
LEFT_OUT = ("isolate", "synthetic")
"""Groups of rows without a label: isolates have prophages, vectors have pieces of viruses."""
CODING = "coding"
"""Kingdom of coding sequences: open frames of `LEAST_CODING` bases or more, with start and stop."""
CODING_OF = {
    "fungi": "transcript", "protozoa": "transcript", "invertebrate": "transcript",
    "plant": "transcript", "vertebrate": "transcript", "bacteria": "bacteria", "archaea": "archaea",
}  # fmt: skip
"""Kingdoms whose open frames are cut out, and the class of these."""
LEAST_CODING, MOST_CODING, SEARCHED = 909, 60, 400_000
"""Shortest coding sequence, sequences of a genus, and bases of a genome that are searched."""
PROPHAGES = Path(__file__).parent / "mini_prophages.bed"
"""Prophages in the genomes of prokaryotes: record, start, end."""
LEAST_PROPHAGE = 10_000
NOTES = Path(__file__).parent / "mini_notes.md"
"""Limits of the bundle, for its card."""
COLUMNS = ("file", "label", "group", "split", "kingdom", "class")
DESCRIPTION = "composition of windows and genes of records, trained on public genomes"


def main(argv: Sequence[str] | None = None) -> int:
    """Write labels and regions, then train; return the exit code of the training."""
    arguments, options = _parser().parse_known_args(argv)
    if arguments.mark:
        mark_prophages(arguments.mark)
        return 0
    if not (arguments.genomes and arguments.out):
        _parser().error("--genomes and --out are needed")
    arguments.out.mkdir(parents=True, exist_ok=True)
    labels, regions = arguments.out / "labels.tsv", arguments.out / "exclude.bed"
    folders = [folder.resolve() for folder in arguments.genomes]
    write_regions(regions, folders)
    write_labels(labels, folders, regions)
    command = [sys.executable, "-m", "virnucpro", "train", "--labels", labels, "--exclude", regions]
    command += ["-o", arguments.out / "training", "--name", "mini", "--bundle-version", "4.0.0"]
    command += ["--description", DESCRIPTION, "--notes", NOTES]
    command += ["--lengths", "300-1250", "--label-smoothing", "0.02", "--draws", "300000"]
    # Two contigs contain a phage, two plasmids of different genera are nearly equal, and a human
    # transcript is that of an endogenous retrovirus.
    command += ["--allow-similar"]
    return subprocess.run([*map(str, command), *options], check=False).returncode


def write_labels(path: Path, folders: Sequence[Path], regions: Path | None = None) -> None:
    """Write the table of labels of all genomes, and the genomes that share a file as files."""
    excluded = read_regions(regions) if regions else {}
    rows = [(folder, row) for folder in folders for row in _rows(folder)]
    rows = [(folder, row) for folder, row in rows if row["split"] in SPLITS]
    rows = [(folder, row) for folder, row in rows if row["group"] not in LEFT_OUT]
    out = path.parent / "genomes"
    labelled = [_labelled(folder, row, out) for folder, row in rows]
    for folder in folders:
        _divide(folder, out)
    labelled += write_shuffled(labelled, out) + write_coding(labelled, excluded, out)
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, COLUMNS, delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(labelled)


def write_shuffled(rows: Sequence[Mapping[str, str]], out: Path) -> list[dict[str, str]]:
    """Write random sequences with the composition of training genomes; return their labels.

    Each is a Markov chain with the transitions of the longest record of a genome. The genomes are
    of different groups, of viruses and of others in turn.
    """
    dice = np.random.default_rng(1)
    of_group = {row["group"]: row for row in rows}.values()
    sides = [
        dice.permutation([row["file"] for row in of_group if row["label"] == label])
        for label in ("viral", "non-viral")
    ]
    found = []
    for number in range(len(of_group) // SHUFFLED_SHARE * len(CHAINS)):
        files = sides[number % 2]
        records = read_records(files[number // 2 % len(files)])
        model = max((one.sequence for one in records), key=len)
        path = out / f"shuffled-{number + 1}.fa"
        bases = _chain(model, CHAINS[number % len(CHAINS)], dice)
        path.write_bytes(b">%b\n%b\n" % (path.stem.encode(), bases))
        labels = {"label": "non-viral", "split": "train", "kingdom": SHUFFLED, "class": SHUFFLED}
        group = f"{SHUFFLED}-{number // len(CHAINS) + 1}"
        found.append({"file": str(path), "group": group, **labels})
    return found


def write_coding(
    rows: Sequence[Mapping[str, str]], excluded: Excluded, out: Path
) -> list[dict[str, str]]:
    """Write long open frames of hosts, each as a record, a file for each genus; return the labels.

    A record that is one coding sequence occurs among the viruses; so it must among the others.
    """
    hosts: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["kingdom"] in CODING_OF:
            hosts.setdefault((row["kingdom"], row["group"]), []).append(row["file"])
    found = []
    for number, ((kingdom, group), files) in enumerate(sorted(hosts.items()), 1):
        genes = [
            gene
            for file in files
            for record in read_records(file)
            for gene in coding_sequences(record.sequence[:SEARCHED], excluded.get(record.name, ()))
        ]
        dice = np.random.default_rng([2, number])
        chosen = sorted(dice.permutation(len(genes))[:MOST_CODING].tolist())
        path = out / f"coding-{number}.fa"
        if chosen:
            path.write_bytes(
                b"".join(b">coding-%d_%d\n%b\n" % (number, i, genes[i]) for i in chosen)
            )
            labels = {"label": "non-viral", "split": "train", "kingdom": CODING}
            found.append({"file": str(path), "group": group, "class": CODING_OF[kingdom], **labels})
    return found


def coding_sequences(bases: bytes, excluded: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return open frames from the first ATG to the stop; where they overlap, the longest one."""
    taken = np.zeros(len(bases), np.bool_)
    for start, end in excluded:
        taken[start:end] = True
    frames = []
    for strand, sequence in enumerate((bases, reverse_complement(bases))):
        letters = np.frombuffer(sequence, np.uint8)
        second, third = letters[1:-1], letters[2:]
        stops = (letters[:-2] == ord("T")) & (
            ((second == ord("A")) & ((third == ord("A")) | (third == ord("G"))))
            | ((second == ord("G")) & (third == ord("A")))
        )
        places = np.flatnonzero(stops)
        for frame in range(3):
            ends = places[places % 3 == frame] + 3
            for before, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
                if end - before < LEAST_CODING:
                    continue
                starts = range(before, end - LEAST_CODING + 1, 3)
                start = next((at for at in starts if sequence[at : at + 3] == b"ATG"), None)
                if start is not None and not sequence[start:end].translate(None, b"ACGT"):
                    place = (len(bases) - end, len(bases) - start) if strand else (start, end)
                    frames.append((end - start, place, sequence[start:end]))
    found = []
    for _, (start, end), gene in sorted(frames, key=lambda frame: (-frame[0], frame[1])):
        if not taken[start:end].any():
            taken[start:end] = True
            found.append(gene)
    return found


def _chain(model: bytes, order: int, dice: np.random.Generator) -> bytes:
    """Return random bases of a Markov chain with the transitions of `model`."""
    codes = np.array([one for one in map(b"ACGT".find, model) if one >= 0])
    places = range(order + 1)
    words = sum(codes[i : len(codes) - order + i] * 4 ** (order - i) for i in places)
    counts = np.bincount(words, minlength=4 ** (order + 1)).reshape(-1, 4) + 0.1
    sums = (counts.cumsum(axis=1) / counts.sum(axis=1, keepdims=True)).tolist()
    context, found = 0, bytearray()
    for place in dice.random(SHUFFLED_BASES).tolist():
        code = bisect(sums[context], place, 0, 3)
        found += b"ACGT"[code : code + 1]
        context = (4 * context + code) % len(sums)
    return bytes(found)


def write_regions(path: Path, folders: Sequence[Path]) -> None:
    """Write the regions of all genomes as BED: record, start, end."""
    lines = []
    for regions in (folder / "phage_like_regions.bed" for folder in folders):
        if regions.exists():
            rows = (line.split("\t") for line in regions.read_text(encoding="utf-8").splitlines())
            lines += ["\t".join(row[1:4]) + "\n" for row in rows]
    lines.append(PROPHAGES.read_text(encoding="utf-8"))
    path.write_text("".join(lines), encoding="utf-8")


def mark_prophages(runs: Sequence[Path]) -> None:
    """Write the long viral stretches of records that are not viral as a whole to `PROPHAGES`."""
    found = set()
    for run in runs:
        with (run / "regions.tsv").open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream, delimiter="\t"):
                part = {row["start_edge"], row["end_edge"]} != {"record"}
                start, end = int(row["start"]) - 1, int(row["end"])
                if row["state"] == "viral" and part and end - start >= LEAST_PROPHAGE:
                    found.add((row["seq_name"], start, end))
    lines = [f"{name}\t{start}\t{end}\n" for name, start, end in sorted(found)]
    PROPHAGES.write_text("".join(lines), encoding="utf-8")


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "genomes.tsv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def _divide(folder: Path, out: Path) -> None:
    """Write each genome of a folder whose files have many genomes as a file."""
    wanted = {row["id"] for row in _rows(folder) if "file" in row}
    out.mkdir(exist_ok=True)
    for path in sorted(folder.glob("*.fa.gz")):
        records: dict[str, list[bytes]] = {}
        for entry in gzip.decompress(path.read_bytes()).split(b">")[1:]:
            genome = entry.split(None, 1)[0].decode().partition(".")[0]
            records.setdefault(genome, []).append(b">" + entry)
        for genome, entries in records.items():
            if genome in wanted:
                (out / f"{genome}.fa").write_bytes(b"".join(entries))


def _labelled(folder: Path, row: Mapping[str, str], divided: Path) -> dict[str, str]:
    viral = "virus" in (row["group"], row.get("kingdom"))
    kingdom = "virus" if viral else row["group"]
    # A phage without a family has the genus of its host as group, which is a group of its own here.
    group = f"virus:{row['split_group']}" if viral else row["split_group"]
    file = f"{row['group']}/{row['id']}.fa.gz"
    return {
        "file": str(divided / f"{row['id']}.fa" if "file" in row else folder / file),
        "label": "viral" if viral else "non-viral",
        "group": group,
        "split": "train",
        "kingdom": kingdom,
        "class": _class(row, kingdom),
    }


def _class(row: Mapping[str, str], kingdom: str) -> str:
    if kingdom != "virus":
        return kingdom if kingdom in OTHERS else "eukaryote"
    families = {row["family"], row["split_group"]}
    if families & SMALL_PHAGES or row["split_group"].startswith("smallphage"):
        return "small_phage"
    if row.get("realm"):
        return REALMS.get(row["realm"].rstrip("?"), "large_dna_virus")
    if row["group"] == "phage":
        return "tailed_phage"
    if families & RNA_VIRUSES:
        return "rna_virus"
    return "small_dna_virus" if families & SMALL_DNA_VIRUSES else "large_dna_virus"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="Other options are those of virnucpro train."
    )
    text = "folder with genomes.tsv; may be repeated"
    parser.add_argument("--genomes", type=Path, action="append", help=text)
    parser.add_argument("--out", type=Path, help="output folder")
    text = "write mini_prophages.bed from these runs, and end"
    parser.add_argument("--mark", type=Path, nargs="+", metavar="RUN", help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
