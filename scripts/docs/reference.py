"""The pages of the Python reference: one for each name in the `__all__` of a public face.

The sources are read, not imported: the site is built without NumPy.
"""

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from virnucpro.option import Option, help_text, options_of
from virnucpro.run.execution import RunOptions
from virnucpro.run.options import EmbedOptions, PredictOptions

ROOT = Path(__file__).parents[2]
FACES = {
    "virnucpro": "Sequences and models",
    "virnucpro.dispatch": "Tasks on workers",
    "virnucpro.dispatch.ui": "Tasks with a display",
    "virnucpro.launch": "Files on devices",
    "virnucpro.pipeline.gpu_coordinator": "Processes on devices",
}
"""The public faces, with the titles of their groups of pages."""

ERRORS = "virnucpro.errors"
KEYWORDS = {"virnucpro.classify": PredictOptions, "virnucpro.embed": EmbedOptions}
"""Functions whose keyword arguments are the fields of option classes."""


class Name(NamedTuple):
    """A public name and its purpose."""

    public: str
    purpose: str

    @property
    def short(self) -> str:
        """The name without its module."""
        return self.public.rpartition(".")[2]

    @property
    def page(self) -> str:
        """Path of the page below docs/."""
        return f"reference/{self.public}.md"

    @property
    def text(self) -> str:
        """Content of the page."""
        keywords = KEYWORDS.get(self.public)
        options = ["      heading_level: 1"]
        if keywords:  # the signature is that of the dataclass
            options += ["      show_signature: false", "      separate_signature: false"]
        parts = [f"::: {self.public}", "    options:", *options, ""]
        if keywords:
            parts += ["## Keyword arguments", "", "| argument | meaning |", "|---|---|"]
            parts += [
                f"| `{name}` | {_meaning(declared, name, one)} |"
                for declared in (keywords, RunOptions)
                for name, one in options_of(declared).items()
            ]
        return "\n".join([*parts, ""])


def names(face: str) -> list[Name]:
    """Return the names of a public face in the order of the alphabet, without the errors."""
    tree = _parsed(face)
    origins = _origins(tree)
    found = []
    for name in sorted(_exports(tree), key=str.lower):
        module, original = origins.get(name, (face, name))
        if module != ERRORS and not name.startswith("__"):
            found.append(Name(f"{face}.{name}", _purpose(module, original)))
    return found


def pages() -> Iterator[tuple[str, str]]:
    """Yield path and content of each page but the overview."""
    yield "reference/errors.md", f"# Errors\n\n::: {ERRORS}\n    options:\n      heading_level: 2\n"
    for face in FACES:
        for name in names(face):
            yield name.page, name.text


def nav() -> list[object]:
    """Return the pages for the table of contents."""
    groups = [{title: [{n.short: n.page} for n in names(face)]} for face, title in FACES.items()]
    return [{"Overview": "reference.md"}, *groups, {"Errors": "reference/errors.md"}]


def overview() -> str:
    """Return the lists of all names with their purposes."""
    parts = []
    for face, title in FACES.items():
        parts += [f"## {title}", "", f"`{face}`", "", "| name | purpose |", "|---|---|"]
        parts += [f"| [`{one.short}`]({one.page}) | {one.purpose} |" for one in names(face)]
        parts += [""]
    return "\n".join([*parts, "[Errors](reference/errors.md) are described on one page.", ""])


def _meaning(declared: type, name: str, one: Option) -> str:
    values = ", ".join(f"`{value!r}`" for value in one.choices or ())
    return help_text(declared, name, one) + f" ({values})" * bool(values)


def _parsed(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    path = path if path.is_file() else path.with_suffix("") / "__init__.py"
    return ast.parse(path.read_text("utf-8"))


def _exports(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exported: list[str] = ast.literal_eval(node.value)
            return exported
    raise ValueError("a public face has no __all__")


def _origins(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Return module and name of what a module imports, by the names that it gives."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _purpose(module: str, name: str) -> str:
    """Return the first line of the docstring of a function, a class or an assigned name."""
    tree = _parsed(module)
    for node, below in itertools.pairwise([*tree.body, ast.Pass()]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return _first_line(ast.get_docstring(node))
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(targets[0], ast.Name) and targets[0].id == name:
            return _first_line(ast.literal_eval(below.value) if isinstance(below, ast.Expr) else "")
    origins = _origins(tree)
    if name not in origins:
        raise ValueError(f"{module} does not define {name}")
    return _purpose(*origins[name])


def _first_line(docstring: str | None) -> str:
    return (docstring or "").partition("\n")[0].replace("``", "`")
