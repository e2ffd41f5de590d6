"""Published files: addresses and checksums, and the bundles that are made from them.

Sources of the checksums: for the ESM-2 checkpoints, MD5 in the source code of TorchDrug and other
tools; for DNABERT-S, SHA-256 of the files at a fixed revision of its model hub; for the
classifiers, git blob ids.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from virnucpro.bundles.checksums import Checksum, require_content
from virnucpro.errors import BundleError, UsageError

if TYPE_CHECKING:
    from virnucpro.encoders.base import EncoderSpec, View

_ADDRESS: Final = re.compile(r"https?://[^/@\s]+(/\S*)?")


@dataclass(frozen=True, slots=True)
class Home:
    """A server: address, environment variable for a mirror, and citation of the published work."""

    url: str
    mirror_variable: str
    work: str


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A published file: server, path on the server, local name, checksum and size limit in bytes.

    At most `max_bytes` are downloaded: a longer file is not the published file.
    """

    home: str
    path: str
    name: str
    checksum: Checksum
    max_bytes: int

    def url(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return the file's address, on a mirror if the mirror's environment variable is set.

        Raises
        ------
        BundleError
            If the mirror's address is not an http or https address, or contains user and password.
        """
        home = HOMES[self.home]
        base = environ.get(home.mirror_variable) or home.url
        if not _ADDRESS.fullmatch(base):
            # a login may be a secret: it is not printed
            shown = f"...@{base.rpartition('@')[2]}" if "@" in base else base
            raise BundleError(
                f"{home.mirror_variable}={shown}: is not a valid mirror address. Give an "
                "address that begins with https:// or http:// and contains no user or password. "
                "Or give the files in a folder (--from DIR)."
            )
        return f"{base.rstrip('/')}/{self.path}"

    @property
    def advice(self) -> str:
        """Advice for the user if the download fails."""
        return (
            f"Set {HOMES[self.home].mirror_variable} to the address of a mirror, set a proxy "
            "(https_proxy), or give the files in a folder (--from DIR)."
        )


@dataclass(frozen=True, slots=True)
class EncoderSource:
    """A published encoder and its files."""

    name: str
    architecture: Literal["dnabert_s", "esm2"]
    files: tuple[PublishedFile, ...]

    @property
    def view(self) -> "View":
        """Kind of sequence that the encoder reads: nucleotide or protein."""
        return "protein" if self.architecture == "esm2" else "nucleotide"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Content of a published bundle; vectors are joined in the order of `encoders`."""

    name: str
    description: str
    encoders: tuple[EncoderSource, ...]
    head: PublishedFile | None
    window: int

    @property
    def parts(self) -> dict[str, tuple[PublishedFile, ...]]:
        """Published files by part; a part is the view of an encoder, or ``head``."""
        head = {} if self.head is None else {"head": (self.head,)}
        return {encoder.view: encoder.files for encoder in self.encoders} | head

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        """All published files that the bundle is made from."""
        return tuple(file for files in self.parts.values() for file in files)

    @property
    def sources(self) -> dict[str, Mapping[str, str]]:
        """Digests of the published files, by part (view or ``head``) and by file name."""
        return {part: sources_of(files) for part, files in self.parts.items()}


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

# MD5, and maximum size in bytes: 1.25 times the size of the weights at fp32.
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
_MAX_HEAD_BYTES: Final = 64_000_000


def _esm2(name: str) -> EncoderSource:
    md5, max_bytes = _ESM2[name]
    file = PublishedFile("esm2", f"{name}.pt", f"{name}.pt", Checksum("md5", md5), max_bytes)
    return EncoderSource(name, "esm2", (file,))


def _dnabert_s() -> EncoderSource:
    folder = f"zhihan1996/DNABERT-S/resolve/{_DNABERT_S_REVISION}"
    files = (
        PublishedFile("hub", f"{folder}/{name}", name, Checksum("sha256", value), max_bytes)
        for name, (value, max_bytes) in _DNABERT_S.items()
    )
    return EncoderSource("DNABERT-S", "dnabert_s", tuple(files))


def _classifier(window: int) -> Recipe:
    name = f"{window}_model.pth"
    head = PublishedFile(
        "heads",
        f"Li-Jing-1997/VirNucPro/main/{name}",
        name,
        Checksum("git-blob", _HEADS[window]),
        _MAX_HEAD_BYTES,
    )
    return Recipe(
        f"virnucpro-{window}",
        f"the published VirNucPro classifier of {window}-base windows, on DNABERT-S and ESM-2 3B",
        (_dnabert_s(), _esm2("esm2_t36_3B_UR50D")),
        head,
        window,
    )


def _encoder_alone(name: str) -> Recipe:
    return Recipe(name, "a published ESM-2 encoder without a classifier", (_esm2(name),), None, 500)


_RECIPES: Final[dict[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (_classifier(500), _classifier(300), *(_encoder_alone(name) for name in _ESM2))
}


def sources_of(files: Sequence[PublishedFile]) -> dict[str, str]:
    """Return the published digest of each file as text, with the file's name as key."""
    return {file.name: str(file.checksum) for file in files}


def published_names() -> tuple[str, ...]:
    """Return the names of the bundles that can be fetched."""
    return tuple(_RECIPES)


def require_published(spec: "EncoderSpec") -> None:
    """Raise BundleError if an encoder has a published name but not the published weights.

    Raises
    ------
    BundleError
        If the checksum of the weights file differs from the published checksum.
    OSError
        If the file cannot be read.
    """
    if spec.name not in _RECIPES:
        return
    for file in _RECIPES[spec.name].files:
        path = spec.folder / file.name
        if path == spec.file("weights"):
            origin = f"{file.url()}; give a model of your own another file name"
            require_content(path, file.checksum, origin)


def recipe_of(name: str) -> Recipe:
    """Return the recipe of the published bundle `name`: its files, addresses and checksums.

    Raises
    ------
    UsageError
        If there is no published bundle of that name.
    """
    if name not in _RECIPES:
        raise UsageError(f"{name}: is not a published bundle. Choose one of {', '.join(_RECIPES)}.")
    return _RECIPES[name]
