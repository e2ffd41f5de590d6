#!/usr/bin/env bash
# Sets up .venv and predicts the example file: well-known viruses and cellular sequences.
# Usage: bash scripts/demo.sh [OUTDIR]      (default: demo-run; an earlier run there is replaced)
set -euo pipefail
out=$(realpath -m -- "${1:-$(dirname "${BASH_SOURCE[0]}")/../demo-run}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/setup.sh
set_up ui
.venv/bin/virnucpro predict tests/data/example.fa -o "$out" --devices cpu:2 --force
echo
head -n 12 "$out/predictions.tsv" |
  awk -F '\t' '{ printf "%-20s %7s %10s %9s %8s  %-11s %s\n", $1, $2, $3, $4, $6, $7, $8 }'
echo
for name in viruses.fasta regions.tsv report.html; do
  [ -s "$out/$name" ] || { echo "$out/$name was not written" >&2; exit 1; }
done
echo "All sequences:          $out/predictions.tsv"
echo "Viral sequences:        $out/viruses.fasta"
echo "Viral stretches:        $out/regions.tsv"
echo "Report for a browser:   $out/report.html"
