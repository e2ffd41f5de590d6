#!/usr/bin/env bash
# Runs the whole fault matrix, the other slow tests, and the property tests with many examples.
# Some tests mount small disks: without root these are skipped.
# Usage: bash scripts/faults.sh [PYTEST ARGUMENT ...], such as --numprocesses 2 --dist worksteal
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh
set_up ui,test,lint,bench
.venv/bin/python -m pytest tests/faults "$@"
.venv/bin/python -m pytest -m "slow and not slurm" "$@"
exec .venv/bin/python -m pytest -m hypothesis --hypothesis-profile=thorough "$@"
