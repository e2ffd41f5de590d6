#!/usr/bin/env bash
# Packs the Python packages that scripts/gpu_check.sh needs beside torch, for a machine without a package index.
# Run it on a machine with one, then copy FOLDER. The wheels are for CPython 3.12 on Linux x86-64.
# Wheels that FOLDER holds already are removed.
# Usage: bash scripts/pack_wheels.sh [FOLDER]      (default: .whl)
# Environment: PYTHON, an interpreter with pip (default: python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-.whl}
most_bytes=$((60 * 1024 * 1024))

# virnucpro and its tests do not run without these.
needed="dnaio xopen isal zlib-ng backports.zstd safetensors threadpoolctl tokenizers h5py nvidia-ml-py fair-esm
  pytest pluggy iniconfig packaging pygments pytest-timeout pytest-xdist execnet hypothesis sortedcontainers rich
  markdown-it-py mdurl"
# transformers, a peer in the throughput part, with its dependencies. Left out if the folder becomes too large.
optional="transformers huggingface-hub regex tqdm PyYAML filelock fsspec hf-xet typer click shellingham annotated-doc
  httpx2 httpcore2 h11 anyio idna truststore typing-inspection typing_extensions"

download() {
  "${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --dest "$1" --constraint constraints.txt \
    --no-deps --only-binary=:all: --implementation cp --python-version 3.12 \
    --platform manylinux_2_39_x86_64 --platform manylinux_2_35_x86_64 --platform manylinux_2_34_x86_64 \
    --platform manylinux_2_31_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
    --platform manylinux_2_26_x86_64 --platform manylinux_2_24_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64 "${@:2}"
}

bytes_in() { find "$@" -name '*.whl' -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }'; }

rest=$(mktemp -d)
trap 'rm -rf "$rest"' EXIT
mkdir -p "$folder"
rm -f "$folder"/*.whl # two versions of one package stop an installation
download "$folder" $needed
if download "$rest" $optional; then
  if [ "$(bytes_in "$folder" "$rest")" -le "$most_bytes" ]; then
    mv "$rest"/*.whl "$folder"
  else
    echo "transformers is left out: with it the wheels take more than 60 MiB" >&2
  fi
else
  echo "transformers is left out: a wheel could not be downloaded" >&2
fi
total=$(bytes_in "$folder")
if [ "$total" -gt "$most_bytes" ]; then
  echo "$folder holds $((total >> 20)) MiB of wheels, more than 60 MiB. Shorten the list in $0." >&2
  exit 1
fi
echo "$folder: $(find "$folder" -name '*.whl' | wc -l) wheels, $((total >> 20)) MiB. On the other machine:"
echo "  WHEELS=$folder bash scripts/gpu_check.sh OUT"
