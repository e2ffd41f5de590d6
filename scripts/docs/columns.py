"""Write the tables of docs/columns.md from the declarations of the columns.

python scripts/docs/columns.py
"""

import re
from pathlib import Path

from virnucpro.tables.columns import TABLES
from virnucpro.tables.schema import TableBlock

PAGE = Path(__file__).parents[2] / "docs" / "columns.md"


def updated(page: str) -> str:
    """Return the page with a table of columns in the section of each table."""
    for table in TABLES:
        section = rf"(^## {re.escape(table.filename)}\n.*?^\| column \|)[^\n]*\n(\|[^\n]*\n)*"
        text = markdown(table)
        pattern = re.compile(section, re.MULTILINE | re.DOTALL)
        match = pattern.search(page)
        assert match, f"no section {table.filename}"
        page = f"{page[: match.start()]}{match[1]}{text}{page[match.end() :]}"
    return page


def markdown(table: type[TableBlock]) -> str:
    """Return the rows of a table of columns, behind the first cell of its header."""
    rows = [
        f"| `{column.name}` | {'text' if column.kind == 'name' else column.kind} | "
        f"{column.meaning[:1].lower()}{column.meaning[1:]} |"
        for column in table.columns.values()
    ]
    return "\n".join([" type | meaning |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
