"""Get the genomes of a training set from NCBI, for people without the folder of genomes.

    python scripts/fetch_genomes.py scripts/mini_genomes.tsv --out GENOMES

The table has one row per genome: accessions (one for each record; of a piece of a record
ACCESSION:START-END, 1-based), kingdom, group, split, bases to keep of each record, and the SHA-256
of the kept bases. GENOMES gets GROUP/ID.fa.gz and a genomes.tsv for scripts/train_mini.py. Genomes
that are there already are not requested again.
Rows without an accession of NCBI are listed with their source and skipped: exit code 2.
"""

import argparse
import csv
import gzip
import hashlib
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SERVER = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/efetch.fcgi"
ATTEMPTS = 4
TIMEOUT = 120.0


class FetchError(Exception):
    """A genome that cannot be fetched; the text says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch all missing genomes; return the exit code."""
    arguments = _parser().parse_args(argv)
    with arguments.table.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    failed = 0
    for number, row in enumerate(rows, 1):
        path = arguments.out / row["group"] / f"{row['id']}.fa.gz"
        if path.exists():
            continue
        try:
            records = list(fetch(row, arguments.server, arguments.pause))
        except FetchError as error:
            failed += 1
            print(f"{row['id']}: {error}", file=sys.stderr)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with gzip.open(part, "wt", encoding="utf-8") as stream:
            stream.writelines(f">{name}\n{bases}\n" for name, bases in records)
        part.replace(path)
        print(f"{number}/{len(rows)} {row['id']}", flush=True)
    _write_table(arguments.out, rows)
    if failed:
        print(f"{failed} of {len(rows)} genomes are missing; rerun to retry", file=sys.stderr)
    return 2 if failed else 0


def fetch(row: Mapping[str, str], server: str, pause: float) -> Iterator[tuple[str, str]]:
    """Yield name and kept bases of each record of a genome.

    Raises
    ------
    FetchError
        If the genome has no accession, cannot be fetched, or has other bases than the table says.
    """
    if not row["accession"]:
        raise FetchError(f"not in NCBI under an accession; get it from {row['source']}")
    digest = hashlib.sha256()
    for accession, kept in zip(row["accession"].split(","), row["kept"].split(","), strict=True):
        bases = _request(accession, server, pause)[: int(kept)]
        digest.update(bases.encode())
        yield accession, bases
    if digest.hexdigest() != row["sha256"]:
        raise FetchError("its bases differ from those of the table (a newer version of the record)")


def _request(accession: str, server: str, pause: float) -> str:
    """Return the bases of one record, or of a piece of one."""
    record, _, piece = accession.partition(":")
    query = {"db": "nuccore", "id": record, "rettype": "fasta", "retmode": "text"}
    query |= zip(("seq_start", "seq_stop"), piece.split("-"), strict=True) if piece else ()
    url = f"{server}?{urllib.parse.urlencode(query)}"
    for attempt in range(ATTEMPTS):
        time.sleep(pause * 2**attempt)  # NCBI allows three requests per second
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as response:  # noqa: S310 - https, or the user's server
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            problem = f"{accession}: the server answered {error.code}"
            if error.code not in (429, 500, 502, 503, 504):
                break
        except (OSError, UnicodeDecodeError) as error:
            problem = f"{accession}: {error}"
        else:
            header, _, bases = text.partition("\n")
            if header.startswith(">") and ">" not in bases:
                return "".join(bases.split()).upper()
            problem = f"{accession}: the answer is not one FASTA record"
    raise FetchError(problem)


def _write_table(folder: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Write genomes.tsv of the genomes that are there."""
    columns = ("id", "group", "kingdom", "realm", "family", "split_group", "split")
    here = [row for row in rows if (folder / row["group"] / f"{row['id']}.fa.gz").exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "genomes.tsv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(
            stream, columns, delimiter="\t", lineterminator="\n", extrasaction="ignore"
        )
        table.writeheader()
        table.writerows(here)
    lines = []
    for row in here:
        for region in filter(None, row["excluded"].split(";")):
            record, _, span = region.rpartition(":")
            start, end = span.split("-")
            lines.append(f"{row['id']}\t{record}\t{start}\t{end}\n")
    (folder / "phage_like_regions.bed").write_text("".join(lines), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--server", default=SERVER, help="default: %(default)s")
    parser.add_argument(
        "--pause", type=float, default=0.34, help="seconds before a request; default: %(default)s"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
