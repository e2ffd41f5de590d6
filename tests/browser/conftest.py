"""A headless Chromium, which fails a test on an error of a page or a request."""

import contextlib
import os
from pathlib import Path

import pytest

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"needs Chromium at {CHROMIUM}: apt-get install chromium, or set CHROMIUM")
    with playwright.sync_playwright() as started:
        # The path of a socket below its temporary folder has at most 107 letters.
        short = {**os.environ, "TMPDIR": "/tmp"}
        browser = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], env=short
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Return a function that opens a file; at the end the page had no error and no request."""
    with watched(chromium) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def opened_once(chromium):
    """Return such a function for a page that the tests of a module share."""
    with watched(chromium) as open_page:
        yield open_page


@contextlib.contextmanager
def watched(chromium):
    contexts, problems = [], []

    def heard(message):
        if message.type in {"error", "warning"}:
            problems.append(f"{message.type}: {message.text}")

    def requested(request):
        if request.url not in allowed and not request.url.startswith("data:"):
            problems.append(f"request: {request.url}")

    allowed = set()

    def open_page(path, **options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on("request", requested)
        page.set_default_timeout(15_000)
        allowed.add(path.resolve().as_uri())
        page.goto(path.resolve().as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
