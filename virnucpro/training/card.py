"""The card of a trained bundle: data, figures by length and kingdom, limits."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from virnucpro.bundles.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["write_card"]


def write_card(path: Path, manifest: Manifest, notes: str = "") -> None:
    """Write CARD.md from the metrics, the calibration and the provenance; `notes` are appended."""
    figures: Mapping[str, Any] = manifest.metrics["cross_validation"]  # type: ignore[assignment]
    kingdoms = sorted({kingdom for one in figures.values() for kingdom in one["called_viral"]})
    provenance: Mapping[str, Any] = manifest.provenance
    presets: Mapping[str, Any] = (manifest.calibration or {})["presets"]  # type: ignore[assignment]
    size = f"{manifest.window} bases"
    lines = [
        f"# {manifest.name}",
        "",
        manifest.description[:1].upper() + manifest.description[1:] + ".",
        "",
        "## Accuracy on groups that were left out",
        "",
        "Five-fold cross-validation by group (virus family or genus of the host). Virus groups",
        f"count equally, and so do the kingdoms of others. Pieces of more than {size} are scored",
        "by the mean logit of their windows. The last columns are shares of pieces called viral at",
        f"the default preset (probability {presets['default']['viral']:.2f}).",
        "",
        f"| bases | pieces | AUROC | calibration error | {' | '.join(kingdoms)} |",
        f"| --- | --- | --- | --- |{' --- |' * len(kingdoms)}",
    ]
    for bases, one in figures.items():
        shares = [one["called_viral"].get(kingdom) for kingdom in kingdoms]
        cells = ["-" if share is None else f"{share:.3f}" for share in shares]
        lines.append(
            f"| {bases} | {one['pieces']} | {one['auroc']:.3f} | {one['calibration_error']:.3f} | "
            f"{' | '.join(cells)} |"
        )
    counts = provenance["counts"]
    lines += [
        "",
        "The calibration error is the expected difference between probability and share of viral",
        "pieces, for groups that neither the classifier nor the calibration had seen.",
        "",
        "## False discovery rate",
        "",
        "Calls at a nominal rate of 0.05, of groups that were left out: realised rate and recall,",
        "at two shares of viral pieces.",
        "",
        "| bases | 1:1 | recall | 1:9 | recall |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {bases} | {_rates(one['realised_fdr'])} |" for bases, one in figures.items()),
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


def _rates(by_prevalence: "Mapping[str, Mapping[str, float] | None]") -> str:
    cells = (
        "no call | 0" if one is None else f"{one['fdr']:.3f} | {one['recall']:.3f}"
        for one in by_prevalence.values()
    )
    return " | ".join(cells)
