"""Render the content of a report as one HTML file without a reference to another file.

Libraries and their licences are in `assets/`. The content security policy of the page forbids all
requests, and all scripts except the embedded ones.
"""

import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Final

import jinja2
from jinja2 import BytecodeCache, DictLoader, Environment, StrictUndefined, Template
from jinja2.bccache import Bucket
from markupsafe import Markup

from virnucpro.console import printable
from virnucpro.durable import write_file
from virnucpro.report.html.content import content_of
from virnucpro.report.html.wording import bases, share
from virnucpro.report.output_file import write_output
from virnucpro.report.reading.facts import RunFacts

_STYLES: Final = ("assets/tabulator.min.css", "page/report.css")
_SCRIPTS: Final = (
    *("assets/d3.min.js", "assets/plot.umd.min.js", "page/common.js"),
    *("assets/tabulator.min.js", "page/figures.js", "page/tables.js"),
)
_DATA: Final = (
    *("samples", "lengths", "files", "bins", "probability", "score", "threshold", "calibrated"),
    *("columns", "records", "tracks", "regions", "partial"),
)
"""Parts of the content that the scripts read."""
_SOURCE_MAP: Final = re.compile(r"(//|/\*)# sourceMappingURL=.*")


def write_page(
    path: Path, runs: Iterable[RunFacts], n_runs: int, missing: Sequence[str] = ()
) -> None:
    """Write the report over `n_runs` runs as one HTML file; one run is held at a time.

    `missing` are sentences on what the report lacks beside the gaps of the runs.

    Raises
    ------
    StoreError
        If a table of a run is missing or damaged.
    RunError
        If the file cannot be written; an existing file is unchanged.
    """
    content = content_of(runs, n_runs, missing)
    texts = [Markup(_text(name)) for name in _SCRIPTS]  # noqa: S704 - files of this package
    text = page_template().render(
        content,
        scripts=texts,
        styles=[Markup(_text(name)) for name in _STYLES],  # noqa: S704 - files of this package
        policy=_policy(texts),
        data=_embedded({name: content[name] for name in _DATA}),
    )
    with write_output(path) as stream:
        # bytes of a folder's name that are not text become \udcff, which is valid in JSON too
        stream.write(text.encode(errors="backslashreplace"))


class _CompiledTemplates(BytecodeCache):
    """Compiled templates in the folder in which Python keeps compiled modules, if it is writable.

    To compile them takes as long as to import NumPy.
    """

    def get_cache_key(self, name: str, filename: str | None = None) -> str:  # noqa: ARG002 - jinja's
        return name

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError), self._path(bucket).open("rb") as stream:
            bucket.load_bytecode(stream)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        with suppress(OSError):
            self._path(bucket).parent.mkdir(parents=True, exist_ok=True)
            with write_file(self._path(bucket), lasting=False) as stream:
                bucket.write_bytecode(stream)

    def _path(self, bucket: Bucket) -> Path:
        source = Path(__file__).with_name("page") / f"{bucket.key}.html"
        edition = "jinja" + jinja2.__version__.replace(".", "")
        return Path(cache_from_source(str(source), optimization=edition))


@cache
def page_template() -> Template:
    """Return the compiled template of the page."""
    parts = ("base", "macros", "report")
    environment = Environment(
        loader=DictLoader({part: _text(f"page/{part}.html") for part in parts}),
        bytecode_cache=_CompiledTemplates(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bases": bases, "printable": printable}
    environment.globals["share"] = share
    return environment.get_template("report")


def _embedded(content: dict[str, Any]) -> Markup:
    """Return JSON that cannot end the element `script` in which it stands."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - escaped above


def _policy(scripts: Iterable[str]) -> str:
    """Return the content security policy: no request, and only these scripts."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _text(name: str) -> str:
    text = files("virnucpro.report.html").joinpath(name).read_text("utf-8")
    return _SOURCE_MAP.sub("", text).strip()
