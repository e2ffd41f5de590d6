"""Create jobs that compute vectors only; their encoders are in bundles or weight files."""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from virnucpro.bundles.bundle import bundle_names, find_bundle, open_bundle
from virnucpro.bundles.convert import convert_isolated
from virnucpro.bundles.manifest import MANIFEST, Bundle
from virnucpro.bundles.published import published_names, recipe_of, require_published
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.plugin.config import PluginConfig, open_plugin, plugin_names
from virnucpro.encoders.pooling import Pooling
from virnucpro.encoders.registry import config_of, open_spec, pooled_spec, require_installed
from virnucpro.errors import BundleError, UsageError
from virnucpro.extras import require_extra
from virnucpro.option import from_options
from virnucpro.run.job import Inputs, Job, inputs_of
from virnucpro.run.options import EmbedOptions
from virnucpro.runtime.isolation import run_isolated
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec, json_digest
from virnucpro.store.exports import ordered_formats, require_formats

_HUB_NAME: Final = re.compile(r"\w[\w.-]*/(?!(?:nucleotide|protein)$)[\w.-]+(?<!\.pt)")
"""ORG/NAME, but neither BUNDLE/VIEW nor the path of a checkpoint."""


@dataclass(frozen=True, slots=True)
class NamedEncoder:
    """An encoder with its name and bundle; result of `find_encoder`.

    Attributes
    ----------
    name
        Name in messages and in the run's parameters.
    bundle
        The bundle of the encoder; None for published weights at a path, and another package's.
    """

    name: str
    spec: EncoderSpec
    bundle: Bundle | None

    def fingerprint(self) -> str:
        """Return a hash of what the vectors depend on: the encoder's settings and files.

        Other parts of its bundle, such as the classifier, have no effect.
        """
        if self.bundle is not None:
            contents = self.bundle.encoder_contents
            known = [(spec.name, spec.view) for spec in self.bundle.encoders]
            return json_digest(contents[known.index((self.spec.name, self.spec.view))])
        config = config_of(self.spec)
        if isinstance(config, PluginConfig):
            return config.fingerprint
        digest = hashlib.sha256()
        for role in sorted(self.spec.files):
            with self.spec.file(role).open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()


def find_encoder(name: str | os.PathLike[str]) -> NamedEncoder:
    """Return the encoder that `name` identifies: of a bundle, another package, or a path.

    Parameters
    ----------
    name
        ``BUNDLE/VIEW``, the name of another package's encoder, or the path of published weights as
        for `open_spec`. Names have priority. Weights at a path are read in a separate process,
        because a malicious file can crash the process.

    Raises
    ------
    UsageError
        If no encoder has this name or path, or the encoder needs torch, which is not installed.
    BundleError
        If the encoder is damaged, or the process that reads the weights crashes. Also if a file
        has the name of a published file but different content.
    """
    if not isinstance(name, str | os.PathLike):
        raise UsageError(f"invalid encoder {name!r}: give BUNDLE/VIEW or a path")
    name = os.fspath(name)
    bundle_name, _, view = name.rpartition("/")
    in_a_bundle = bundle_name in bundle_names()
    ours = not name or "/" in name or name in {*bundle_names(), *published_names()}
    if not ours and (plugin := open_plugin(name)) is not None:
        spec = plugin[0].spec(plugin[0].title, Path(plugin[0].package), {})
        require_installed([spec], f"the encoder {name}")
        return NamedEncoder(name, spec, None)
    if name and not in_a_bundle and Path(name).exists():
        path = Path(name)
        require_extra("models", f"the encoder {name}")
        spec = convert_isolated(run_isolated, path, open_spec, path)
        require_published(spec)
        return NamedEncoder(spec.name, spec, None)
    if not bundle_name or (not in_a_bundle and _is_other_folder(bundle_name)):
        raise UsageError(
            f"unknown encoder {name!r}: {_advice_on_bundle(name)}give BUNDLE/VIEW, such as "
            "mini-deep/protein, a fair-esm checkpoint (esm2_*.pt), a DNABERT-S folder, a Hugging "
            f"Face folder, or an encoder of another package ({', '.join(plugin_names()) or 'none'} "
            "installed)."
        )
    unknown = not in_a_bundle and bundle_name not in published_names()
    if unknown and _HUB_NAME.fullmatch(name) and not Path(bundle_name).exists():
        raise UsageError(
            f"{name}: no file, folder or bundle has this name. If it is a name of a model hub, "
            f"download the folder first (hf download {name} --local-dir DIR), then give DIR."
        )
    return encoder_of(open_bundle(bundle_name), view, bundle_name)


