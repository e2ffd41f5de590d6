"""Write the bundle of a training: encoders, classifier, card and table of the training set."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from safetensors.torch import save

from virnucpro import __version__
from virnucpro.bundles.bundle import write_manifest
from virnucpro.bundles.manifest import EncoderEntry, Manifest
from virnucpro.encoders.base import EncoderSpec
from virnucpro.pipeline.training.model import Model
from virnucpro.pipeline.training.request import Training
from virnucpro.training.card import write_card
from virnucpro.training.draw import CROPS, Crops
from virnucpro.training.fit import Fitted
from virnucpro.training.groups import VIRUS, Genome, by_group

__all__ = ["write_bundle"]

_HEAD: Final = "head.safetensors"
_TRAINING_SET: Final = "training_set.tsv"
_CARD: Final = "CARD.md"


def write_bundle(
    folder: Path,
    training: Training,
    model: Model,
    genomes: Sequence[Genome],
    folds: Mapping[str, int],
    fitted: Fitted,
) -> None:
    """Write all files of the bundle into the empty folder."""
    entries = tuple(_copied(one.spec, folder) for one in model.encoders)
    (folder / _HEAD).write_bytes(save(dict(fitted.tensors)))
    _write_training_set(folder / _TRAINING_SET, genomes, folds)
    provenance = {
        "command": "virnucpro train",
        "seed": training.seed,
        "recipe": {**fitted.recipe, **_lengths(training.crops)},
        "counts": _counts(genomes),
        "versions": {**fitted.versions, "virnucpro": __version__},
    }
    manifest = Manifest(
        name=training.name,
        version=training.version,
        description=training.description,
        encoders=entries,
        head=_HEAD,
        window=model.window,
        tiling="even",
        genetic_code=model.genetic_code,
        labels=("others", "virus"),
        thresholds={"viral": 0.5, "non_viral": 0.5},
        metrics=fitted.metrics,
        provenance=provenance,
        items=model.items,
        calibration=fitted.calibration,
        classes=fitted.classes,
    )
    write_card(folder / _CARD, manifest, training.notes)
    write_manifest(folder, manifest)


def _copied(spec: EncoderSpec, folder: Path) -> EncoderEntry:
    """Copy the files of an encoder into `folder`; return its entry in the manifest."""
    files = {}
    for role, name in spec.files.items():
        taken = name in {_HEAD, _TRAINING_SET, _CARD} or (folder / name).exists()
        files[role] = f"{spec.view}-{name}" if taken else name
        shutil.copyfile(spec.folder / name, folder / files[role])
    return EncoderEntry(spec.name, spec.architecture, spec.view, spec.dim, files, spec.config)


def _write_training_set(path: Path, genomes: Sequence[Genome], folds: Mapping[str, int]) -> None:
    lines = ["name\tkingdom\tclass\tgroup\tfold\tbases"]
    lines += [
        f"{one.name}\t{one.kingdom}\t{one.source}\t{one.group}\t{folds[one.group]}\t"
        f"{sum(map(len, one.sequences))}"
        for one in genomes
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _lengths(crops: Crops) -> dict[str, str]:
    if crops == CROPS:
        return {}
    return {"lengths": ("-" if crops.between else ", ").join(map(str, crops.lengths))}


def _counts(genomes: Sequence[Genome]) -> dict[str, int]:
    groups = by_group(genomes)
    return {
        "genomes_viral": sum(one.viral for one in genomes),
        "genomes_others": sum(not one.viral for one in genomes),
        "groups_viral": sum(kingdom == VIRUS for kingdom, _ in groups),
        "groups_others": sum(kingdom != VIRUS for kingdom, _ in groups),
        "bases": sum(len(sequence) for one in genomes for sequence in one.sequences),
    }
