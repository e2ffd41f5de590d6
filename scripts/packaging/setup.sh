#!/usr/bin/env bash
# Creates .venv-packaging with the tools that build and check the packages, once.
# Usage: bash scripts/packaging/setup.sh
# Environment: PYTHON, the interpreter (default: the first Python >= 3.11 on PATH).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/setup.sh
for name in tools snakemake; do
  folder=.venv-packaging/$name
  requirements=scripts/packaging/requirements-$name.txt
  wanted="$(cksum < "$requirements") $PWD"
  if grep -qsxF -- "$wanted" "$folder/set-up-for"; then
    continue
  fi
  echo "setting up $folder" >&2
  "$(find_python)" -m venv --clear "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
  echo "$wanted" > "$folder/set-up-for"
done
