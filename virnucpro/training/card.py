"""The card of a trained bundle: data, figures by length and kingdom with intervals, limits."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from virnucpro.bundles.manifest import Manifest
from virnucpro.training.groups import VIRUS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["write_card"]


def write_card(path: Path, manifest: Manifest, notes: str = "") -> None:
    """Write CARD.md from the metrics, the calibration and the provenance; `notes` are appended."""
    figures: Mapping[str, Any] = manifest.metrics["cross_validation"]  # type: ignore[assignment]
    kingdoms = sorted({kingdom for one in figures.values() for kingdom in one["auroc_of_kingdom"]})
    provenance: Mapping[str, Any] = manifest.provenance
    presets: Mapping[str, Any] = (manifest.calibration or {})["presets"]  # type: ignore[assignment]
    counts = provenance["counts"]
    lines = [
        f"# {manifest.name}",
        "",
        manifest.description[:1].upper() + manifest.description[1:] + ".",
        "",
        "## Accuracy on groups that were left out",
        "",
        "Five-fold cross-validation by group (virus family or genus of the host). Virus groups",
        "count equally, and so do the kingdoms of others. Pieces of more than 500 bases are scored",
        "by the mean logit of their windows. Pieces of low complexity are left out: they are not",
        "called. In parentheses: 95 % intervals by bootstrap over groups.",
        "",
        "| bases | pieces | AUROC | calibration error |",
        "| --- | --- | --- | --- |",
        *(
            f"| {bases} | {one['pieces']} | {_with_interval(one, 'auroc')} | "
            f"{_with_interval(one, 'calibration_error')} |"
            for bases, one in figures.items()
        ),
        "",
        "The calibration error is the expected difference between probability and share of viral",
        "pieces, for groups that neither the classifier nor the calibration had seen. It is never",
        "negative, so resamples have larger errors than the data.",
        "",
        "AUROC of viruses against one kingdom, whose number of groups at the first length stands",
        "beside its name:",
        "",
        *_table(("kingdom", *figures), _of_kingdoms(figures, kingdoms)),
        "",
        "## False discovery rate",
        "",
        "Calls at a nominal rate of 0.05, of groups that were left out: realised rate and recall,",
        "at two shares of viral pieces. No call: no piece reaches the nominal rate.",
        "",
        "| bases | 1:1 | recall | 1:9 | recall |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {bases} | {_rates(one['realised_fdr'])} |" for bases, one in figures.items()),
        "",
        "## Shares called viral",
        "",
        f"At the default preset (probability {presets['default']['viral']:.2f}).",
        "",
        *_table(
            ("bases", *kingdoms, VIRUS),
            [
                [bases, *(_share(one["called_viral"].get(name)) for name in (*kingdoms, VIRUS))]
                for bases, one in figures.items()
            ],
        ),
        "",
        "## Training data",
        "",
        f"{counts['genomes_viral']} viral genomes of {counts['groups_viral']} groups,",
        f"{counts['genomes_others']} other genomes of {counts['groups_others']} groups,",
        f"{counts['bases']:,} bases. training_set.tsv lists them.",
        "",
        "## Origin",
        "",
        f"- command: {provenance['command']}, seed {provenance['seed']}",
        f"- recipe: {', '.join(f'{name} {value}' for name, value in provenance['recipe'].items())}",
        f"- versions: {', '.join(f'{k} {v}' for k, v in provenance['versions'].items())}",
        "",
    ]
    path.write_text("\n".join(lines) + notes, encoding="utf-8")


def _of_kingdoms(figures: "Mapping[str, Any]", kingdoms: "Sequence[str]") -> list[list[str]]:
    """Return a row of AUROC by length for each kingdom."""
    rows = []
    for kingdom in kingdoms:
        found = [one["auroc_of_kingdom"].get(kingdom) for one in figures.values()]
        groups = next(one["groups"] for one in found if one)
        cells = ["-" if one is None else _with_interval(one, "auroc") for one in found]
        rows.append([f"{kingdom} ({groups})", *cells])
    return rows


def _table(head: "Sequence[str]", rows: "Sequence[Sequence[str]]") -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}"


def _with_interval(figures: "Mapping[str, Any]", name: str) -> str:
    """Return a figure with three digits, and with its interval if it has one."""
    bounds = figures.get(f"{name}_interval")
    text = f"{figures[name]:.3f}"
    return text if bounds is None else f"{text} ({bounds[0]:.3f}-{bounds[1]:.3f})"


def _rates(by_prevalence: "Mapping[str, Mapping[str, Any] | None]") -> str:
    cells = (
        "no call | 0"
        if one is None
        else f"{_with_interval(one, 'fdr')} | {_with_interval(one, 'recall')}"
        for one in by_prevalence.values()
    )
    return " | ".join(cells)
