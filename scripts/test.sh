#!/usr/bin/env bash
# Sets up .venv and runs the fast tests in parallel. With arguments, pytest gets these instead.
# Usage: bash scripts/test.sh [--setup-only] [PYTEST ARGUMENT ...]
#   bash scripts/test.sh -m slow        further cases of the fast tests, and tests that take minutes
#   bash scripts/test.sh -m scripts     scripts, pages of the documentation, tutorials
#   bash scripts/test.sh -m browser tests/browser
#                                       the report in Chromium
#   bash scripts/test.sh -m hypothesis --hypothesis-profile=thorough
#                                       property tests with twenty times the examples
#   bash scripts/test.sh -m gpu         the tests that need a GPU; see also scripts/gpu_check.sh
#   bash scripts/test.sh tests/unit     one folder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh
set_up ui,test,lint,bench
if [ "${1:-}" = --setup-only ]; then
  exit 0
fi
# The tests start hundreds of processes, which would compile every module again.
unset PYTHONDONTWRITEBYTECODE
# Waiting OpenMP threads must not spin: the other test processes need the cores.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
if [ $# -gt 0 ]; then
  exec .venv/bin/python -m pytest "$@"
fi
# Thousands of small files are written and synchronised: in memory, if 8 GB are free, without a disk.
free=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo 2>/dev/null || true)
if [ -z "${PYTEST_DEBUG_TEMPROOT:-}" ] && [ -w /dev/shm ] && [ "${free:-0}" -gt 8000000 ]; then
  PYTEST_DEBUG_TEMPROOT=$(mktemp -d /dev/shm/virnucpro-tests.XXXXXX)
  export PYTEST_DEBUG_TEMPROOT
  trap 'rm -rf "$PYTEST_DEBUG_TEMPROOT"' EXIT
fi
# Tests wait for processes that they start: with one pytest process more than cores, no core waits.
# Each takes 1 GB, and imports all tests: more than eight are no faster.
cores=$(nproc)
.venv/bin/python -m pytest --numprocesses $((cores < 8 ? cores + 1 : 8)) --dist worksteal
