"""Download one published file over HTTP, resume after an interruption, and verify its checksum.

An interrupted download stays in ``<name>.part``, and a range request fetches the rest. Checksums
are fixed in the source code, so the server's headers about the content are not checked.
"""

import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar

from virnucpro import __version__
from virnucpro.bundles.checksums import require_content
from virnucpro.bundles.published import PublishedFile
from virnucpro.durable import sync_folder
from virnucpro.errors import BundleError

T = TypeVar("T")

_HEADERS: Final = {"User-Agent": f"virnucpro/{__version__}", "Accept-Encoding": "identity"}
_BLOCK_BYTES: Final = 1 << 18
_PROGRESS_BYTES: Final = 1 << 20
"""Number of new bytes in one attempt that resets the count of failed attempts."""
_RETRIED: Final = (408, 425, 429)
"""HTTP codes below 500 that are retried: request timeout, too early, too many requests."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of retries.

    Attributes
    ----------
    attempts
        Maximum number of consecutive failed attempts. An attempt that fetches at least 1 MiB resets
        the count.
    first_wait, longest_wait
        First and longest wait between attempts, in seconds. Each wait is twice the previous wait,
        up to `longest_wait`.
    silence
        Seconds without data after which an attempt fails.
    """

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 60.0
    silence: float = 30.0


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks for the progress of a fetch.

    Attributes
    ----------
    stage
        Called with a line of text for each step.
    progress
        Called with a file's name, the bytes received so far, and the expected bytes if known.
    """

    stage: Callable[[str], None]
    progress: Callable[[str, int, int | None], None]


class _RefusedError(Exception):
    """A download error that is not retried."""


class _TransientError(Exception):
    """A download error that is retried."""


def remote_size(file: PublishedFile, url: str, patience: Patience) -> int | None:
    """Ask the server for a file's size in bytes; return None if the server does not report it.

    Raises
    ------
    BundleError
        As `download`.
    """
    source = _Source(file, url, patience)
    return source.retry(source.size)


def download(
    file: PublishedFile, url: str, target: Path, patience: Patience, listener: Listener
) -> None:
    """Download a file; create `target` only after the complete content is verified.

    A resumed file with a wrong checksum is downloaded once more from its first byte. A complete
    `target` of an earlier call is verified and kept.

    Parameters
    ----------
    file
        The published file.
    url
        Address of the file, http or https. Proxies are those of the environment.
    target
        Path of the complete file.
    patience
        Limits of retries.
    listener
        Receives the progress.

    Raises
    ------
    BundleError
        If the server refuses the request, too many attempts fail, or the content is not
        the published content; the message has the address and the next step.
    OSError
        If the file cannot be written.
    """

    def verify(path: Path) -> None:
        listener.stage(f"verifying {file.name}")
        require_content(path, file.checksum, url)

    if target.exists():
        try:
            verify(target)
        except BundleError:
            target.unlink()
        else:
            return
    source, part = _Source(file, url, patience), target.with_name(f"{target.name}.part")
    listener.stage(f"fetching {url}")
    for last in (False, True):
        resumed = source.retry(lambda: source.receive(part, listener), part)
        try:
            verify(part)
            break
        except BundleError as error:
            part.unlink()
            if last or not resumed:
                error.add_note(f"The downloaded file was removed. {file.advice}")
                raise
    part.replace(target)
    sync_folder(target.parent)


@dataclass(frozen=True, slots=True)
class _Source:
    """One published file at one address, requested with retries."""

    file: PublishedFile
    url: str
    patience: Patience

    def retry(self, act: Callable[[], T], part: Path | None = None) -> T:
        """Call `act`, repeat the call after transient errors, and return its result.

        Each wait is twice the previous wait. Progress of at least 1 MiB resets the wait and the
        number of failures. Only bytes beyond the largest size of `part` so far count as progress:
        a server may ignore range requests and send the same first bytes each time.

        Raises
        ------
        BundleError
            If the server refuses the request, or `patience.attempts` consecutive attempts fail.
        """
        failures, wait, largest = 0, self.patience.first_wait, _size(part)
        while True:
            try:
                return act()
            except _RefusedError as error:
                raise BundleError(f"{self.url}: {error}. {self.file.advice}") from None
            except _TransientError as error:
                here = _size(part)
                if here - largest >= _PROGRESS_BYTES:
                    failures, wait = 0, self.patience.first_wait
                largest = max(largest, here)
                failures += 1
                if failures >= self.patience.attempts:
                    kept = f" {here:,} downloaded bytes are kept." if here else ""
                    raise BundleError(
                        f"{self.url}: {error}. All {failures} attempts failed.{kept} "
                        f"Rerun the command later to resume. {self.file.advice}"
                    ) from None
            time.sleep(wait)
            wait = min(2 * wait, self.patience.longest_wait)

    def size(self) -> int | None:
        """Ask the server for the file's size in bytes; return None if the size is unknown."""
        response = self._open(0)
        if response is None:
            return None
        with response:
            return response.length

    def receive(self, part: Path, listener: Listener) -> bool:
        """Append the missing bytes to `part`; return whether an earlier download was resumed."""
        here = _size(part)
        response = self._open(here)
        if response is None:
            return True
        with response:
            if response.status != HTTPStatus.PARTIAL_CONTENT:
                here = 0
            resumed = here > 0
            size = None if response.length is None else here + response.length
            with part.open("ab" if resumed else "wb") as stream:
                # A file longer than max_bytes later fails its checksum.
                while here <= self.file.max_bytes and (block := _read(response)):
                    stream.write(block)
                    here += len(block)
                    listener.progress(self.file.name, here, size)
                stream.flush()
                os.fsync(stream.fileno())
        if size is not None and here < min(size, self.file.max_bytes):
            raise _TransientError(f"the connection ended after {here:,} of {size:,} bytes")
        return resumed

    def _open(self, start: int) -> http.client.HTTPResponse | None:
        """Request the file from byte `start`; return the response, or None if no bytes follow."""
        headers = {**_HEADERS, "Range": f"bytes={start}-"} if start else _HEADERS
        try:
            request = urllib.request.Request(self.url, headers=headers)  # noqa: S310 - http(s), see published.py
            response: http.client.HTTPResponse = urllib.request.build_opener().open(
                request, timeout=self.patience.silence
            )
        except urllib.error.HTTPError as error:
            with error:
                if start and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return None
                reason = " ".join(str(error.reason).split())
                transient = error.code in _RETRIED or error.code >= 500
                kind = _TransientError if transient else _RefusedError
                raise kind(f"the server answered {error.code} {reason}") from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise _RefusedError(f"its certificate is not trusted ({error.reason})") from None
            raise _TransientError(f"no connection ({error.reason})") from None
        except (ValueError, http.client.InvalidURL) as error:
            raise _RefusedError(f"the address is malformed ({error})") from None
        except (OSError, http.client.HTTPException) as error:
            raise _TransientError(f"the connection failed ({error!r})") from None
        return response


def _read(response: http.client.HTTPResponse) -> bytes:
    """Return the next bytes of a response; raise _TransientError after a network error."""
    try:
        return response.read1(_BLOCK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _TransientError(f"the connection was interrupted ({error!r})") from None


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None and path.exists() else 0
