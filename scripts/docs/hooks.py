"""Hooks of mkdocs: pages of options, names and notebooks; no script from another place."""

import argparse
import re
from typing import TYPE_CHECKING

import notebooks
import reference
from mkdocs.structure.files import File, Files

from virnucpro.cli.main import full_parser

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

REMOTE = "https://unpkg.com/iframe-worker/shim"
"""Script that the plugin `offline` adds to each page."""


def on_config(config: "MkDocsConfig") -> None:
    """Put the pages of the Python reference into the table of contents."""
    for section in config.nav:
        for entry in next(iter(section.values())):
            if entry == {"Python": "reference.md"}:
                entry["Python"] = reference.nav()


def on_files(files: Files, config: "MkDocsConfig") -> Files:
    """Add the generated pages."""
    for path, content in [("options.md", options_page()), *reference.pages()]:
        files.append(File.generated(config, path, content=content))
    for notebook in sorted(notebooks.TUTORIALS.glob("*.ipynb")):
        text, pictures = notebooks.page(notebook)
        for name, content in {f"{notebook.stem}.md": text, **pictures}.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fill the list of public names in."""
    return markdown.replace("<!-- names -->", reference.overview())


def on_post_page(output: str, page: "Page", **_: object) -> str:
    """Load the script for the search of local pages from the site, not from a network."""
    parts = page.url.count("/") * "../"
    return output.replace(REMOTE, f"{parts}assets/iframe-worker.js")


def on_page_content(html: str, **_: object) -> str:
    """Mark short code, which is not broken into lines: a name is copied as a whole."""
    return re.sub(r"<code>(?=[^<\n]{1,26}</code>)", '<code class="short">', html)


def options_page() -> str:
    """Return the page: one section per command, with its description and its options."""
    parts = ["# All options\n\nThe same texts as `virnucpro COMMAND --help`.\n"]
    for name, command in _commands(full_parser()).items():
        actions = _commands(command)
        parts.append(f"## {name}\n\n{_plain(command.description)}\n")
        parts.append(_table(command))
        for action, parser in actions.items():
            parts.append(f"### {name} {action}\n\n{_plain(parser.description)}\n")
            parts.append(_table(parser))
    return "\n".join(parts)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            found |= action.choices
    return found


def _table(parser: argparse.ArgumentParser) -> str:
    formatter = parser._get_formatter()  # noqa: SLF001 - expands %(default)s as the help does
    rows = []
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):  # noqa: SLF001
            continue
        words = formatter._format_action_invocation(action)  # noqa: SLF001
        text = formatter._expand_help(action) if action.help else ""  # noqa: SLF001
        rows.append(f"| `{words.replace('|', chr(92) + '|')}` | {_plain(text)} |")
    return "\n".join(["| argument | meaning |", "|---|---|", *rows, ""]) if rows else ""


def _plain(text: str | None) -> str:
    """Return the text with the characters of Markdown and HTML escaped."""
    escaped = (text or "").strip()
    for character in "\\*_<>|`[]":
        escaped = escaped.replace(character, f"\\{character}")
    return escaped
