#!/usr/bin/env bash
# Kills random processes of runs at random moments, resumes the runs, and checks tables, vectors and segments.
# Usage: bash scripts/soak.sh [--campaigns N] [--minutes M] [--tasks T] [--seed S] [--keep]   (more: --help)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh
set_up ui,test,lint,bench
exec .venv/bin/python scripts/soak.py "$@"
