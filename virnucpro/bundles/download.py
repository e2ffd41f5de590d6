"""One file over HTTP: whole or resumable, in spite of whatever the network does.

What has arrived stays in ``<name>.part`` and is gone on with by a range request, on the condition
that the file is still the same (If-Range with the server's own validator, and its length).
"""

import http.client
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from virnucpro.bundles.connection import NothingBeyondError, open_address
from virnucpro.bundles.http_answers import (
    ChangedError,
    Placement,
    RefusedError,
    TransientError,
    placement_of,
    size_of,
    validator_of,
)
from virnucpro.durable import sync_folder, write_file
from virnucpro.errors import BundleError

__all__ = ["Patience", "Progress", "download", "remote_size", "require"]

T = TypeVar("T")

Progress = Callable[[str, int, int | None], None]
"""Hears the file's name, the bytes that have arrived, and those that are expected, if known."""

_BLOCK: Final = 1 << 18
_PROGRESS_BYTES: Final = 1 << 20
"""An attempt that brought as much as this was worth it: patience starts anew."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to put up with a network.

    Attributes
    ----------
    attempts
        In a row that bring less than a megabyte each.
    first_wait, longest_wait
        Seconds between attempts; each wait is twice the one before, up to the longest.
    silence
        Seconds without a byte after which a connection is given up.
    window
        Seconds of waiting in which a connection has to bring a least number of bytes.
    """

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 60.0
    silence: float = 30.0
    window: float = 60.0


@dataclass(frozen=True, slots=True)
class _Arrived:
    """What is known of a file of which a part has arrived; kept beside the part."""

    url: str
    validator: str | None
    size: int | None


def remote_size(url: str, hint: str, patience: Patience, most: int) -> int | None:
    """Ask how many bytes a file has; None where the server does not say.

    A server that fails to answer HEAD, in whatever way, may give the file all the same: it is asked
    by a GET then, whose content is not read. See `download` for the parameters.

    Raises
    ------
    BundleError
        When it cannot be had at all; as `download`.
    """

    def ask(method: str) -> int | None:
        with _open(url, {}, patience, method) as response:
            size = size_of(response.headers)
            _refuse_more_than(most, size)
            return size

    try:
        return ask("HEAD")
    except (RefusedError, TransientError):
        return _patiently(lambda: ask("GET"), lambda: 0, url, hint, patience)


def download(
    url: str,
    target: Path,
    hint: str,
    patience: Patience,
    most: int,
    check: Callable[[Path], None],
    progress: Progress | None = None,
) -> None:
    """Bring a file here; it appears under `target` when all of it has arrived.

    A server that says neither the length nor where the content ends may have broken off: what does
    not pass the check then is gone on with. Of a content that is whole nothing is kept.

    Parameters
    ----------
    url
        Its address, http or https.
    target
        Where to put it. ``<name>.part`` beside it holds what has arrived, for the next attempt.
    hint
        What a user may do when the server does not serve: ends the message of every error.
    patience
        When to give up.
    most
        Bytes that the file does not exceed: what is longer is refused as soon as that is known.
    check
        Raises BundleError where a file is not the one that was wanted.
    progress
        Hears how it goes.

    Raises
    ------
    BundleError
        When the server refuses, when the network fails too often in a row, or when what arrived is
        another file; the message names the address, what has arrived and what to do.
    OSError
        When it cannot be written here.
    """
    part = target.with_name(f"{target.name}.part")
    tell = progress or _nobody

    def bring() -> None:
        whole = _attempt(
            url, part, patience, most, lambda have, size: tell(target.name, have, size)
        )
        if whole:
            require(part, check, hint)
        else:
            _require_or_ask_for_more(part, check)

    _patiently(bring, lambda: _size(part), url, hint, patience)
    part.replace(target)
    sync_folder(target.parent)
    _notes(part).unlink(missing_ok=True)


def _patiently(
    act: Callable[[], T], arrived: Callable[[], int], url: str, hint: str, patience: Patience
) -> T:
    """Repeat what fails in passing, ever more slowly, and give up in the end.

    Only what goes beyond all that ever arrived is progress: what a server makes us throw away and
    fetch again is none.
    """
    failures, wait, furthest = 0, patience.first_wait, arrived()
    while True:
        try:
            return act()
        except RefusedError as error:
            raise BundleError(f"{url}: {error}. {hint}") from None
        except TransientError as error:
            if arrived() - furthest >= _PROGRESS_BYTES:
                failures, wait = 0, patience.first_wait
            furthest = max(furthest, arrived())
            failures += 1
            if failures >= patience.attempts:
                have = arrived()
                kept = f" {have:,} bytes have arrived and are kept." if have else ""
                raise BundleError(
                    f"{url}: {error}, {failures} times in a row.{kept} "
                    f"Repeat the command later: it goes on where it stopped. {hint}"
                ) from None
            time.sleep(min(max(wait, error.wait), patience.longest_wait))
            wait *= 2


