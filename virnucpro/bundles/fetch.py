"""Fetch a published bundle from the network or from a folder, and install it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro import __version__
from virnucpro.bundles.bundle import open_bundle, save_bundle
from virnucpro.bundles.checksums import require_content
from virnucpro.bundles.convert import (
    Isolate,
    call_directly,
    convert_encoder,
    convert_head,
    convert_isolated,
)
from virnucpro.bundles.data_folder import DataFolder, require_space, require_utf8
from virnucpro.bundles.download import Listener, Patience, download, remote_size
from virnucpro.bundles.manifest import Bundle
from virnucpro.bundles.published import HOMES, PublishedFile, Recipe
from virnucpro.durable import refuse_links, require_regular
from virnucpro.encoders.base import EncoderSpec
from virnucpro.errors import BundleError
from virnucpro.extras import require_extra

_CARD: Final = """\
# {name}

{description}.

Weights of other authors, converted to safetensors with unchanged numbers. The licences of these
publications apply: {works}. The accuracy was not measured on this machine: see the publications.

| part | made from | identified by | published in |
|---|---|---|---|
{sources}
"""


def fetch_bundle(
    recipe: Recipe,
    data: DataFolder,
    listener: Listener,
    *,
    source: Path | None = None,
    patience: Patience | None = None,
    isolate: Isolate = call_directly,
) -> Bundle:
    """Fetch, verify and convert the files of a published bundle; install and return the bundle.

    An installed, undamaged bundle that was made from the recipe's files is kept. A damaged bundle
    is replaced. Code in the files is not executed. Downloads are kept until the bundle is
    installed, so a repeated fetch resumes.

    Parameters
    ----------
    recipe
        Name, files and addresses of the bundle, from `published.recipe_of`.
    data
        Data folder to install into.
    listener
        Receives the progress.
    source
        Folder that contains the published files under their published names; None: download them.
    patience
        Limits of retries.
    isolate
        Calls the functions that read the files; see `virnucpro.bundles.convert.Isolate`.

    Raises
    ------
    BundleError
        If another process installs a bundle, the disk is too small, a file is missing or is not
        the published file, or another bundle is installed under that name.
    UsageError
        If torch, which converts the files, is not installed.
    """
    fetch = _Fetch(recipe, data, listener)
    with data.lock():
        if (installed := fetch.verify_installed()) is not None:
            return installed
        require_extra("models", "bundle fetch")
        if source is None:
            paths = fetch.download(recipe.files, patience or Patience())
        else:
            paths = fetch.verified(recipe.files, source)
        fetch.install(paths, isolate)
        if source is None:
            for path in paths.values():
                path.unlink()
        return open_bundle(str(data.bundle(recipe.name)))


@dataclass(frozen=True, slots=True)
class _Fetch:
    """The steps to fetch and install one published bundle."""

    recipe: Recipe
    data: DataFolder
    listener: Listener

    def verify_installed(self) -> Bundle | None:
        """Verify the installed bundle of the recipe; return None if it is missing or damaged."""
        folder = self.data.bundle(self.recipe.name)
        if not folder.exists():
            return None
        self.listener.stage(f"verifying the installed bundle {folder}")
        try:
            bundle = open_bundle(str(folder))
        except BundleError as error:
            self.listener.stage(f"the installed bundle is damaged and will be replaced: {error}")
            return None
        if bundle.provenance.get("sources") != self.recipe.sources:
            raise BundleError(
                f"{folder}: this bundle was made from other files than the published "
                f"{self.recipe.name}. Remove or rename that folder, and fetch again."
            )
        return bundle

    def download(self, files: Sequence[PublishedFile], patience: Patience) -> dict[str, Path]:
        """Check the free disk space and download missing files; return all paths by file name."""
        urls = {file.name: file.url() for file in files}
        paths = {file.name: self.data.downloads / file.name for file in files}
        parts = [path.with_name(f"{path.name}.part") for path in paths.values()]
        refuse_links(parts)
        require_regular((*paths.values(), *parts))
        self.listener.stage(f"requesting the sizes of {len(files)} files")
        needed = 0
        for file in files:
            path = paths[file.name]
            if path.exists():
                needed += path.stat().st_size
                continue
            size = min(remote_size(file, urls[file.name], patience) or 0, file.max_bytes)
            part = path.with_name(f"{path.name}.part")
            here = part.stat().st_size if part.exists() else 0
            needed += size + max(0, size - here)  # the converted copy, the rest of the download
        require_space(self.data.downloads, needed)
        for file in files:
            download(file, urls[file.name], paths[file.name], patience, self.listener)
        return paths

    def verified(self, files: Sequence[PublishedFile], source: Path) -> dict[str, Path]:
        """Verify the published files in the folder `source`; return their paths by file name."""
        require_utf8(source)
        if not source.is_dir():
            raise BundleError(f"{source}: is not a folder. Give a folder with the published files.")
        paths = {file.name: source / file.name for file in files}
        missing = [file for file in files if not paths[file.name].is_file()]
        if missing:
            wanted = "".join(f"\n  {file.name} from {file.url()}" for file in missing)
            raise BundleError(
                f"{source}: {len(missing)} of the {len(files)} files are missing. Download them on "
                f"a machine with a network and copy them here under these names:{wanted}"
            )
        require_space(self.data.bundles, sum(path.stat().st_size for path in paths.values()))
        for file in files:
            self.listener.stage(f"verifying {paths[file.name]}")
            require_content(paths[file.name], file.checksum, str(source))
        return paths

    def install(self, paths: Mapping[str, Path], isolate: Isolate) -> None:
        """Convert head and encoders, write card and manifest; install all of it or nothing."""
        recipe, encoders, head = self.recipe, list[EncoderSpec](), None
        with self.data.staging(recipe.name) as folder:
            for encoder in recipe.encoders:
                self.listener.stage(f"converting {encoder.name}")
                files = [paths[file.name] for file in encoder.files]
                encoders.append(
                    convert_encoder(isolate, encoder.architecture, encoder.name, files, folder)
                )
            if recipe.head is not None:
                path = paths[recipe.head.name]
                head = folder / convert_isolated(isolate, path, convert_head, path, folder)
            (folder / "CARD.md").write_text(_card(recipe), encoding="utf-8")
            save_bundle(
                Bundle(
                    path=folder,
                    name=recipe.name,
                    version="1",
                    description=recipe.description,
                    encoders=tuple(encoders),
                    head=head,
                    window=recipe.window,
                    tiling="published",
                    genetic_code=1,
                    labels=("others", "virus") if head else (),
                    # the published tool: viral if the virus score is the higher one
                    thresholds={"viral": 0.5, "non_viral": 0.5} if head else {},
                    provenance={
                        "sources": recipe.sources,
                        "converted_by": f"virnucpro {__version__}",
                    },
                )
            )


def _card(recipe: Recipe) -> str:
    names = {str(one.view): f"{one.view}: {one.name}" for one in recipe.encoders}
    rows = [
        f"| {names.get(part, part)} | {file.name} | {file.checksum} | {HOMES[file.home].work} |"
        for part, files in recipe.parts.items()
        for file in files
    ]
    works = ", ".join(sorted({HOMES[file.home].work for file in recipe.files}))
    return _CARD.format(
        name=recipe.name, description=recipe.description, works=works, sources="\n".join(rows)
    )
