"""Everything that the figures of an evaluation depend on, for evaluation.json."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from virnucpro import __version__
from virnucpro.evaluation.comparison import LEVEL
from virnucpro.evaluation.fragments import Cut
from virnucpro.evaluation.predictions import Table
from virnucpro.evaluation.tables import sha256_of
from virnucpro.pipeline.evaluation.request import Evaluation
from virnucpro.pipeline.jobs.job import Job

__all__ = ["describe"]

_FORMAT: Final = "virnucpro evaluation 1"


def describe(
    evaluation: Evaluation,
    jobs: Mapping[str, Job],
    others: Mapping[str, Table],
    sequences: Cut,
    files: Sequence[Path],
) -> dict[str, Any]:
    """Return everything that the figures depend on."""
    tables = {one.name: one for one in evaluation.others}
    return {
        "format": _FORMAT,
        "settings": {
            "lengths": list(evaluation.lengths),
            "per_group": evaluation.per_group,
            "per_class": evaluation.per_class,
            "seed": evaluation.seed,
            "prevalence": evaluation.prevalence,
            "resamples": evaluation.n_resamples,
            "confidence": LEVEL,
            "unanswered": evaluation.unanswered,
            "precision": evaluation.precision,
            "weights": "kingdoms of a class equal, groups of a kingdom equal, fragments equal",
        },
        "inputs": dict(evaluation.origin),
        "fragments": {
            path.stem: {
                "file": str(path),
                "sha256": sha256_of(path),
                "fragments": len(sequences.sequences[path.stem]),
                "skipped": dict(sequences.skipped[path.stem]),
                "groups_without": [list(key[1:]) for key in sequences.groups_without(path.stem)],
            }
            for path in files[:-1]
        },
        "tools": {
            **{
                name: {
                    "kind": "bundle",
                    "bundle": job.model_name,
                    "fingerprint": job.model,
                    "thresholds": dict(job.thresholds),
                    "unanswered": evaluation.rule("mean"),
                }
                for name, job in jobs.items()
            },
            **{
                name: {
                    "kind": table.format,
                    "files": [
                        {"path": str(path), "sha256": sha256_of(path)}
                        for path in tables[name].paths
                    ],
                    "name_column": table.name_column,
                    "score": table.score_column,
                    "viral_if": table.called_by,
                    "unanswered": evaluation.rule("lowest"),
                }
                for name, table in others.items()
            },
        },
        "versions": {
            "virnucpro": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in ("numpy", "scikit-learn", "matplotlib", "torch")},
        },
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
