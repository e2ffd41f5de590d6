"""The card: description, origin, accuracy and weak spots of a bundle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_card"]

_WEAK_SPOTS = """\
- Windows without an open frame have no score; see the share of scored windows.
- The model is small and was trained from random weights on few families. It has learned the
  composition of genes and peptides, but hardly any protein families. Treat the call of a single
  window as a hint.
- Cellular training data is mostly bacteria; eukaryotes are few and mostly fragments. Unmarked
  prophages are among the negatives.
- Thresholds were chosen on the same valid families as the figures of records, so those figures are
  slightly optimistic. Model size, length of training and training of the head were chosen on
  families held out of the training split; a few early trials were evaluated on valid families.
- Families differ much more than windows: over five sets of families held out of the training split,
  trial models had AUROCs from 0.73 to 0.87 at 500 bases. Expect the same range for a new family."""


def write_card(
    path: Path,
    metrics: Mapping[str, Any],
    thresholds: Mapping[str, float],
    provenance: Mapping[str, Any],
) -> None:
    """Write the card for users; every figure in it is also in bundle.json."""
    lines = [
        "# mini",
        "",
        "A small DNABERT-S, a small ESM-2 and their head, trained together from random weights on",
        "public genomes, so that the program works without a download on any machine. Use the",
        "published encoders for accurate results.",
        "",
        "## Windows of unseen families",
        "",
        "Windows of the `even` tiling, equally many from each valid family (viruses) or genus",
        "(others). k-mer: logistic regression on the same training windows. The score of a window",
        "is the consensus of its items; AUROC and F1 (at 0.5) are over the scored windows.",
        "",
        *_window_table(metrics["windows"]),
        "",
        "## Records",
        "",
        f"Viral from a score of {thresholds['viral']}, non-viral below {thresholds['non_viral']},",
        "ambiguous between. The middle is the threshold of best balanced accuracy on the fragments",
        "of valid genomes. Windows of 500 bases; the first 100,000 bases of each sequence of whole",
        "genomes. The remaining share of a class is ambiguous or has no scored window (animal",
        "mitochondria, some short genomes).",
        "",
        *_record_table(metrics["records"]),
        "",
        "## Origin",
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
