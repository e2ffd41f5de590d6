"""Train the embedded bundle `mini` again: labels from genomes.tsv, then ``virnucpro train``.

    python scripts/train_mini.py --genomes ../shared/genomes --genomes ../shared/genomes-2 --out OUT

OUT/labels.tsv and OUT/exclude.bed are the inputs of ``virnucpro train``, and OUT/training/bundle is
the bundle. The same genomes, seed, versions and kind of processor give the same bundle. Each folder
of genomes has a genomes.tsv, and may have a phage_like_regions.bed of regions to leave out.
"""

import argparse
import csv
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PHAGE_FAMILIES = ("Microviridae", "Inoviridae", "Leviviridae", "Cystoviridae")
REALMS = {
    "Riboviria": "rna_virus",
    "Ribozyviria": "rna_virus",
    "Duplodnaviria": "tailed_phage",
    "Monodnaviria": "small_dna_virus",
}
EUKARYOTES = ("fungi", "plant", "invertebrate", "protozoa", "vertebrate")
NOTES = Path(__file__).parent / "mini_notes.md"
"""Limits of the bundle, for its card."""
COLUMNS = ("file", "label", "group", "split", "kingdom", "class")
DESCRIPTION = "composition of whole windows and a small classifier, trained on public genomes"


def main(argv: Sequence[str] | None = None) -> int:
    """Write labels and regions, then train; return the exit code of the training."""
    arguments, options = _parser().parse_known_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    labels, regions = arguments.out / "labels.tsv", arguments.out / "exclude.bed"
    folders = [folder.resolve() for folder in arguments.genomes]
    write_labels(labels, folders)
    write_regions(regions, folders)
    command = [sys.executable, "-m", "virnucpro", "train", "--labels", labels, "--exclude", regions]
    command += ["-o", arguments.out / "training", "--name", "mini", "--bundle-version", "2.0.0"]
    command += ["--description", DESCRIPTION, "--notes", NOTES]
    # Two contigs contain a phage, two plasmids of different genera are nearly equal, and a human
    # transcript is that of an endogenous retrovirus.
    command += ["--allow-similar"]
    return subprocess.run([*map(str, command), *options], check=False).returncode


def write_labels(path: Path, folders: Sequence[Path]) -> None:
    """Write the table of labels of all genomes."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, COLUMNS, delimiter="\t", lineterminator="\n")
        table.writeheader()
        for folder in folders:
            for row in _rows(folder):
                table.writerow(_labelled(folder, row))


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


def _labelled(folder: Path, row: Mapping[str, str]) -> dict[str, str]:
    viral = row["group"] == "virus"
    # A phage without a family has the genus of its host as group, which is a group of its own here.
    group = f"virus:{row['split_group']}" if viral else row["split_group"]
    return {
        "file": str(folder / row["group"] / f"{row['id']}.fa.gz"),
        "label": "viral" if viral else "non-viral",
        "group": group,
        "split": row["split"],
        "kingdom": row["group"],
        "class": _class(row),
    }


def _class(row: Mapping[str, str]) -> str:
    if row["group"] != "virus":
        return "eukaryote" if row["group"] in EUKARYOTES else row["group"]
    if row["family"] in PHAGE_FAMILIES:
        return "small_phage"
    return REALMS.get(row["realm"].rstrip("?"), "large_dna_virus")


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
