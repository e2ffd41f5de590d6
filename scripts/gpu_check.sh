#!/usr/bin/env bash
# Checks every GPU path of virnucpro on this machine in under 9 minutes, without a network and without .venv.
# Writes OUT/gpu_check.json, OUT/gpu_check.md (tables for .planning/benchmarks.md) and OUT/gpu_check.log.
# Usage: bash scripts/gpu_check.sh OUT [PART ...] [--small] [--seconds S]      (more: --help)
# Repeat the command to run the parts that have not passed yet.
# Environment: PYTHON  interpreter with torch (default: python3)
#              WHEELS  folder of scripts/pack_wheels.sh; packages that PYTHON lacks come from there (default: .whl)
#              TMPDIR  needs 12 GB for random weights (small sizes: 0.1 GB)
# Exit codes: 0 every part passed, 1 a part failed, ran out of time or was not run, 2 wrong usage.
set -euo pipefail
if [ $# -eq 0 ]; then
  sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
python=$(command -v "${PYTHON:-python3}")
wheels=$(realpath -m "${WHEELS:-$root/.whl}")

packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
missing=$("$python" "$root/scripts/gpu_check/missing_wheels.py" "$wheels")
if [ -n "$missing" ]; then
  echo "$missing" | xargs -d '\n' "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
    --no-compile --no-cache-dir --target "$packages"
fi
export PYTHONPATH="$root:$root/scripts:$packages${PYTHONPATH:+:$PYTHONPATH}"
"$python" -m gpu_check.check "$@"
