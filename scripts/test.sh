#!/usr/bin/env bash
# Sets up .venv and runs the tests. Other arguments go to pytest.
# Usage: bash scripts/test.sh [--setup-only] [PYTEST ARGUMENT ...]
#   bash scripts/test.sh -m slow        the long ones
#   bash scripts/test.sh tests/unit     a part
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh
set_up ui,test,lint,bench
if [ "${1:-}" = --setup-only ]; then
  exit 0
fi
exec .venv/bin/python -m pytest "$@"
