"""Connections that are given up when they bring next to nothing for a long time."""

import http.client
import io
import socket
import time
import urllib.request
from collections.abc import Callable
from typing import Final

__all__ = ["handlers"]

_LEAST_RATE: Final = 1_000
"""Bytes a second, of status, headers and content together: a telephone line brings more."""


class _Metered(io.RawIOBase):
    """What arrives on a connection, as long as enough of it does."""

    def __init__(self, source: io.RawIOBase, window: float) -> None:
        super().__init__()
        self._source = source
        self._window = window
        self._waited, self._arrived = 0.0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]  # any buffer
        started = time.monotonic()
        count = self._source.readinto(buffer)
        self._waited += time.monotonic() - started
        self._arrived += count or 0
        if self._waited >= self._window:
            if self._arrived < _LEAST_RATE * self._window:
                raise TimeoutError(
                    f"{self._arrived:,} bytes came in {self._waited:,.0f} seconds, which is too few"
                )
            self._waited, self._arrived = 0.0, 0
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


def handlers(window: float) -> tuple[urllib.request.BaseHandler, ...]:
    """Make urllib's handlers of http and https that hold every connection against a least rate.

    A socket's own timeout starts anew with every byte: a server that sends one a second would be
    listened to for ever.

    Parameters
    ----------
    window
        Seconds of waiting over which the rate is measured; writing does not count.
    """

    class Response(http.client.HTTPResponse):
        def __init__(
            self,
            sock: socket.socket,
            debuglevel: int = 0,
            method: str | None = None,
            url: str | None = None,
        ) -> None:
            super().__init__(sock, debuglevel, method, url)
            self.fp = io.BufferedReader(_Metered(self.fp.detach(), window))

    class Plain(http.client.HTTPConnection):
        response_class = Response

    class Encrypted(http.client.HTTPSConnection):
        response_class = Response

    return _OverHttp(Plain), _OverHttps(Encrypted)


class _OverHttp(urllib.request.HTTPHandler):
    def __init__(self, connection: Callable[..., http.client.HTTPConnection]) -> None:
        super().__init__()
        self._connection = connection

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)


class _OverHttps(urllib.request.HTTPSHandler):
    def __init__(self, connection: Callable[..., http.client.HTTPSConnection]) -> None:
        super().__init__()
        self._connection = connection

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)
