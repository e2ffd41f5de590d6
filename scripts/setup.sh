# Sourced by demo.sh and test.sh: makes .venv with the extras asked for, once.
#   set_up EXTRAS     e.g. set_up "ui" or "ui,test,lint"
# PYTHON names the interpreter; the first Python >= 3.11 on PATH is taken otherwise.

suits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    suits "$PYTHON" && command -v "$PYTHON" && return
    echo "PYTHON=$PYTHON is no Python 3.11 or later with venv" >&2
    return 1
  fi
  for candidate in python3 python3.11 python3.12 python3.13 python; do
    suits "$candidate" && command -v "$candidate" && return
  done
  echo "virnucpro needs Python 3.11 or later with venv: install it, or set PYTHON=/path/to/python" >&2
  return 1
}

set_up() {
  local extras=$1 python wanted stamp=.venv/set-up-for
  # The folder is part of it: a virtual environment does not survive being moved.
  wanted="$(cat pyproject.toml constraints.txt | cksum) $PWD $extras"
  if [ -x .venv/bin/virnucpro ] && grep -qsxF -- "$wanted" "$stamp"; then
    return
  fi
  python=$(find_python)
  # An environment that was interrupted in the making, or moved, is made anew.
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || ! grep -qsF -- " $PWD " "$stamp"; then
    "$python" -m venv --clear .venv
  fi
  echo "setting up .venv ($extras)" >&2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt --editable ".[$extras]"
  # As pip does with what it installs, but not with what stays where it is.
  .venv/bin/python -m compileall -q virnucpro
  # An install with other extras removes none: earlier lines stay true while the pins are the same.
  { grep -sF -- "${wanted% *}" "$stamp" || true; echo "$wanted"; } > "$stamp.tmp"
  mv "$stamp.tmp" "$stamp"
}
