"""Render the content of a report as one HTML file without a reference to another file.

Libraries and their licences are in `assets/`. The content security policy of the page forbids all
requests, and all scripts except the embedded ones.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
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

_CHARTS: Final = ("assets/d3.min.js", "assets/plot.umd.min.js", "page/common.js")
_STYLE: Final = "page/report.css"
_SCRIPTS: Final = ("assets/tabulator.min.js", "page/figures.js", "page/tables.js")
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
    content = content_of(runs, n_runs, missing)
    styles = ("assets/tabulator.min.css", _STYLE)
    _write(path, page_template(), content, _DATA, (*_CHARTS, *_SCRIPTS), styles)


def write_charts(path: Path, name: str, content: Mapping[str, Any], data: Sequence[str]) -> None:
    """Write another page with charts: ``page/NAME.html`` and ``page/NAME.js``.

    Parameters
    ----------
    content
        Values of the template, with those of its base: title, version, made.
    data
        Names of the values that the script reads.

    Raises
    ------
    RunError
        If the file cannot be written; an existing file is unchanged.
    """
    _write(path, page_template(name), content, data, (*_CHARTS, f"page/{name}.js"), (_STYLE,))


def _write(
    path: Path,
    template: Template,
    content: Mapping[str, Any],
    data: Sequence[str],
    scripts: Sequence[str],
    styles: Sequence[str],
) -> None:
    texts = [Markup(_text(name)) for name in scripts]  # noqa: S704 - files of this package
    text = template.render(
        content,
        scripts=texts,
        styles=[Markup(_text(name)) for name in styles],  # noqa: S704 - files of this package
        policy=_policy(texts),
        data=_embedded({name: content[name] for name in data}),
    )
    with write_output(path) as stream:
        # bytes of a folder's name that are no text become \udcff, which is valid in JSON too
        stream.write(text.encode(errors="backslashreplace"))


@cache
def page_template(name: str = "report") -> Template:
    """Return the compiled template of a page."""
    parts = ("base", "macros", name)
    environment = Environment(
        loader=DictLoader({part: _text(f"page/{part}.html") for part in parts}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bases": bases, "printable": printable}
    environment.globals["share"] = share
    return environment.get_template(name)


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
