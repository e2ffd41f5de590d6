"""A program that uses the Python API; a test checks its types and does not run it."""

from collections.abc import Iterator
from pathlib import Path

import virnucpro


def records() -> Iterator[tuple[str, str]]:
    yield "a", "ACGT"


def main() -> None:
    with virnucpro.classify(records(), fdr=0.05, outdir=Path("out")) as result:
        n_viral: int = result.calls["viral"]
        names: list[str] = list(result.viral()["seq_name"])
        path: Path = result.to_fasta("viral.fa.gz", calls=["viral", "ambiguous"])
        print(n_viral, names, path)
    with virnucpro.load("mini") as model:
        print(model.score({"a": "ACGT"}).mean(), model.classify(records()).viral())
    vectors = virnucpro.embed(["a.faa", Path("b.faa")], "mini-deep/protein")
    n_dims: int = vectors.matrix.shape[1]
    print(n_dims, vectors.ids[0].upper())
    try:
        virnucpro.read_embeddings("out", level="sequence")
    except virnucpro.RunError as error:
        print(error)
