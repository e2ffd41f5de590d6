"""A file server on 127.0.0.1 that does to each request what its list of faults says."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class FaultyServer(ThreadingHTTPServer):
    """Serves the files of a folder by their last names, with ranges and ETags.

    ``faults[name]`` is a list: each GET of that file takes the first one out and suffers it, and
    when none is left the file is served as it is. ``always[name]`` is suffered by every GET.
    ``requests`` lists (method, target, Range header) of everything that was asked for.
    """

    daemon_threads = False

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.faults: dict[str, list] = {}
        self.always: dict[str, object] = {}
        self.head_faults: dict[str, object] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.released = threading.Event()
        self.etag = '"one"'
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
        """A client that goes away is what the tests are about."""

    def asked(self, name: str) -> list[str | None]:
        """The Range headers of all GETs of a file."""
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

    def do_HEAD(self):
        self.server.requests.append(("HEAD", self.path, None))
        name = self._name()
        self._serve(name, self.server.head_faults.get(name, self.server.always.get(name)))

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
        if self.command == "GET":
            self.wfile.write(body)
            self.wfile.flush()

    def _head(self, status, length, etag=None, **headers):
        self.send_response(status)
        self.send_header("ETag", etag or self.server.etag)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()

    def _range(self):
        given = self.headers["Range"]
        if given is None or self.headers["If-Range"] not in (None, self.server.etag):
            return None
        return int(given.removeprefix("bytes=").removesuffix("-"))

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

    def _break_off(self, content):
        """Half of what is left, then the connection ends."""
        start = self._range() or 0
        rest = content[start:]
        if start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._head(206, len(rest), Content_Range=span)
        else:
            self._head(200, len(rest))
        self._body(rest[: len(rest) // 2])
        self.close_connection = True

    def _says_longer(self, content):
        self._head(200, len(content) + 1000)
        self._body(content)
        self.close_connection = True

    def _says_shorter(self, content):
        self._head(200, len(content) // 2)
        self._body(content)
        self.close_connection = True

    def _says_no_length(self, content):
        self._head(200, None, Connection="close")
        self._body(content)
        self.close_connection = True

    def _no_length_and_breaks_off(self, content):
        self._says_no_length(content[: len(content) // 2])

    def _chunked(self, content):
        self._head(200, None, Transfer_Encoding="chunked")
        self._body(b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))

    def _chunked_and_breaks_off(self, content):
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

    def _other_size(self, content):
        start = self._range() or 0
        span = f"bytes {start}-{len(content) + 9}/{len(content) + 10}"
        self._head(206, len(content) + 10 - start, Content_Range=span)
        self._body(content[start:] + bytes(10))

    def _not_that_range(self, _content):
        self._head(416, 0, Content_Range="bytes */5")

    def _stalls(self, content):
        self._head(200, len(content))
        self._body(content[: len(content) // 2])
        self.server.released.wait(10)
        self.close_connection = True

    def _trickles(self, content):
        self._head(200, len(content))
        step = max(1, len(content) // 5)
        for first in range(0, len(content), step):
            self._body(content[first : first + step])
            self.server.released.wait(0.02)

    def _redirects(self, _content):
        self._status(302, Location=f"{self.server.url}/elsewhere/{self._name()}?signed=1")

    def _redirects_for_ever(self, _content):
        self._status(302, Location=self.path)

    def _redirects_ever_further(self, _content):
        self._status(302, Location=f"/further{self.path}")

    def _redirects_to_a_file(self, _content):
        self._status(302, Location="file:///etc/hostname")

    def _redirects_to_ftp(self, _content):
        self._status(302, Location="ftp://127.0.0.1/x")

    def _redirects_nowhere(self, _content):
        self._status(302)

    def _half_of_that_range(self, content):
        """Less than was asked for, of a file whose size is not said."""
        start = self._range() or 0
        end = (start + len(content)) // 2
        self._head(206, end - start, Content_Range=f"bytes {start}-{end - 1}/*")
        self._body(content[start:end])

    def _chunked_and_wrong(self, content):
        self._chunked(bytes(len(content)))

    def _never_answers(self, _content):
        self.server.released.wait(10)
        self.close_connection = True

    def _breaks_off_where_no_length_was_said(self, content):
        """Half of the file the first time, and ranges of it from then on."""
        if self.headers["Range"]:
            self._whole(content)
        else:
            self._no_length_and_breaks_off(content)

    def _encodes(self, content):
        self._head(200, len(content), Content_Encoding="gzip")
        self._body(content)

    def _hangs_up(self, _content):
        self.close_connection = True

    def _talks_nonsense(self, _content):
        self.wfile.write(b"this is no answer\r\n\r\n")
        self.close_connection = True

    def _asks_to_wait(self, _content):
        self._status(503, Retry_After="1")

    def _drips(self, content):
        """A byte every so often: no silence, and no end."""
        self._head(200, len(content))
        for position in range(1000):
            self._body(content[position : position + 1])
            if self.server.released.wait(0.02):
                break
        self.close_connection = True

    def _drips_its_head(self, _content):
        for byte in b"HTTP/1.1 200 OK\r\n" + b"X-Nothing: to say\r\n" * 50:
            self._body(bytes([byte]))
            if self.server.released.wait(0.02):
                break
        self.close_connection = True

    def _never_ends(self, _content):
        self._head(200, None, Connection="close")
        while not self.server.released.is_set():
            self._body(bytes(100_000))

    def _says_far_longer(self, content):
        self._head(200, 10 * len(content))
        self._body(content)

    def _says_endless_digits(self, content):
        self._head(200, "9" * 5000, Connection="close")
        self._body(content)
        self.close_connection = True

    def _redirects_to_half_an_address(self, _content):
        self._status(302, Location="http://[::1/x")

    def _redirects_to_no_name(self, _content):
        self._status(302, Location="http://a..b/x")

    def _nothing_there(self, _content):
        self._head(416, 0, Content_Range="bytes */0")