def require(path: Path, check: Callable[[Path], None], hint: str) -> None:
    """Hold a whole file against `check`, as `download` takes it; remove what is another file.

    Raises
    ------
    BundleError
        As `check`, with a note that it has been removed.
    """
    try:
        check(path)
    except BundleError as error:
        path.unlink()
        error.add_note(f"It has been removed: the same command fetches it anew. {hint}")
        raise


def _require_or_ask_for_more(part: Path, check: Callable[[Path], None]) -> None:
    try:
        check(part)
    except BundleError:
        raise TransientError(
            f"the connection ended after {_size(part):,} bytes, the server had not said how many "
            "there are, and what arrived is not the published file"
        ) from None


def _attempt(
    url: str, part: Path, patience: Patience, most: int, tell: Callable[[int, int | None], None]
) -> bool:
    """Bring all that is missing, or raise with whatever has arrived on the disk.

    Returns
    -------
    Whether it is certain that nothing is missing.
    """
    known, have = _read_notes(part, url), _size(part)
    if have and have == known.size:
        return True
    headers = {}
    if have and known.validator:
        headers = {"Range": f"bytes={have}-", "If-Range": known.validator}
    try:
        with _open(url, headers, patience) as response:
            placement = placement_of(response.status, response.headers, have, known.size)
            _refuse_more_than(most, placement.size)
            fresh = _Arrived(url, validator_of(response.headers), placement.size)
            _write_notes(part, replace(known, size=fresh.size) if placement.start else fresh)
            return _receive(response, part, placement, most, tell)
    except NothingBeyondError as whole:
        if whole.size != have:
            part.unlink(missing_ok=True)
            raise ChangedError("the server's file has changed since the last attempt") from None
        return True
    except (ChangedError, _TooLongError):
        part.unlink(missing_ok=True)
        raise


class _TooLongError(RefusedError):
    """The server's file is another one, and nothing of it is worth keeping."""


def _refuse_more_than(most: int, size: int | None) -> None:
    if size is not None and size > most:
        raise _TooLongError(
            f"is not the published file: it has {size:,} bytes or more, and the published one "
            f"less than {most:,}"
        )


def _open(
    url: str, headers: Mapping[str, str], patience: Patience, method: str = "GET"
) -> http.client.HTTPResponse:
    return open_address(
        url, headers, silence=patience.silence, window=patience.window, method=method
    )


def _receive(
    response: http.client.HTTPResponse,
    part: Path,
    placement: Placement,
    most: int,
    tell: Callable[[int, int | None], None],
) -> bool:
    """Write what arrives behind what there is; say whether its end was the content's."""
    have = placement.start
    # the end of a range need not be the file's
    framed = not have and (response.length is not None or response.chunked)
    with part.open("r+b" if have else "wb") as stream:
        stream.seek(have)
        stream.truncate()
        tell(have, placement.size)
        while block := _read(response):
            stream.write(block)
            stream.flush()
            have += len(block)
            _refuse_more_than(most, have)
            tell(have, placement.size)
        os.fsync(stream.fileno())
    if placement.size is not None and have != placement.size:
        raise TransientError(f"the connection ended after {have:,} of {placement.size:,} bytes")
    return framed or placement.size is not None


def _read(response: http.client.HTTPResponse) -> bytes:
    """Read what there is, apart from the writing: only errors of the network are the network's."""
    try:
        return response.read1(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(f"the connection broke off ({error!r})") from None


def _nobody(_name: str, _have: int, _size: int | None) -> None:
    """Hear nothing."""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _notes(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _write_notes(part: Path, known: _Arrived) -> None:
    with write_file(_notes(part), lasting=False) as stream:
        stream.write(json.dumps(asdict(known)).encode())


def _read_notes(part: Path, url: str) -> _Arrived:
    """Recall what a part belongs to; without a note of this very address it belongs to nothing."""
    try:
        content = json.loads(_notes(part).read_bytes())
    except (FileNotFoundError, ValueError):
        content = None
    match content:
        case {
            "url": str(known),
            "validator": str() | None as validator,
            "size": int() | None as size,
        }:
            if known == url:
                return _Arrived(url, validator, size)
    return _Arrived(url, None, None)
