#!/usr/bin/env bash
# Runs the whole fault matrix, slow tests included.
# Some tests mount small disks: without root these are skipped.
# Usage: bash scripts/faults.sh [PYTEST ARGUMENT ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh
set_up ui,test,lint,bench
exec .venv/bin/python -m pytest tests/faults -m "slow or not slow" "$@"
