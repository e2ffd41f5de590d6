"""Cells of the tables of a launch: values as text, and text as bytes."""

from pathlib import Path
from urllib.parse import quote

from virnucpro.console import CONTROL

__all__ = ["cell", "encoded", "file_cell"]


def file_cell(file: str, input_dir: Path) -> str:
    """Return the name of an input file relative to the input folder."""
    return cell(str(Path(file).relative_to(input_dir)))


def cell(value: object) -> str:
    """Return a value as text in one line without tabs; None as ``NA``."""
    if value is None:
        return "NA"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()) or "NA"


def encoded(text: str) -> bytes:
    """Return text as UTF-8, with percent-encoded control characters.

    File names that are not valid UTF-8 keep their original bytes.
    """
    text = CONTROL.sub(lambda match: quote(match[0]), text)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates that do not encode a byte
        return text.encode("utf-8", "backslashreplace")
