"""A file server on 127.0.0.1 with planned faults."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class FaultyServer(ThreadingHTTPServer):
    """Serves the files of a folder by their last names, with ranges and ETags.

    ``faults[name]`` is a list: each request of that file takes the first fault; without a fault the
    file is served as it is. ``always[name]`` is the fault of every request. ``requests`` lists
    (method, target, Range header) of every request.
    """

    daemon_threads = False

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.faults: dict[str, list] = {}
        self.always: dict[str, object] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.released = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self.released.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request, client_address):
        """Ignore clients that close the connection."""

    def asked(self, name: str) -> list[str | None]:
        """Return the Range headers of all GETs of a file."""
        return [
            given
            for method, target, given in self.requests
            if method == "GET" and target.endswith(name)
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def log_message(self, *_message):
        pass

    def do_GET(self):
        self.server.requests.append(("GET", self.path, self.headers["Range"]))
        name = self._name()
        queue = self.server.faults.get(name)
        self._serve(name, queue.pop(0) if queue else self.server.always.get(name))

    def _name(self):
        return urlsplit(self.path).path.rpartition("/")[2]

    def _serve(self, name, fault):
        path = self.server.folder / name
        if isinstance(fault, int):
            return self._status(fault)
        if not path.is_file():
            return self._status(404)
        content = path.read_bytes()
        if callable(fault):
            content, fault = fault(content), None
        return getattr(self, f"_{fault or 'whole'}")(content)

    def _status(self, status, **headers):
        self.send_response(status)
        body = b"<html>something else</html>"
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self._body(body)

    def _body(self, body):
        self.wfile.write(body)
        self.wfile.flush()

    def _head(self, status, length, **headers):
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()

    def _range(self):
        given = self.headers["Range"]
        return None if given is None else int(given.removeprefix("bytes=").removesuffix("-"))

    def _whole(self, content):
        start = self._range()
        if start is None:
            self._head(200, len(content))
            self._body(content)
        elif start >= len(content):
            self._head(416, 0, Content_Range=f"bytes */{len(content)}")
        else:
            size = len(content)
            span = f"bytes {start}-{size - 1}/{size}"
            self._head(206, size - start, Content_Range=span)
            self._body(content[start:])

    def _ends_early(self, content):
        """Send half of the remaining bytes and close the connection."""
        start = self._range() or 0
        rest = content[start:]
        if start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._head(206, len(rest), Content_Range=span)
        else:
            self._head(200, len(rest))
        self._body(rest[: len(rest) // 2])
        self.close_connection = True

    def _length_too_large(self, content):
        self._head(200, len(content) + 1000)
        self._body(content)
        self.close_connection = True

    def _length_too_small(self, content):
        self._head(200, len(content) // 2)
        self._body(content)
        self.close_connection = True

    def _no_length(self, content):
        self._head(200, None, Connection="close")
        self._body(content)
        self.close_connection = True

    def _no_length_ends_early(self, content):
        self._no_length(content[: len(content) // 2])

    def _chunked(self, content):
        self._head(200, None, Transfer_Encoding="chunked")
        self._body(b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))

    def _chunked_ends_early(self, content):
        self._head(200, None, Transfer_Encoding="chunked")
        self._body(b"%x\r\n%s" % (len(content), content[: len(content) // 2]))
        self.close_connection = True

    def _ignores_ranges(self, content):
        self._head(200, len(content))
        self._body(content)

    def _wrong_range(self, content):
        size = len(content)
        self._head(206, size, Content_Range=f"bytes 0-{size - 1}/{size}")
        self._body(content)

    def _stalls(self, content):
        self._head(200, len(content))
        self._body(content[: len(content) // 2])
        self.server.released.wait(10)
        self.close_connection = True

    def _slow(self, content):
        self._head(200, len(content))
        step = max(1, len(content) // 5)
        for first in range(0, len(content), step):
            self._body(content[first : first + step])
            self.server.released.wait(0.02)

    def _redirects(self, _content):
        self._status(302, Location=f"{self.server.url}/elsewhere/{self._name()}?signed=1")

    def _redirects_endlessly(self, _content):
        self._status(302, Location=self.path)

    def _redirects_to_a_file(self, _content):
        self._status(302, Location="file:///etc/hostname")

    def _chunked_wrong_content(self, content):
        self._chunked(bytes(len(content)))

    def _closes_connection(self, _content):
        self.close_connection = True

    def _malformed_answer(self, _content):
        self.wfile.write(b"this is no answer\r\n\r\n")
        self.close_connection = True

    def _endless(self, _content):
        self._head(200, None, Connection="close")
        while not self.server.released.is_set():
            self._body(bytes(100_000))

    def _length_far_too_large(self, content):
        self._head(200, 10 * len(content))
        self._body(content)

    def _redirects_to_malformed_address(self, _content):
        self._status(302, Location="http://[::1/x")
