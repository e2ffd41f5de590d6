"""Write the bundle of a training: encoders, classifier, card and table of the training set."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from jinja2 import StrictUndefined, Template
from safetensors.torch import save

from virnucpro import __version__
from virnucpro.bundles.bundle import save_bundle
from virnucpro.bundles.manifest import Bundle, Classifier
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.genes.config import FEATURES_VERSION, GenesConfig
from virnucpro.encoders.huggingface.config import HuggingFaceConfig
from virnucpro.lab.training.fit import Fitted
from virnucpro.lab.training.genomes import VIRUS, Genome, by_group
from virnucpro.lab.training.model import Model, Training

_HEAD: Final = "head.safetensors"
_GENES: Final = "genes.safetensors"
_RECORD_HEAD: Final = "record_head.safetensors"
_PIECE: Final = 32_000
"""Maximum bases of a piece of a record; pieces of the training have at most 30,000."""
_TRAINING_SET: Final = "training_set.tsv"
_CARD: Final = "CARD.md"


def write_bundle(
    folder: Path,
    training: Training,
    model: Model,
    genomes: Sequence[Genome],
    fitted: Fitted,
) -> Bundle:
    """Write all files of the bundle into the empty folder; return the bundle."""
    entries = _copies([encoder.spec for encoder in model.encoders], folder)
    (folder / _HEAD).write_bytes(save(dict(fitted.tensors)))
    record = None
    if fitted.record is not None:
        for name, tensors in zip((_GENES, _RECORD_HEAD), fitted.record, strict=True):
            (folder / name).write_bytes(save(dict(tensors)))
        genes = GenesConfig(FEATURES_VERSION).spec("genes", folder, {"weights": _GENES})
        record = Classifier((genes,), folder / _RECORD_HEAD, fingerprint="")
    _write_training_set(folder / _TRAINING_SET, genomes)
    provenance = {
        "command": "virnucpro train",
        "seed": training.seed,
        "recipe": {**fitted.settings, "lengths": "{}-{}".format(*training.crops.lengths)},
        "counts": _counts(genomes),
        "versions": {**fitted.versions, "virnucpro": __version__},
    }
    bundle = Bundle(
        path=folder,
        name=training.name,
        version=training.version,
        description=training.description,
        encoders=entries,
        head=folder / _HEAD,
        window=model.window,
        tiling="even",
        genetic_code=model.genetic_code,
        labels=("others", "virus"),
        thresholds={"viral": 0.5, "non_viral": 0.5},
        metrics=_with_genomes(fitted.metrics, genomes),
        provenance=provenance,
        items=model.items,
        calibration=fitted.calibration,
        classes=fitted.classes,
        record=record,
        piece=None if record is None else _PIECE,
    )
    _write_card(folder / _CARD, bundle, training.notes)
    save_bundle(bundle)
    return bundle


def _copies(specs: Sequence[EncoderSpec], folder: Path) -> tuple[EncoderSpec, ...]:
    """Copy the files of encoders into `folder`; those of a Hugging Face folder keep their names."""
    by_name = sorted(specs, key=lambda spec: spec.architecture != HuggingFaceConfig.architecture)
    copies = {spec.view: _copied(spec, folder) for spec in by_name}
    return tuple(copies[spec.view] for spec in specs)


def _copied(spec: EncoderSpec, folder: Path) -> EncoderSpec:
    """Copy the files of an encoder into `folder`; return the copy."""
    files = {}
    for role, name in spec.files.items():
        taken = (
            name in {_HEAD, _GENES, _RECORD_HEAD, _TRAINING_SET, _CARD} or (folder / name).exists()
        )
        files[role] = f"{spec.view}-{name}" if taken else name
        shutil.copyfile(spec.folder / name, folder / files[role])
    return replace(spec, folder=folder, files=files)


def _write_training_set(path: Path, genomes: Sequence[Genome]) -> None:
    lines = ["name\tkingdom\tclass\tgroup\tfold\tfold_by_relatives\tbases"]
    for genome in genomes:
        labels = genome.name, genome.kingdom, genome.source, genome.group
        lines.append("\t".join(map(str, (*labels, *genome.folds, genome.bases))))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _with_genomes(metrics: Mapping[str, Any], genomes: Sequence[Genome]) -> dict[str, Any]:
    """Return the figures with the number of genomes of each family."""
    counts = Counter(genome.group.rpartition(":")[2] for genome in genomes if genome.viral)
    families = metrics["families"].items()
    return {
        **metrics,
        "families": {name: {"genomes": counts[name], **own} for name, own in families},
    }


def _counts(genomes: Sequence[Genome]) -> dict[str, int]:
    groups = by_group(genomes)
    return {
        "genomes_viral": sum(genome.viral for genome in genomes),
        "genomes_others": sum(not genome.viral for genome in genomes),
        "groups_viral": sum(kingdom == VIRUS for kingdom, _ in groups),
        "groups_others": sum(kingdom != VIRUS for kingdom, _ in groups),
        "bases": sum(genome.bases for genome in genomes),
    }


def _write_card(path: Path, bundle: Bundle, notes: str = "") -> None:
    """Write CARD.md from the metrics, the calibration and the provenance; `notes` are appended."""
    figures: Mapping[str, Any] = bundle.metrics["cross_validation"]  # type: ignore[assignment]
    relatives: Mapping[str, Any] = bundle.metrics["relatives"]  # type: ignore[assignment]
    kingdoms = sorted({kingdom for row in figures.values() for kingdom in row["auroc_of_kingdom"]})
    form = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    template = Template(form, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    text = template.render(
        bundle=bundle,
        figures=figures,
        relatives=relatives,
        kingdoms=kingdoms,
        called=(*kingdoms, VIRUS),
        counts=bundle.provenance["counts"],
        notes=notes,
        with_interval=with_interval,
        of_kingdoms=of_kingdoms,
        rates=rates,
    )
    path.write_text(text, encoding="utf-8")


def of_kingdoms(figures: Mapping[str, Any], kingdoms: Sequence[str]) -> list[list[str]]:
    """Return a row of AUROC by length for each kingdom."""
    rows = []
    for kingdom in kingdoms:
        found = [row["auroc_of_kingdom"].get(kingdom) for row in figures.values()]
        groups = next(auroc["groups"] for auroc in found if auroc)
        cells = ["-" if auroc is None else with_interval(auroc, "auroc") for auroc in found]
        rows.append([f"{kingdom} ({groups})", *cells])
    return rows


def with_interval(figures: Mapping[str, Any], name: str) -> str:
    """Return a figure with three digits, and with its interval if it has one."""
    bounds = figures.get(f"{name}_interval")
    text = f"{figures[name]:.3f}"
    return text if bounds is None else f"{text} ({bounds[0]:.3f}-{bounds[1]:.3f})"


def rates(by_prevalence: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Return rate and recall for each prevalence."""
    cells = (
        ("no call", "0")
        if at_prevalence is None
        else (with_interval(at_prevalence, "fdr"), with_interval(at_prevalence, "recall"))
        for at_prevalence in by_prevalence.values()
    )
    return [cell for pair in cells for cell in pair]
