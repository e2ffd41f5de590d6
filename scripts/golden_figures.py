"""Print the tables of virnucpro/bundles/golden_figures.py, for `virnucpro bundle verify --golden`.

Usage: python scripts/golden_figures.py mini [--published FOLDER]

FOLDER holds the published tool's own vectors of the reference records (test_with_orfs_merged/).
"""

import argparse
from pathlib import Path
from textwrap import fill

import numpy as np
import torch

from virnucpro.bundles.bundle import open_bundle
from virnucpro.classify.head import load_head
from virnucpro.pipeline.golden import golden_vectors, project

PUBLISHED = (("DNABERT-S", 0, 768), ("esm2_t36_3B_UR50D", 768, 3328))


def main() -> None:
    """Print the tables of one bundle and, where given, of the published tool's vectors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("--published", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bundle = open_bundle(arguments.bundle)
    vectors = []
    for spec in bundle.encoders:
        vectors.append(golden_vectors(spec, "cpu", "fp32"))
        show(spec.name, vectors[-1].numpy())
    if bundle.head is not None:
        scores = load_head(bundle.head).scores(torch.cat(vectors, dim=1))[:, 1]
        print(f'    "{bundle.name}": {tuple(round(score, 6) for score in scores.tolist())},')
    if arguments.published is not None:
        merged = torch.load(
            arguments.published / "test_with_orfs_merged" / "output_1_merged.pt", weights_only=True
        )
        for name, first, last in PUBLISHED:
            show(name, merged["data"][:, first:last].numpy())


def show(name: str, vectors: np.ndarray) -> None:
    """Print the projections of one encoder's vectors, to five digits."""
    print(f'    ("{name}", {vectors.shape[1]}): """')
    numbers = " ".join(f"{value:.5g}" for value in project(vectors).flat)
    print(fill(numbers, 96))
    print('    """,')


if __name__ == "__main__":
    main()
