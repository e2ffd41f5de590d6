"""A published bundle, from its homes on the net or from a folder of its files, installed."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.bundles.assemble import Parts, install
from virnucpro.bundles.bundle import Bundle, open_bundle
from virnucpro.bundles.checksums import require_content
from virnucpro.bundles.claims import claimed_sources, refuse_other_content, told_of_trust
from virnucpro.bundles.convert import HEAD, convert_dnabert_s, convert_esm2, convert_head
from virnucpro.bundles.data_folder import DataFolder, require_space, require_text
from virnucpro.bundles.download import Patience, Progress, download, remote_size, require
from virnucpro.bundles.manifest import EncoderEntry, read_manifest
from virnucpro.bundles.published import HEAD_PART, EncoderSource, PublishedFile, Recipe, sources_of
from virnucpro.bundles.shared_files import InstalledEncoder, find_encoder
from virnucpro.encoders.dnabert_s_config import DnabertSFiles
from virnucpro.errors import BundleError

__all__ = ["Listener", "fetch_bundle"]


@dataclass(frozen=True, slots=True)
class Listener:
    """Hears how a fetch goes: a line for each stage, and the bytes of each file."""

    stage: Callable[[str], None]
    progress: Progress


def fetch_bundle(
    recipe: Recipe,
    data: DataFolder,
    listener: Listener,
    *,
    source: Path | None = None,
    patience: Patience | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Bundle:
    """Get a published bundle's files, verify, convert and install them.

    What is installed and whole stays as it is, and what it says that it was made from is held
    against the recipe; what is damaged is replaced. Nothing of what is fetched is run. What has
    arrived stays in the data folder until the bundle is installed, so that a repeated fetch goes on
    where the last one stopped.

    Parameters
    ----------
    recipe
        From `published.recipe_of`.
    data
        Where to install.
    listener
        Hears how it goes.
    source
        A folder with the published files under their own names, instead of the net.
    patience
        When to give up on the network.
    environ
        Names mirrors; proxies are those of the process's own environment.

    Raises
    ------
    BundleError
        When another process is at work in the data folder, the disk is too small, a file cannot be
        had, or is not the published one; when something else is installed under that name.
    """
    with data.lock():
        installed = _installed(recipe, data, listener)
        if installed is not None:
            return installed
        shared: dict[str, InstalledEncoder] = {
            encoder.view: found
            for encoder in recipe.encoders
            if (found := find_encoder(data, encoder)) is not None
        }
        wanted = _files(recipe, shared)
        if source is None:
            paths = _downloaded(wanted, data, listener, patience or Patience(), environ)
        else:
            paths = _given(wanted, data, source, listener, environ)
        _assemble(recipe, data, shared, paths, listener)
        if source is None:
            for path in paths.values():
                path.unlink()
        return open_bundle(str(data.bundle(recipe.name)))


def _installed(recipe: Recipe, data: DataFolder, listener: Listener) -> Bundle | None:
    folder = data.bundle(recipe.name)
    if not folder.exists():
        return None
    listener.stage(f"verifying {folder}, which is installed")
    try:
        bundle = open_bundle(str(folder))
    except BundleError as error:
        listener.stage(f"what is installed is damaged, and is replaced: {error}")
        return None
    advice = f"It is installed in {folder}: remove that folder, or rename it, and fetch again."
    refuse_other_content(recipe.name, claimed_sources(read_manifest(folder)), bundle.window, advice)
    told = told_of_trust(data, recipe.name)
    if told is not None:
        listener.stage(told)
    return bundle


def _files(recipe: Recipe, shared: Mapping[str, InstalledEncoder]) -> list[PublishedFile]:
    encoders = (one for one in recipe.encoders if one.view not in shared)
    files = [file for encoder in encoders for file in encoder.files]
    return files if recipe.head is None else [*files, recipe.head]


def _downloaded(
    files: Sequence[PublishedFile],
    data: DataFolder,
    listener: Listener,
    patience: Patience,
    environ: Mapping[str, str],
) -> dict[str, Path]:
    """Bring what is not there yet; a file that is not the published one is removed."""
    urls = {file.name: file.url(environ) for file in files}
    paths = {file.name: data.downloads / file.name for file in files}
    missing = [file for file in files if not paths[file.name].exists()]
    listener.stage(f"asking for {len(missing)} files")
    sizes = {
        file.name: remote_size(urls[file.name], _hint(file), patience, file.most_bytes) or 0
        for file in missing
    }
    require_space(data.downloads, _bytes_to_write(files, paths, sizes))
    for file in files:
        path, check = paths[file.name], _check(file, urls[file.name], listener)
        if file in missing:
            listener.stage(f"fetching {urls[file.name]}")
            download(
                urls[file.name],
                path,
                _hint(file),
                patience,
                file.most_bytes,
                check,
                listener.progress,
            )
        else:
            require(path, check, _hint(file))
    return paths


def _check(file: PublishedFile, url: str, listener: Listener) -> Callable[[Path], None]:
    def check(path: Path) -> None:
        listener.stage(f"verifying {file.name}")
        require_content(path, file.checksum, url)

    return check


def _bytes_to_write(
    files: Sequence[PublishedFile], paths: Mapping[str, Path], sizes: Mapping[str, int]
) -> int:
    """Count what has yet to arrive, and the converted copy of everything."""
    total = 0
    for file in files:
        path = paths[file.name]
        part = path.with_name(f"{path.name}.part")
        whole = path.stat().st_size if path.exists() else sizes[file.name]
        have = whole if path.exists() else part.stat().st_size if part.exists() else 0
        total += whole + max(0, whole - have)
    return total


def _given(
    files: Sequence[PublishedFile],
    data: DataFolder,
    source: Path,
    listener: Listener,
    environ: Mapping[str, str],
) -> dict[str, Path]:
    """Use the files of a folder where they lie."""
    require_text(source)
    if not source.is_dir():
        raise BundleError(f"{source}: is no folder. Give one that holds the published files.")
    paths = {file.name: source / file.name for file in files}
    absent = [file for file in files if not paths[file.name].is_file()]
    if absent:
        wanted = "".join(f"\n  {file.name} from {file.url(environ)}" for file in absent)
        raise BundleError(
            f"{source}: lacks {len(absent)} of the {len(files)} files. Where there is a network, "
            f"get them, and put them into that folder under these names:{wanted}"
        )
    require_space(data.bundles, sum(path.stat().st_size for path in paths.values()))
    for file in files:
        listener.stage(f"verifying {paths[file.name]}")
        require_content(paths[file.name], file.checksum, str(source))
    return paths


def _hint(file: PublishedFile) -> str:
    return (
        f"A mirror may have it (set {file.mirror_variable}), a proxy may be needed (https_proxy), "
        "or bring the files from elsewhere (--from DIR)."
    )


def _assemble(
    recipe: Recipe,
    data: DataFolder,
    shared: Mapping[str, InstalledEncoder],
    paths: Mapping[str, Path],
    listener: Listener,
) -> None:
    parts = Parts(recipe.name, recipe.description, window=recipe.window)
    with install(data, parts) as folder:
        for encoder in recipe.encoders:
            listener.stage(f"converting {encoder.name}")
            found = shared.get(encoder.view)
            entry = _convert(encoder, paths, folder) if found is None else found.link_into(folder)
            parts.encoders.append(entry)
            parts.sources[encoder.view] = sources_of(encoder.files)
        if recipe.head is not None:
            convert_head(paths[recipe.head.name], folder)
            parts.head = HEAD
            parts.sources[HEAD_PART] = sources_of((recipe.head,))


def _convert(encoder: EncoderSource, paths: Mapping[str, Path], folder: Path) -> EncoderEntry:
    own = [paths[file.name] for file in encoder.files]
    if encoder.architecture == "esm2":
        return convert_esm2(encoder.name, own[0], folder)
    return convert_dnabert_s(encoder.name, DnabertSFiles(*own), folder)
