#!/usr/bin/env bash
# Lets the real MultiQC read the files of two runs. It has a virtual environment of its own (1.1 GB,
# half a minute), because it brings polars, plotly and kaleido, and pins what this program does not.
# Usage: bash scripts/test_multiqc.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/test.sh --setup-only
version=1.35
if [ "$(cat .venv-multiqc/version 2>/dev/null)" != "$version $PWD" ]; then
  .venv/bin/python -m venv --clear .venv-multiqc
  .venv-multiqc/bin/python -m pip install --quiet --disable-pip-version-check "multiqc==$version"
  echo "$version $PWD" > .venv-multiqc/version
fi
export MULTIQC=$PWD/.venv-multiqc/bin/multiqc
exec bash scripts/test.sh -m multiqc tests/integration/test_multiqc.py
