#!/usr/bin/env bash
# Sets up .venv and runs the tests: all but the long ones, in two processes. Arguments go to pytest instead.
# Usage: bash scripts/test.sh [--setup-only] [PYTEST ARGUMENT ...]
#   bash scripts/test.sh -m slow        the long ones
#   bash scripts/test.sh -m gpu         those for a machine with a GPU
#   bash scripts/test.sh tests/unit     a part
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh
set_up ui,test,lint,bench
if [ "${1:-}" = --setup-only ]; then
  exit 0
fi
# Threads of one process that wait for each other leave the cores to the other process.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
if [ $# -eq 0 ]; then
  set -- --numprocesses 2 --dist loadfile
fi
exec .venv/bin/python -m pytest "$@"
