"""Record vectors and scores of a bundle in golden.json, for `virnucpro bundle verify --golden`.

Usage: python scripts/golden_figures.py mini-deep [--published FOLDER]

Every new bundle in virnucpro/bundles/ needs it. FOLDER holds the published tool's own vectors of
the reference records (test_with_orfs_merged/).
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.head import load_head
from virnucpro.lab.validation import golden
from virnucpro.lab.validation.golden import golden_vectors, project

RECORDED = Path(golden.__file__).with_suffix(".json")
PUBLISHED = (("DNABERT-S", 0, 768), ("esm2_t36_3B_UR50D", 768, 3328))


def main() -> None:
    """Record the entries of one bundle and, where given, of the published tool's vectors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("--published", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bundle = open_bundle(arguments.bundle)
    vectors = [golden_vectors(spec, "cpu", "fp32") for spec in bundle.encoders]
    entries = [
        entry(spec.name, found) for spec, found in zip(bundle.encoders, vectors, strict=True)
    ]
    scores = {}
    if bundle.head is not None:
        found = load_head(bundle.head).scores(np.concatenate(vectors, axis=1))[:, 1]
        scores[bundle.name] = [round(score, 6) for score in found.tolist()]
    if arguments.published is not None:
        merged = torch.load(
            arguments.published / "test_with_orfs_merged" / "output_1_merged.pt", weights_only=True
        )
        for name, first, last in PUBLISHED:
            entries.append(entry(name, merged["data"][:, first:last].numpy()))
    content = json.loads(RECORDED.read_text(encoding="ascii"))
    known = {(one["encoder"], one["dim"]): one for one in content["projections"]}
    known |= {(one["encoder"], one["dim"]): one for one in entries}
    content |= {"scores": content["scores"] | scores, "projections": list(known.values())}
    RECORDED.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")


def entry(name: str, vectors: np.ndarray) -> dict[str, object]:
    """Return the entry of one encoder: the projections of its vectors, with five digits."""
    numbers = " ".join(f"{value:.5g}" for value in project(vectors).flat)
    return {"encoder": name, "dim": vectors.shape[1], "numbers": numbers}


if __name__ == "__main__":
    main()
