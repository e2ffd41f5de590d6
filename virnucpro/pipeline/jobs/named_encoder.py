"""One encoder by its name: of a bundle, or published weights where they lie."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from virnucpro.bundles.bundle import Bundle, bundle_names, open_bundle
from virnucpro.bundles.manifest import MANIFEST
from virnucpro.bundles.published import require_published
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.registry import open_spec
from virnucpro.errors import UsageError

__all__ = ["NamedEncoder", "find_encoder"]


@dataclass(frozen=True, slots=True)
class NamedEncoder:
    """An encoder that was asked for.

    Attributes
    ----------
    name
        For people.
    bundle
        Whose it is; None for published weights.
    """

    name: str
    spec: EncoderSpec
    bundle: Bundle | None

    def fingerprint(self) -> str:
        """Tell what it is by: its bundle's fingerprint, else a digest of all its files."""
        return _digest(self.spec) if self.bundle is None else self.bundle.fingerprint


def find_encoder(name: str | os.PathLike[str]) -> NamedEncoder:
    """Find an encoder.

    Parameters
    ----------
    name
        ``BUNDLE/VIEW``, or the path of published weights as `open_spec` takes it.

    Raises
    ------
    UsageError
        When there is no such encoder.
    BundleError
        When it is damaged, or a file bears a published name and has other content.
    """
    name = os.fspath(name)
    bundle_name, _, view = name.rpartition("/")
    is_a_bundles = bundle_name in bundle_names()
    if name and not is_a_bundles and Path(name).exists():
        spec = open_spec(Path(name))
        require_published(spec)
        return NamedEncoder(spec.name, spec, None)
    if not bundle_name or (not is_a_bundles and _is_another_folder(bundle_name)):
        raise UsageError(
            f"no encoder {name!r}: give BUNDLE/VIEW, such as mini/protein, a fair-esm checkpoint "
            "(esm2_*.pt) or a DNABERT-S folder."
        )
    bundle = open_bundle(bundle_name)
    for spec in bundle.encoders:
        if view in {spec.view, spec.name}:
            return NamedEncoder(f"{bundle.name}/{spec.view}", spec, bundle)
    views = ", ".join(f"{bundle_name}/{spec.view}" for spec in bundle.encoders)
    raise UsageError(f"bundle {bundle_name} has no encoder {view!r}; it has {views}.")


def _is_another_folder(path: str) -> bool:
    """Say whether there is a folder, no bundle; `open_bundle` tells of one that is closed."""
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises where a folder is closed
        return False
    try:
        Path(path, MANIFEST).stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _digest(spec: EncoderSpec) -> str:
    """SHA-256 over the digests of the encoder's files, by role."""
    digest = hashlib.sha256()
    for role in sorted(spec.files):
        with spec.file(role).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