def encoder_of(bundle: Bundle, view: str, given: str) -> NamedEncoder:
    """Return an encoder of a bundle, whose name or path in messages is `given`.

    Raises
    ------
    UsageError
        If the bundle has no such encoder, or it needs torch, which is not installed.
    """
    for spec in bundle.encoders:
        if view in {spec.view, spec.name}:
            require_installed([spec], f"the encoder {given}/{view}")
            return NamedEncoder(f"{bundle.name}/{spec.view}", spec, bundle)
    views = ", ".join(f"{given}/{spec.view}" for spec in bundle.encoders)
    raise UsageError(f"bundle {given} has no encoder {view!r}; it has {views}.")


def _advice_on_bundle(name: str) -> str:
    """Return how to name the encoder of the bundle `name`, after fetching it if necessary."""
    if name in bundle_names():
        encoders = open_bundle(name).encoders
        return f"it is a bundle, so name its encoder {name}/{encoders[0].view}, or "
    if name in published_names():
        view = recipe_of(name).encoders[-1].view
        return f"run virnucpro bundle fetch {name}, then give -e {name}/{view}, or "
    return ""


def _is_other_folder(path: str) -> bool:
    """Return whether `path` is a readable folder without a bundle.

    Return False if the folder cannot be read, because the folder may be a bundle.
    """
    try:
        return not (find_bundle(path) / MANIFEST).exists()
    except (UsageError, BundleError):
        return False


@from_options(EmbedOptions)
def embed_job(inputs: Inputs, options: EmbedOptions) -> Job:
    """Return the job that computes one vector per sequence with one encoder.

    Parameters
    ----------
    inputs
        FASTA or FASTQ files: one path or several; ``-`` for standard input.

    Raises
    ------
    UsageError
        If there is no such encoder, or an option is invalid.
    BundleError
        If the encoder is damaged.
    """
    if options.embeddings not in ("fp16", "fp32"):
        raise UsageError(
            f"unknown precision of embeddings {options.embeddings!r}: give fp16 or fp32"
        )
    several = isinstance(options.layer, Iterable) and not isinstance(options.layer, str)
    layers: Any = options.layer if several else (options.layer,)
    pooling = Pooling(options.pooling, layers, options.max_length, options.long, options.outputs)
    wanted = options.format
    wanted = wanted.split(",") if isinstance(wanted, str) else wanted
    formats = None if wanted is None else ordered_formats(wanted)
    require_formats(formats or (), per_token=pooling.per_token, outputs=pooling.outputs)
    known: object = options.encoder
    found = known if isinstance(known, NamedEncoder) else find_encoder(options.encoder)
    found = replace(found, spec=pooled_spec(found.spec, pooling))
    whole = IndexSpec(kind="whole", alphabet=Alphabet[found.spec.view.upper()])
    rules = InputRules(options.strict, options.force_alphabet, options.max_record)
    job = vectors_job(inputs, (found,), whole, options)
    return replace(job, formats=formats, rules=rules)


def vectors_job(
    inputs: Inputs,
    encoders: Sequence[NamedEncoder],
    index: IndexSpec,
    options: EmbedOptions,
) -> Job:
    """Return the job that computes the vectors of items by one or several encoders.

    Gaps and invalid letters in the inputs are refused.

    Parameters
    ----------
    encoders
        In the order in which their vectors are joined.
    index
        Rules that divide the inputs into items with the views of the encoders.
    options
        Precision of the encoders and of the stored vectors.
    """
    fingerprints = [encoder.fingerprint() for encoder in encoders]
    return Job(
        command="embed",
        inputs=inputs_of(inputs),
        index=index,
        encoders=tuple(encoder.spec for encoder in encoders),
        model_name=", ".join(encoder.name for encoder in encoders),
        model=fingerprints[0] if len(encoders) == 1 else json_digest({"encoders": fingerprints}),
        options=options,
        rules=InputRules(strict=True, any_alphabet=True),
    )
