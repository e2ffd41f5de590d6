"""The card: what a bundle is, how it was made, how good it is, where it is weak."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_card"]

_WEAK_SPOTS = """\
- Windows without an open frame have no score; see the share of windows scored.
- A small model, trained from nothing on few families: it knows the composition of genes and of
  peptides, hardly any protein families. Treat a call on a single window as a hint.
- Cellular training data is mostly bacteria; eukaryotes are few and mostly fragments. Prophages that
  are not marked are among the negatives.
- Thresholds were chosen on the same valid families that the record figures are given for: those
  figures are slightly optimistic. Size, length of training and the training of the head were
  chosen on families held out of the training split; a few early trials were rated on valid ones.
- Families differ far more than windows do: over five sets of families held out of the training
  split, trial models had AUROCs from 0.73 to 0.87 at 500 bases. Expect as much of a new family."""


def write_card(
    path: Path,
    metrics: Mapping[str, Any],
    thresholds: Mapping[str, float],
    provenance: Mapping[str, Any],
) -> None:
    """Write the card for people; every figure in it also stands in bundle.json."""
    lines = [
        "# mini",
        "",
        "A small DNABERT-S and a small ESM-2 architecture with their head, trained together from",
        "random weights on public genomes, so that the program works at once, offline, on any",
        "machine. It is no substitute for the published encoders.",
        "",
        "## Windows of unseen families",
        "",
        "Windows of the `even` tiling, as many from each valid family (viruses) or genus (others).",
        "k-mer: logistic regression on the same training windows. A window's score is",
        "the consensus of its items; AUROC and F1 (at 0.5) are over the windows that have a score.",
        "",
        *_window_table(metrics["windows"]),
        "",
        "## Records",
        "",
        f"Viral from a score of {thresholds['viral']}, below {thresholds['non_viral']} non-viral,",
        "ambiguous between. The middle is the threshold of best balanced accuracy on the fragments",
        "of valid genomes.",
        "Windows of 500 bases; of whole genomes' sequences the first 100,000 bases.",
        "What lacks to 1 is ambiguous or has no scored window (animals' mitochondria, some short",
        "genomes).",
        "",
        *_record_table(metrics["records"]),
        "",
        "## Where it comes from",
        "",
        *_facts(provenance),
        "",
        "## Weak spots",
        "",
        _WEAK_SPOTS,
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _window_table(rated: Mapping[str, Mapping[str, float]]) -> list[str]:
    columns = {
        "windows": "windows",
        "scored": "share scored",
        "scored_viral": "of viral",
        "scored_others": "of others",
        "auroc": "AUROC",
        "f1": "F1",
        "kmer_auroc": "k-mer AUROC",
        "kmer_f1": "k-mer F1",
        "kmer_auroc_all": "k-mer AUROC, all windows",
    }
    return _table("bases", columns, rated)


def _record_table(rated: Mapping[str, Mapping[str, float]]) -> list[str]:
    columns = {
        "records": "records",
        "auroc": "AUROC",
        "viral_right": "viral called viral",
        "viral_wrong": "viral called non-viral",
        "others_right": "others called non-viral",
        "others_wrong": "others called viral",
    }
    return _table("records", columns, rated)


def _table(
    corner: str, columns: Mapping[str, str], rows: Mapping[str, Mapping[str, float]]
) -> list[str]:
    head = [corner, *columns.values()]
    body = [[name, *(_figure(row.get(key)) for key in columns)] for name, row in rows.items()]
    return [_row(head), _row(["---"] * len(head)), *map(_row, body)]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def _facts(provenance: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in provenance.items():
        shown = value
        if isinstance(value, Mapping):
            shown = ", ".join(f"{key.replace('_', ' ')} {number}" for key, number in value.items())
        lines.append(f"- {name.replace('_', ' ')}: {shown}")
    return lines
