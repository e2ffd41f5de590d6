"""Render the content of the report as one HTML file without a reference to another file.

Libraries and their licences are in `assets/`. The content security policy of the page forbids all
requests, and all scripts except the embedded ones.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup

from virnucpro.console import printable
from virnucpro.report.html.content import content_of
from virnucpro.report.html.wording import bases, share
from virnucpro.report.output_file import write_output
from virnucpro.report.reading.facts import RunFacts

_SCRIPTS: Final = (
    *("assets/d3.min.js", "assets/plot.umd.min.js", "assets/tabulator.min.js"),
    *("page/figures.js", "page/tables.js"),
)
_STYLES: Final = ("assets/tabulator.min.css", "page/report.css")
_DATA: Final = (
    *("samples", "lengths", "files", "bins", "probability", "score", "threshold", "calibrated"),
    *("columns", "records", "tracks", "regions", "stories", "partial"),
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
    text = _render(content_of(runs, n_runs, missing))
    with write_output(path) as stream:
        # bytes of a folder's name that are no text become \udcff, which is valid in JSON too
        stream.write(text.encode(errors="backslashreplace"))


def _render(content: dict[str, Any]) -> str:
    scripts = [Markup(_text(name)) for name in _SCRIPTS]  # noqa: S704 - files of this package
    return page_template().render(
        content,
        scripts=scripts,
        styles=[Markup(_text(name)) for name in _STYLES],  # noqa: S704 - files of this package
        policy=_policy(scripts),
        data=_embedded({name: content[name] for name in _DATA}),
    )


@cache
def page_template() -> Template:
    """Return the compiled template of the page."""
    environment = Environment(
        loader=DictLoader({"report": _text("page/report.html")}),
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
