"""Execute the notebook NOTEBOOK and write it, with its outputs, to OUT: ``NOTEBOOK OUT``."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

source, out = map(Path, sys.argv[1:])
notebook = nbformat.read(source, as_version=4)
resources = {"metadata": {"path": str(source.parent)}}
NotebookClient(notebook, timeout=90, kernel_name="python3", resources=resources).execute()
nbformat.write(notebook, out)
