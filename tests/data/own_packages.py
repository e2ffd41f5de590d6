"""Packages with encoders: the example of docs/own-encoder.md, and ones with errors."""

import tomllib
from pathlib import Path

EXAMPLE = Path(__file__).with_name("own_encoder")


def install(folder, project, entries, modules):
    """Install a pure Python package into a folder, as pip does: modules and a dist-info folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in modules.items():
        (folder / name).write_text(text)
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[virnucpro.encoders]", *lines, ""]))
    return folder


def install_example(folder, **changes):
    """Install the example; `changes` replace values of its project table, such as the version."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    modules = {path.name: path.read_text() for path in EXAMPLE.glob("*.py")}
    entries = project["entry-points"]["virnucpro.encoders"]
    return install(folder, project | changes, entries, modules)


def install_class(folder, body, name="odd-encoder", version="0.1", key="odd"):
    """Install an encoder whose class is the example's with the lines `body`."""
    module = name.replace("-", "_")
    text = (EXAMPLE / "residue_properties.py").read_text()
    text += f"\n\nclass Odd(ResidueProperties):\n    {body}\n"
    project = {"name": name, "version": version}
    return install(folder, project, {key: f"{module}:Odd"}, {f"{module}.py": text})
