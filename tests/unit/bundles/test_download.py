"""Retries without a server; tests/integration/test_bundle_fetch.py has the rest."""

import ssl
import urllib.error
import urllib.request

import pytest

from virnucpro.bundles import download as module
from virnucpro.bundles.checksums import Checksum
from virnucpro.bundles.download import Listener, Patience, download, remote_size
from virnucpro.bundles.published import PublishedFile
from virnucpro.errors import BundleError

FILE = PublishedFile("esm2", "x.pt", "x.pt", Checksum("md5", "0"), 10**9)
SILENT = Listener(lambda _: None, lambda *_: None)


@pytest.fixture
def waits(monkeypatch):
    seconds = []
    monkeypatch.setattr(module.time, "sleep", seconds.append)
    return seconds


def test_an_untrusted_certificate_is_not_retried(tmp_path, monkeypatch):
    requests = []

    class Opener:
        def open(self, request, **_options):
            requests.append(request)
            raise urllib.error.URLError(ssl.SSLCertVerificationError("self-signed"))

    monkeypatch.setattr(urllib.request, "build_opener", Opener)
    message = r"https://x/y: its certificate is not trusted.*VIRNUCPRO_MIRROR_ESM2"
    with pytest.raises(BundleError, match=message):
        download(FILE, "https://x/y", tmp_path / "y", Patience(first_wait=0), SILENT)
    with pytest.raises(BundleError, match=message):
        remote_size(FILE, "https://x/y", Patience(first_wait=0))
    assert len(requests) == 2


def test_waits_double_up_to_the_longest(tmp_path, waits):
    patience = Patience(attempts=6, first_wait=1.0, longest_wait=5.0)
    with pytest.raises(BundleError, match="6 attempts failed"):
        download(FILE, "http://127.0.0.1:1/x", tmp_path / "x", patience, SILENT)
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_megabyte_of_progress_resets_the_failed_attempts(tmp_path, monkeypatch, waits):
    def receive(_source, part, _listener):
        if len(waits) in (2, 3):
            with part.open("ab") as stream:
                stream.write(bytes(1 << 20))
        raise module._TransientError("interrupted")

    monkeypatch.setattr(module._Source, "receive", receive)
    with pytest.raises(BundleError, match=r"2,097,152 downloaded bytes are kept"):
        download(FILE, "http://x/x", tmp_path / "x", Patience(attempts=3), SILENT)
    assert waits == [1.0, 2.0, 1.0, 1.0, 2.0]


def test_bytes_that_are_downloaded_again_are_not_progress(tmp_path, monkeypatch, waits):
    """A server that ignores ranges sends the start of a file for ever."""

    def receive(_source, part, _listener):
        assert len(waits) < 20
        part.write_bytes(bytes(3 << 20))
        raise module._TransientError("interrupted")

    monkeypatch.setattr(module._Source, "receive", receive)
    with pytest.raises(BundleError, match="4 attempts failed"):
        download(FILE, "http://x/x", tmp_path / "x", Patience(attempts=4), SILENT)
