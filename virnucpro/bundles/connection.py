"""Connections over HTTP, as a download needs them: measured, redirected with care, judged.

urllib and http.client are all that is used: proxies are those of the environment.
"""

import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import IO, Final

from virnucpro import __version__
from virnucpro.bundles.http_answers import RefusedError, TransientError, judge_status, size_of
from virnucpro.bundles.metered import handlers

__all__ = ["NothingBeyondError", "open_address"]

_ALWAYS: Final = {"User-Agent": f"virnucpro/{__version__}", "Accept-Encoding": "identity"}


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects over http and https, but never from an encrypted connection to a plain one.

    urllib itself would follow to ftp, where nothing here measures what arrives.
    """

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
    ) -> http.client.HTTPResponse | None:
        target = urllib.parse.urljoin(req.full_url, headers.get("Location", ""))
        if urllib.parse.urlsplit(target).scheme not in ("http", "https"):
            fp.close()
            raise RefusedError(f"it redirects to {target}, and only http and https are followed")
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

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
        before: dict[str, int] = getattr(req, "redirect_dict", {})
        if before.get(newurl, 0) >= self.max_repeats or len(before) >= self.max_redirections:
            fp.close()
            raise RefusedError(f"it redirects again and again, the last time to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class NothingBeyondError(Exception):
    """The server has no byte beyond those that arrived (416); `size` is what it says it has."""

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self.size = size


def open_address(
    url: str,
    headers: Mapping[str, str],
    *,
    silence: float,
    window: float,
    method: str = "GET",
) -> http.client.HTTPResponse:
    """Ask for an address through the environment's proxies.

    Parameters
    ----------
    url
        Its address, http or https.
    headers
        Beside those of every request.
    silence
        Seconds without a byte after which it is given up.
    window
        Seconds of waiting in which it has to bring a least number of bytes.
    method
        HEAD or GET.

    Raises
    ------
    RefusedError
        When asking again would not help.
    TransientError
        When it may.
    NothingBeyondError
        When a range that was asked for begins behind the end.
    """
    request = urllib.request.Request(url, headers={**_ALWAYS, **headers}, method=method)  # noqa: S310 - http(s) alone, see published.py
    opener = urllib.request.build_opener(_SafeRedirects, *handlers(window))
    try:
        response: http.client.HTTPResponse = opener.open(request, timeout=silence)
    except urllib.error.HTTPError as error:
        with error:
            beyond = error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            if beyond and "Range" in headers:
                raise NothingBeyondError(size_of(error.headers, beyond=True)) from None
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
