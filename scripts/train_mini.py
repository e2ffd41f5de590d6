"""Train the embedded bundle `mini` again: labels from genomes.tsv, then ``virnucpro train``.

    python scripts/train_mini.py --genomes ../shared/genomes --genomes ../shared/genomes-2
        --genomes ../shared/genomes-3 --genomes ../shared/genomes-4 --out OUT

OUT/labels.tsv and OUT/exclude.bed are the inputs of ``virnucpro train``, and OUT/training/bundle is
the bundle. The same genomes, seed, versions and kind of processor give the same bundle. Each folder
of genomes has a genomes.tsv, and may have a phage_like_regions.bed of regions to leave out. Files
with many genomes are divided into OUT/genomes. When the bundle is in virnucpro/bundles/mini,
``python scripts/golden_figures.py mini`` records its scores.

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

from virnucpro.sequences.records import read_records

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
KNOWN = "known"
"""Split of genomes for validation whose group is for training in another folder: for neither."""
NOTES = Path(__file__).parent / "mini_notes.md"
"""Limits of the bundle, for its card."""
COLUMNS = ("file", "label", "group", "split", "kingdom", "class")
DESCRIPTION = "composition of windows and genes of records, trained on public genomes"


def main(argv: Sequence[str] | None = None) -> int:
    """Write labels and regions, then train; return the exit code of the training."""
    arguments, options = _parser().parse_known_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    labels, regions = arguments.out / "labels.tsv", arguments.out / "exclude.bed"
    folders = [folder.resolve() for folder in arguments.genomes]
    write_labels(labels, folders)
    write_regions(regions, folders)
    command = [sys.executable, "-m", "virnucpro", "train", "--labels", labels, "--exclude", regions]
    command += ["-o", arguments.out / "training", "--name", "mini", "--bundle-version", "3.4.0"]
    command += ["--description", DESCRIPTION, "--notes", NOTES]
    command += ["--lengths", "300-1250", "--label-smoothing", "0.02"]
    # Two contigs contain a phage, two plasmids of different genera are nearly equal, and a human
    # transcript is that of an endogenous retrovirus.
    command += ["--allow-similar"]
    return subprocess.run([*map(str, command), *options], check=False).returncode


def write_labels(path: Path, folders: Sequence[Path]) -> None:
    """Write the table of labels of all genomes, and the genomes that share a file as files."""
    rows = [(folder, row) for folder in folders for row in _rows(folder)]
    labelled = [_labelled(folder, row, path.parent / "genomes") for folder, row in rows]
    training = {row["group"] for row in labelled if row["split"] == "train"}
    for row in labelled:
        if row["split"] == "valid" and row["group"] in training:
            row["split"] = KNOWN
    for folder in folders:
        _divide(folder, path.parent / "genomes")
    labelled += write_shuffled(labelled, path.parent / "genomes")
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
    of_group = {row["group"]: row for row in rows if row["split"] == "train"}.values()
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
    for folder in folders:
        regions = folder / "phage_like_regions.bed"
        if regions.exists():
            rows = (line.split("\t") for line in regions.read_text(encoding="utf-8").splitlines())
            lines += ["\t".join(row[1:4]) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


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
        "split": row["split"],
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
    parser.add_argument("--genomes", type=Path, required=True, action="append", help=text)
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
