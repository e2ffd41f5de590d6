"""What has been published, where, and what identifies it.

Sources of the digests: MD5 of the ESM-2 checkpoints as TorchDrug and others pin them; SHA-256 of
DNABERT-S's files at the pinned revision of its hub; git blob ids of the classifiers.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from virnucpro.bundles.checksums import Checksum, Kind, digest_of, require_content
from virnucpro.errors import BundleError, UsageError

if TYPE_CHECKING:
    from virnucpro.encoders.base import EncoderSpec, View

__all__ = [
    "HEAD_PART",
    "HOMES",
    "EncoderSource",
    "Home",
    "PublishedFile",
    "Recipe",
    "origin_of",
    "published_digest",
    "published_names",
    "recipe_of",
    "require_published",
    "sources_of",
]


HEAD_PART: Final = "head"
"""What the head is called among the parts of a bundle; an encoder goes by its view."""


@dataclass(frozen=True, slots=True)
class Home:
    """A server, the environment variable that names a mirror of it, and whose work it serves."""

    url: str
    mirror_variable: str
    work: str


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One file: its home, its path there, its name here, what identifies its content.

    `most_bytes` is what it does not exceed: a server that sends more sends something else.
    """

    home: str
    path: str
    name: str
    checksum: Checksum
    most_bytes: int

    def url(self, environ: Mapping[str, str] = os.environ) -> str:
        """Say where to get it, a mirror's address where the environment names one."""
        home = HOMES[self.home]
        base = environ.get(home.mirror_variable) or home.url
        shown = f"{home.mirror_variable}={_without_login(base)}"
        if not _is_address(base):
            raise BundleError(
                f"{shown}: is no address of a mirror. Give one that begins "
                "with https:// or http://, or use --from for a folder of files."
            )
        if "@" in urlsplit(base).netloc:
            raise BundleError(
                f"{shown}: has a user or a password in it, which is not supported. Give an address "
                "that asks for none, or use --from for a folder of files."
            )
        return f"{base.rstrip('/')}/{self.path}"

    @property
    def mirror_variable(self) -> str:
        """The environment variable that names a mirror of its home."""
        return HOMES[self.home].mirror_variable


@dataclass(frozen=True, slots=True)
class EncoderSource:
    """A published encoder, and the files that it is made of."""

    name: str
    architecture: Literal["dnabert_s", "esm2"]
    files: tuple[PublishedFile, ...]

    @property
    def view(self) -> "View":
        """What it reads."""
        return "protein" if self.architecture == "esm2" else "nucleotide"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A bundle that can be fetched: its encoders in the order of the joined vector, its head."""

    name: str
    description: str
    encoders: tuple[EncoderSource, ...]
    head: PublishedFile | None
    window: int

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        """All files that it is made of."""
        own = tuple(file for encoder in self.encoders for file in encoder.files)
        return own if self.head is None else (*own, self.head)

    @property
    def sources(self) -> dict[str, dict[str, str]]:
        """Name and digest of the files of each part, as a bundle's provenance holds them."""
        sources: dict[str, dict[str, str]] = {
            encoder.view: sources_of(encoder.files) for encoder in self.encoders
        }
        return sources if self.head is None else {**sources, HEAD_PART: sources_of((self.head,))}


HOMES: Final[Mapping[str, Home]] = {
    "esm2": Home(
        "https://dl.fbaipublicfiles.com/fair-esm/models",
        "VIRNUCPRO_MIRROR_ESM2",
        "ESM-2 (Lin et al. 2023)",
    ),
    "hub": Home("https://huggingface.co", "VIRNUCPRO_MIRROR_HUB", "DNABERT-S (Zhou et al. 2024)"),
    "heads": Home(
        "https://raw.githubusercontent.com", "VIRNUCPRO_MIRROR_HEADS", "VirNucPro (Li et al.)"
    ),
}

# Digest, and more bytes than the file has: a quarter more than its weights take at fp32.
_ESM2: Final = {
    "esm2_t6_8M_UR50D": ("8039fc9cee7f71cd2633b13b5a38ff50", 40_000_000),
    "esm2_t12_35M_UR50D": ("a894ddb31522e511e1273abb23b5f974", 170_000_000),
    "esm2_t30_150M_UR50D": ("229fcf8f9f3d4d442215662ca001b906", 750_000_000),
    "esm2_t33_650M_UR50D": ("ba6d997e29db07a2ad9dca20e024b102", 3_300_000_000),
    "esm2_t36_3B_UR50D": ("d37a0d0dbe7431e48a72072b9180b16b", 14_000_000_000),
    "esm2_t48_15B_UR50D": ("af61a9c0b792ae50e244cde443b7f4ac", 75_000_000_000),
}
_DNABERT_S_REVISION: Final = "00e47f96cdea35e4b6f5df89e5419cbe47d490c6"
_DNABERT_S: Final = {
    "config.json": ("d54c142114563aa34ef7c2b54ccc921d08e50cd7c3cd69c439d5e0d2bbcfcdee", 1_000_000),
    "tokenizer.json": (
        "667f5a0e6e9630f7052b004784dda7c7aeba395cc4ca3c01b11b02e6aa29d7b1",
        4_000_000,
    ),
    "pytorch_model.bin": (
        "f3cfc3d0541859df64759e758cc4bc40fe1d5760799a7d098a9f9f09501c1e5f",
        600_000_000,
    ),
}
_HEADS: Final = {
    300: "a0b5b85e7c1e44f00cde146d091beb82b2c8e855",
    500: "fc35d5ef9f1f4564eea7036f34f4f8ec6000d33d",
}
_MOST_HEAD_BYTES: Final = 64_000_000

