"""Execute the notebooks of docs/tutorials/ and store their outputs; show them as pages.

python scripts/docs/notebooks.py [NAME...]
"""

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
RUN = ROOT / "tests" / "data" / "run_notebook.py"


def executed(notebook: Path, folder: Path) -> dict[str, Any]:
    """Return the content of a notebook with its outputs, computed in a copy below `folder`."""
    place = folder / "docs" / "tutorials"
    place.mkdir(parents=True)
    (folder / "tests").symlink_to(ROOT / "tests")
    copy = Path(shutil.copy(notebook, place))
    subprocess.run([sys.executable, RUN, copy, copy], check=True)
    content: dict[str, Any] = json.loads(copy.read_text("utf-8"))
    for cell in content["cells"]:
        cell["metadata"] = {}
        if cell["cell_type"] == "code":
            cell["execution_count"] = None
            cell["outputs"] = _kept(cell["outputs"])
    return content


def _kept(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what does not differ between runs: not the messages, which name processes."""
    printed = "".join("".join(one["text"]) for one in outputs if one.get("name") == "stdout")
    shown = [
        {"output_type": "display_data", "data": one["data"], "metadata": {}}
        for one in outputs
        if "data" in one
    ]
    stream = {"output_type": "stream", "name": "stdout", "text": printed}
    return [stream, *shown] if printed else shown


def texts(cell: dict[str, Any]) -> str:
    """Return the output of a cell as text."""
    parts = [
        "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
        for output in cell.get("outputs", [])
    ]
    return "\n".join(parts)


def page(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{notebook.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![Plot of the code above]({name})")
            elif "text/html" in data:
                html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
                html = re.sub(r"<(table|tr) [^>]*>", r"<\1>", html)  # as other tables of the site
                parts.append(re.sub(r"\s*\n\s*", "\n", html).strip())
            else:
                text = "".join(output.get("text") or data["text/plain"]).rstrip("\n")
                parts.append(f"``` {{ .text .output }}\n{text}\n```")
    return "\n\n".join([*parts, ""]), pictures


def main() -> None:
    """Store the outputs of the notebooks of the given names, or of all."""
    for notebook in sorted(TUTORIALS.glob("*.ipynb")):
        if sys.argv[1:] and notebook.stem not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            content = executed(notebook, Path(folder))
        text = json.dumps(content, indent=1, ensure_ascii=False)
        notebook.write_text(text + "\n", "utf-8")
        print(f"{notebook.name}: {notebook.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
