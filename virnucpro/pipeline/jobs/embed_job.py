"""Create jobs that compute vectors only; their encoders are in bundles or weight files."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.bundles.bundle import Bundle, bundle_names, encoder_contents, open_bundle
from virnucpro.bundles.convert import convert_isolated
from virnucpro.bundles.manifest import MANIFEST, read_manifest
from virnucpro.bundles.published import published_names, recipe_of, require_published
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.pooling import Pooling
from virnucpro.encoders.registry import open_spec, pooled_spec
from virnucpro.errors import UsageError
from virnucpro.pipeline.jobs.job import EmbeddingsDtype, Inputs, Job, PrecisionChoice, inputs_of
from virnucpro.runtime.isolation import run_isolated
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec, json_digest
from virnucpro.store.exports.formats import require_formats

__all__ = ["NamedEncoder", "embed_job", "find_encoder", "vectors_job"]


@dataclass(frozen=True, slots=True)
class NamedEncoder:
    """An encoder with its name and bundle; result of `find_encoder`.

    Attributes
    ----------
    name
        Name in messages and in the run's parameters.
    bundle
        The bundle of the encoder; None for published weights at a path.
    """

    name: str
    spec: EncoderSpec
    bundle: Bundle | None

    def fingerprint(self) -> str:
        """Return a hash of what the vectors depend on: the encoder's settings and files.

        Other parts of its bundle, such as the classifier, have no effect.
        """
        if self.bundle is not None:
            contents = encoder_contents(read_manifest(self.bundle.path))
            known = [(one.name, one.view) for one in self.bundle.encoders]
            return json_digest(contents[known.index((self.spec.name, self.spec.view))])
        digest = hashlib.sha256()
        for role in sorted(self.spec.files):
            with self.spec.file(role).open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()


def find_encoder(name: str | os.PathLike[str]) -> NamedEncoder:
    """Return the encoder that `name` identifies: part of a bundle, or weights at a path.

    Parameters
    ----------
    name
        ``BUNDLE/VIEW``, or the path of published weights as for `open_spec`. Weights at a path are
        read in a separate process, because a malicious file can crash the process.

    Raises
    ------
    UsageError
        If no encoder has this name or path.
    BundleError
        If the encoder is damaged, or the process that reads the weights crashes. Also if a file
        has the name of a published file but different content.
    """
    if not isinstance(name, str | os.PathLike):
        raise UsageError(f"invalid encoder {name!r}: give BUNDLE/VIEW or a path")
    name = os.fspath(name)
    bundle_name, _, view = name.rpartition("/")
    in_a_bundle = bundle_name in bundle_names()
    if name and not in_a_bundle and Path(name).exists():
        path = Path(name)
        spec = convert_isolated(run_isolated, path, open_spec, path)
        require_published(spec)
        return NamedEncoder(spec.name, spec, None)
    if not bundle_name or (not in_a_bundle and _is_other_folder(bundle_name)):
        raise UsageError(
            f"unknown encoder {name!r}: {_advice_on_bundle(name)}give BUNDLE/VIEW, such as "
            "mini-deep/protein, a fair-esm checkpoint (esm2_*.pt), a DNABERT-S folder or a Hugging "
            "Face folder."
        )
    bundle = open_bundle(bundle_name)
    for spec in bundle.encoders:
        if view in {spec.view, spec.name}:
            return NamedEncoder(f"{bundle.name}/{spec.view}", spec, bundle)
    views = ", ".join(f"{bundle_name}/{spec.view}" for spec in bundle.encoders)
    raise UsageError(f"bundle {bundle_name} has no encoder {view!r}; it has {views}.")


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
    """Return whether `path` is a readable folder without a bundle manifest.

    Return False if the folder cannot be read, because the folder may be a bundle.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises if a parent is closed
        return False
    try:
        Path(path, MANIFEST).stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def embed_job(
    inputs: Inputs,
    *,
    encoder: str | os.PathLike[str],
    precision: PrecisionChoice = "fp32",
    embeddings: EmbeddingsDtype = "fp16",
    pooling: Pooling | None = None,
    formats: tuple[str, ...] | None = None,
    strict: bool = False,
    force_alphabet: bool = False,
) -> Job:
    """Return the job of ``virnucpro embed``; `virnucpro.pipeline.predict.predict` computes it.

    Parameters
    ----------
    inputs
        FASTA or FASTQ files: one path or several; ``-`` for standard input.
    encoder
        Name or path of the encoder, as for `find_encoder`.
    precision
        As for `virnucpro.pipeline.predict.predict_job`.
    embeddings
        Precision of the stored vectors: ``fp16`` or ``fp32``.
    pooling
        How tokens become vectors; None for the mean of the last layer.
    formats
        Of `virnucpro.store.exports.formats.FORMATS`; None for those of the resumed run, or none.
    strict
        Refuse gaps and invalid letters in the inputs.
    force_alphabet
        Accept inputs that look like nucleotides for an encoder of proteins, and the reverse.

    Raises
    ------
    UsageError
        If there is no such encoder, or an option is invalid.
    BundleError
        If the encoder is damaged.
    """
    if embeddings not in ("fp16", "fp32"):
        raise UsageError(f"unknown precision of embeddings {embeddings!r}: give fp16 or fp32")
    require_formats(formats or (), per_token=pooling is not None and pooling.per_token)
    found = find_encoder(encoder)
    if pooling is not None:
        found = replace(found, spec=pooled_spec(found.spec, pooling))
    whole = IndexSpec(kind="whole", alphabet=Alphabet[found.spec.view.upper()])
    rules = InputRules(strict=strict, any_alphabet=force_alphabet)
    job = vectors_job(inputs, (found,), whole, precision=precision, embeddings=embeddings)
    return replace(job, formats=formats, rules=rules)


def vectors_job(
    inputs: Inputs,
    encoders: Sequence[NamedEncoder],
    index: IndexSpec,
    *,
    precision: PrecisionChoice = "fp32",
    embeddings: EmbeddingsDtype = "fp32",
) -> Job:
    """Return the job that computes the vectors of items by one or several encoders.

    Gaps and invalid letters in the inputs are refused.

    Parameters
    ----------
    encoders
        In the order in which their vectors are joined.
    index
        Rules that divide the inputs into items with the views of the encoders.
    """
    fingerprints = [one.fingerprint() for one in encoders]
    verified = [set(one.bundle.verified_precisions) if one.bundle else set() for one in encoders]
    return Job(
        command="embed",
        inputs=inputs_of(inputs),
        index=index,
        encoders=tuple(one.spec for one in encoders),
        model_name=", ".join(one.name for one in encoders),
        model=fingerprints[0] if len(encoders) == 1 else json_digest({"encoders": fingerprints}),
        precision=precision,
        embeddings=embeddings,
        rules=InputRules(strict=True, any_alphabet=True),
        verified_precisions=tuple(sorted(set.intersection(*verified))),
    )