_FASTEST_FIRST: Final[tuple[Kind, ...]] = ("sha256", "git-blob", "md5")
"""SHA-256 and SHA-1 have instructions of their own on most processors."""


def _without_login(address: str) -> str:
    """Leave out what stands before the host, which no message may show."""
    _, login, rest = address.rpartition("@")
    return f"...@{rest}" if login else address


def _is_address(text: str) -> bool:
    """Say whether this is an address of the web with a server's name in it."""
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").encode("idna")
        _ = parts.port  # raises where it is no number
    except ValueError:
        return False
    plain = text.isprintable() and " " not in text
    return plain and bool(host) and parts.scheme in ("https", "http")


def _esm2(name: str) -> EncoderSource:
    md5, most_bytes = _ESM2[name]
    file = PublishedFile("esm2", f"{name}.pt", f"{name}.pt", Checksum("md5", md5), most_bytes)
    return EncoderSource(name, "esm2", (file,))


def _dnabert_s() -> EncoderSource:
    folder = f"zhihan1996/DNABERT-S/resolve/{_DNABERT_S_REVISION}"
    files = (
        PublishedFile("hub", f"{folder}/{name}", name, Checksum("sha256", value), most_bytes)
        for name, (value, most_bytes) in _DNABERT_S.items()
    )
    return EncoderSource("DNABERT-S", "dnabert_s", tuple(files))


def _classifier(window: int) -> Recipe:
    name = f"{window}_model.pth"
    head = PublishedFile(
        "heads",
        f"Li-Jing-1997/VirNucPro/main/{name}",
        name,
        Checksum("git-blob", _HEADS[window]),
        _MOST_HEAD_BYTES,
    )
    return Recipe(
        f"virnucpro-{window}",
        f"the published VirNucPro classifier of {window}-base windows, on DNABERT-S and ESM-2 3B",
        (_dnabert_s(), _esm2("esm2_t36_3B_UR50D")),
        head,
        window,
    )


def _encoder_alone(name: str) -> Recipe:
    return Recipe(
        name, "a published ESM-2 encoder, without a classifier", (_esm2(name),), None, 500
    )


_RECIPES: Final[dict[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (_classifier(500), _classifier(300), *(_encoder_alone(name) for name in _ESM2))
}


def sources_of(files: Sequence[PublishedFile]) -> dict[str, str]:
    """Write down what files something was made from, as a bundle's provenance holds it."""
    return {file.name: str(file.checksum) for file in files}


def published_names() -> tuple[str, ...]:
    """List the bundles that can be fetched."""
    return tuple(_RECIPES)


def published_digest(path: Path) -> str:
    """Identify a file as its publisher does where it is a published one, else by its SHA-256.

    It is read once for each kind of digest that a file of its size is published with, and no more
    once one is known.

    Returns
    -------
    str
        Kind and value, as a bundle's provenance holds them.

    Raises
    ------
    OSError
        When it cannot be read.
    """
    size = path.stat().st_size
    known = {
        file.checksum
        for recipe in _RECIPES.values()
        for file in recipe.files
        if size <= file.most_bytes
    }
    own: dict[Kind, Checksum] = {}
    for kind in _FASTEST_FIRST:
        if any(one.kind == kind for one in known):
            own[kind] = digest_of(kind, path)
            if own[kind] in known:
                return str(own[kind])
    return str(own.get("sha256") or digest_of("sha256", path))


def origin_of(digest: str) -> str | None:
    """Say whose work a file is, by its digest as `published_digest` gives it; None: unknown."""
    for recipe in _RECIPES.values():
        for file in recipe.files:
            if digest == str(file.checksum):
                return HOMES[file.home].work
    return None


def require_published(spec: "EncoderSpec") -> None:
    """Hold a file that bears a published encoder's name against what was published.

    Raises
    ------
    BundleError
        When it holds something else.
    OSError
        When it cannot be read.
    """
    if spec.name not in _RECIPES:
        return
    for file in _RECIPES[spec.name].files:
        path = spec.folder / file.name
        if path == spec.file("weights"):
            origin = f"{file.url()}; give a model of your own another file name"
            require_content(path, file.checksum, origin)


def recipe_of(name: str) -> Recipe:
    """Say what a published bundle is made of.

    Raises
    ------
    UsageError
        When nothing of that name has been published.
    """
    if name not in _RECIPES:
        raise UsageError(
            f"{name}: no such bundle can be fetched. Choose one of {', '.join(_RECIPES)}."
        )
    return _RECIPES[name]
