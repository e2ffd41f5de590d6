"""What takes no server to show; the rest is in tests/integration/test_bundle_fetch.py."""

import io
import ssl
import urllib.error
import urllib.request
from email.message import Message

import pytest

from virnucpro.bundles import connection
from virnucpro.bundles import download as module
from virnucpro.bundles.download import Patience, download, remote_size
from virnucpro.bundles.http_answers import RefusedError
from virnucpro.errors import BundleError

MOST = 10**9


def accept(_path):
    """Take any file for the one that was wanted."""


@pytest.mark.parametrize(
    ("before", "after", "follows"),
    [
        ("https://a/x", "https://b/y", True),
        ("https://a/x", "http://a/x", False),
        ("http://a/x", "https://a/x", True),
        ("http://a/x", "http://b/x", True),
    ],
)
def test_a_redirect_never_leaves_an_encrypted_connection(before, after, follows):
    request = urllib.request.Request(before, headers={"Range": "bytes=5-", "If-Range": '"a"'})
    body = io.BytesIO()

    def redirect():
        handler = connection._SafeRedirects()
        return handler.redirect_request(request, body, 302, "Found", Message(), after)

    if follows:
        followed = redirect()
        assert followed.full_url == after
        assert followed.get_header("Range") == "bytes=5-"
        assert followed.get_header("If-range") == '"a"'
    else:
        with pytest.raises(RefusedError, match="encrypted connection to a plain one"):
            redirect()
        assert body.closed


def test_a_certificate_that_cannot_be_trusted_is_not_asked_twice(tmp_path, monkeypatch):
    asked = []

    class Opener:
        def open(self, request, **_options):
            asked.append(request.get_method())
            raise urllib.error.URLError(ssl.SSLCertVerificationError("self-signed"))

    monkeypatch.setattr(urllib.request, "build_opener", lambda *_: Opener())
    with pytest.raises(BundleError, match=r"https://x/y: its certificate cannot be trusted.*Do so"):
        download("https://x/y", tmp_path / "y", "Do so.", Patience(first_wait=0), MOST, accept)
    with pytest.raises(BundleError, match="certificate"):
        remote_size("https://x/y", "Do so.", Patience(first_wait=0), MOST)
    assert asked == ["GET", "HEAD", "GET"]


def test_waits_double_up_to_the_longest(tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    patience = Patience(attempts=6, first_wait=1.0, longest_wait=5.0)
    with pytest.raises(BundleError, match="6 times in a row"):
        download("http://127.0.0.1:1/x", tmp_path / "x", "", patience, MOST, accept)
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_an_attempt_that_brought_much_restores_patience(tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    part = tmp_path / "x.part"

    def bring(*_arguments):
        if len(waits) in (2, 3):
            with part.open("ab") as stream:
                stream.write(bytes(1 << 20))
        raise module.TransientError("broke off")

    monkeypatch.setattr(module, "_attempt", bring)
    with pytest.raises(BundleError, match=r"2,097,152 bytes have arrived and are kept"):
        download(
            "http://x/x", tmp_path / "x", "", Patience(attempts=3, first_wait=1.0), MOST, accept
        )
    assert waits == [1.0, 2.0, 1.0, 1.0, 2.0]


def test_what_is_fetched_again_and_again_is_no_progress(tmp_path, monkeypatch):
    """A server whose ranges are always the wrong ones brings a file's begin for ever."""
    waits = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    part = tmp_path / "x.part"

    def bring(*_arguments):
        assert len(waits) < 20, "for ever"
        if part.exists():
            part.unlink()
            raise module.ChangedError("another range")
        part.write_bytes(bytes(3 << 20))
        raise module.TransientError("broke off")

    monkeypatch.setattr(module, "_attempt", bring)
    with pytest.raises(BundleError, match="4 times in a row"):
        download(
            "http://x/x", tmp_path / "x", "", Patience(attempts=4, first_wait=1.0), MOST, accept
        )
