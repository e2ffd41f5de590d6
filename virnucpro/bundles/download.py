"""One file over HTTP: whole or resumable, in spite of whatever the network does.

urllib and http.client are all that is used: proxies are those of the environment. What has arrived
stays in ``<name>.part`` and is gone on with by a range request, on the condition that the file is
still the same (If-Range with the server's own validator, and its length).
"""

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import IO, Final, TypeVar

from virnucpro import __version__
from virnucpro.bundles.http_answers import (
    ChangedError,
    Placement,
    RefusedError,
    TransientError,
    judge_status,
    placement_of,
    size_of,
    validator_of,
)
from virnucpro.bundles.metered import handlers
from virnucpro.durable import sync_folder, write_file
from virnucpro.errors import BundleError

__all__ = ["Patience", "Progress", "download", "remote_size"]

T = TypeVar("T")

Progress = Callable[[str, int, int | None], None]
"""Hears the file's name, the bytes that have arrived, and those that are expected, if known."""

_NO_WORD_ON_THE_FILE: Final = frozenset(
    {HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
)
"""What servers say to HEAD although they would give the file: mirrors with signed addresses, some
proxies."""

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


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from an encrypted connection to a plain one."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            fp.close()
            raise RefusedError(
                f"it redirects from an encrypted connection to a plain one ({newurl})"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def remote_size(url: str, hint: str, patience: Patience, most: int) -> int | None:
    """Ask how many bytes a file has; None where the server does not say.

    See `download` for the parameters.

    Raises
    ------
    BundleError
        When it cannot be had at all; as `download`.
    """
    request = urllib.request.Request(url, method="HEAD", headers=_headers())  # noqa: S310 - http(s) alone, see published.py

    def ask() -> int | None:
        try:
            with _open(request, patience) as response:
                size = size_of(response.headers)
                _refuse_more_than(most, size)
                return size
        except RefusedError as error:
            if error.status in _NO_WORD_ON_THE_FILE:
                return None
            raise

    return _patiently(ask, lambda: 0, url, hint, patience)


def download(
    url: str,
    target: Path,
    hint: str,
    patience: Patience,
    most: int,
    progress: Progress | None = None,
) -> None:
    """Bring a file here; it appears under `target` when all of it has arrived.

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
    progress
        Hears how it goes.

    Raises
    ------
    BundleError
        When the server refuses, or the network fails too often in a row; the message names the
        address, what has arrived and what to do.
    OSError
        When it cannot be written here.
    """
    part = target.with_name(f"{target.name}.part")
    tell = progress or _nobody

    def bring() -> None:
        _attempt(url, part, patience, most, lambda have, size: tell(target.name, have, size))

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


def _attempt(
    url: str, part: Path, patience: Patience, most: int, tell: Callable[[int, int | None], None]
) -> None:
    """Bring all that is missing, or raise with whatever has arrived on the disk."""
    known, have = _read_notes(part, url), _size(part)
    if have and have == known.size:
        return
    headers = _headers()
    if have and known.validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": known.validator}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - as above
    try:
        with _open(request, patience) as response:
            placement = placement_of(response.status, response.headers, have, known.size)
            _refuse_more_than(most, placement.size)
            fresh = _Arrived(url, validator_of(response.headers), placement.size)
            _write_notes(part, replace(known, size=fresh.size) if placement.start else fresh)
            _receive(response, part, placement, most, tell)
    except _NothingBeyondError as whole:
        if not have:
            raise RefusedError("the server has none of its bytes to give (416)") from None
        if whole.size != have:
            part.unlink(missing_ok=True)
            raise ChangedError("the server's file has changed since the last attempt") from None
    except (ChangedError, _TooLongError):
        part.unlink(missing_ok=True)
        raise


class _NothingBeyondError(Exception):
    """The server has no byte beyond those that arrived (416); `size` is what it says it has."""

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self.size = size


class _TooLongError(RefusedError):
    """The server's file is another one, and nothing of it is worth keeping."""


def _refuse_more_than(most: int, size: int | None) -> None:
    if size is not None and size > most:
        raise _TooLongError(
            f"is not the published file: it has {size:,} bytes or more, and the published one "
            f"less than {most:,}"
        )


def _open(request: urllib.request.Request, patience: Patience) -> http.client.HTTPResponse:
    """Send a request through the environment's proxies; tell lasting failures from passing ones."""
    opener = urllib.request.build_opener(_SafeRedirects, *handlers(patience.window))
    try:
        response: http.client.HTTPResponse = opener.open(request, timeout=patience.silence)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise _NothingBeyondError(size_of(error.headers, beyond=True)) from None
            raise judge_status(error.code, error.reason, error.headers) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise RefusedError(f"its certificate cannot be trusted ({error.reason})") from None
        raise TransientError(f"cannot be reached ({error.reason})") from None
    except (ValueError, http.client.InvalidURL) as error:
        raise RefusedError(
            f"the address, or one that it redirects to, makes no sense ({error})"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(f"the connection failed ({error!r})") from None
    return response


def _receive(
    response: http.client.HTTPResponse,
    part: Path,
    placement: Placement,
    most: int,
    tell: Callable[[int, int | None], None],
) -> None:
    have = placement.start
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


def _read(response: http.client.HTTPResponse) -> bytes:
    """Read what there is, apart from the writing: only errors of the network are the network's."""
    try:
        return response.read1(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(f"the connection broke off ({error!r})") from None


def _headers() -> dict[str, str]:
    return {"User-Agent": f"virnucpro/{__version__}", "Accept-Encoding": "identity"}


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
        known = _Arrived(**json.loads(_notes(part).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return _Arrived(url, None, None)
    return known if known.url == url else _Arrived(url, None, None)
