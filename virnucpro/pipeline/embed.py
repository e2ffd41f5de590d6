"""Vectors of whole sequences from one encoder: the same pipeline without windows and head."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from virnucpro.bundles.bundle import bundle_names, open_bundle
from virnucpro.bundles.published import require_published
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.registry import open_spec
from virnucpro.errors import UsageError
from virnucpro.pipeline.job import Job
from virnucpro.pipeline.rank_task import EmbeddingsDtype
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

__all__ = ["embed_job"]

_ALPHABETS = {"nucleotide": Alphabet.NUCLEOTIDE, "protein": Alphabet.PROTEIN}


def embed_job(
    inputs: Sequence[str],
    *,
    encoder: str,
    precision: Precision = "fp32",
    embeddings: EmbeddingsDtype = "fp16",
) -> Job:
    """Say what to embed, and with which encoder.

    Parameters
    ----------
    encoder
        ``BUNDLE/VIEW``, or the path of published weights as `open_spec` takes it.

    Raises
    ------
    BundleError, UsageError
        When there is no such encoder, or it is damaged.
    """
    model_name, spec, fingerprint = _encoder(encoder)
    return Job(
        command="embed",
        inputs=tuple(inputs),
        index=IndexSpec(kind="whole", alphabet=_ALPHABETS[spec.view]),
        encoders=(spec,),
        model_name=model_name,
        model=fingerprint,
        precision=precision,
        embeddings=embeddings,
    )


def _encoder(name: str) -> tuple[str, EncoderSpec, str]:
    """Find an encoder: its name for people, what opens it, and its fingerprint."""
    bundle_name, _, view = name.rpartition("/")
    path = Path(name)
    if name and path.exists() and bundle_name not in bundle_names():
        spec = open_spec(path)
        require_published(spec)
        return spec.name, spec, _digest(spec)
    if not bundle_name:
        raise UsageError(
            f"no encoder {name!r}: give BUNDLE/VIEW, such as mini/protein, a fair-esm checkpoint "
            "(esm2_*.pt) or a DNABERT-S folder."
        )
    bundle = open_bundle(bundle_name)
    for spec in bundle.encoders:
        if view in {spec.view, spec.name}:
            return f"{bundle.name}/{spec.view}", spec, bundle.fingerprint
    views = ", ".join(f"{bundle_name}/{spec.view}" for spec in bundle.encoders)
    raise UsageError(f"bundle {bundle_name} has no encoder {view!r}; it has {views}.")


def _digest(spec: EncoderSpec) -> str:
    """SHA-256 over the digests of the encoder's files, by role."""
    digest = hashlib.sha256()
    for role in sorted(spec.files):
        with spec.file(role).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
