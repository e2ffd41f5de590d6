"""Make a report of synthetic contigs of real genomes, and pictures of it for the documentation.

The contigs are cut from the genomes of the split `valid`, which are not in the training data of
mini; one bacterial contig contains a phage. Needs Chromium and the test dependencies.

    python scripts/report_screenshots.py [--genomes ../shared/genomes] [--out docs/images]
                                         [--keep FOLDER]
"""

import argparse
import csv
import gzip
import os
import random
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from virnucpro.cli.main import main as virnucpro

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
WIDTH, HEIGHT = 1180, 1640
FILES = {
    "gut.fa": {"virus": 0.35, "bacteria": 0.65},
    "sea.fa": {"virus": 0.6, "bacteria": 0.25, "archaea": 0.15},
    "swab.fa": {"virus": 0.1, "vertebrate": 0.6, "fungi": 0.2, "organelle": 0.1},
}
CONTIGS = 600
PICTURES = (("light", "light", "answer"), ("dark", "dark", "answer"), ("tracks", "light", "tracks"))
"""Name, scheme of colours and first section of each picture."""


def main() -> None:
    """Write the contigs, predict them, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shared = Path(os.environ.get("VIRNUCPRO_SHARED", "../shared"))
    parser.add_argument("--genomes", type=Path, default=shared / "genomes")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--keep", type=Path, help="folder for inputs and run; default: temporary")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        inputs = write_contigs(folder, genomes_of(given.genomes))
        run = folder / "three_samples"
        words = ["predict", *map(str, inputs), "-o", str(run), "--devices", "cpu:2", "--force"]
        if virnucpro(words):
            raise SystemExit("predict failed")
        given.out.mkdir(parents=True, exist_ok=True)
        for name, scheme, section in PICTURES:
            path = given.out / f"report-{name}.png"
            take(run / "report.html", path, scheme, section)
            print(f"{path}: {path.stat().st_size:,} bytes")


def genomes_of(folder: Path) -> dict[str, list[str]]:
    """Return the sequences of the split `valid`, by group."""
    found: dict[str, list[str]] = {}
    with (folder / "genomes.tsv").open() as stream:
        rows = [row for row in csv.DictReader(stream, delimiter="\t") if row["split"] == "valid"]
    for row in rows:
        group = row["group"]
        path = folder / group / f"{row['id']}.fa.gz"
        if group in {name for mix in FILES.values() for name in mix} and path.exists():
            text = gzip.decompress(path.read_bytes()).decode()
            sequences = ["".join(one.split("\n")[1:]).upper() for one in text.split(">")[1:]]
            found.setdefault(group, []).append(max(sequences, key=len))
    return found


def write_contigs(folder: Path, genomes: dict[str, list[str]]) -> list[Path]:
    """Write the files of contigs; the same genomes give the same files."""
    dice = random.Random(5)  # noqa: S311 - no secret
    paths = []
    for name, mix in FILES.items():
        records = []
        for number in range(CONTIGS):
            group = dice.choices(list(mix), list(mix.values()))[0]
            length = int(10 ** dice.uniform(2.45, 4.6)) if dice.random() > 0.04 else 25
            bases = piece(dice, genomes[group], length)
            if dice.random() < 0.02:
                bases = "N" * len(bases)
            records.append((f"{name[:-3]}_{number + 1:04d}_{group}", bases))
        if name == "gut.fa":
            host, phage = (piece(dice, genomes[group], n) for group, n in PROVIRUS)
            middle = len(host) // 2
            records.append(("gut_provirus", host[:middle] + phage + host[middle:]))
        path = folder / name
        path.write_text("".join(f">{title}\n{bases}\n" for title, bases in records))
        paths.append(path)
    return paths


PROVIRUS = (("bacteria", 60_000), ("virus", 25_000))


def piece(dice: random.Random, genomes: list[str], length: int) -> str:
    """Return a random piece of a random genome, or a whole genome that is shorter."""
    genome = dice.choice(genomes)
    start = dice.randint(0, max(0, len(genome) - length))
    return genome[start : start + length]


def take(report: Path, path: Path, scheme: str, section: str) -> None:
    """Take a picture of a report from a section on."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(
            color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1
        )
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("#records-table .tabulator-row")
        page.wait_for_selector("#score-figure svg")
        page.evaluate(
            "name => document.getElementById(name).scrollIntoView({behavior: 'instant'})", section
        )
        page.wait_for_function("() => document.querySelectorAll('.track svg').length > 5")
        page.screenshot(path=str(path), animations="disabled")
        browser.close()
    with Image.open(path) as image:
        image.convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main()
