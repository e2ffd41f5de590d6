# Sourced by demo.sh, test.sh and others: creates .venv with the given extras, once.
#   set_up EXTRAS     e.g. set_up "ui" or "ui,test,lint"
# Environment: PYTHON, the interpreter (default: the first Python >= 3.11 on PATH).

suits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    suits "$PYTHON" && command -v "$PYTHON" && return
    echo "PYTHON=$PYTHON is not Python 3.11 or later with venv: set another PYTHON" >&2
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
  # The folder is part of the stamp: a moved virtual environment does not work.
  wanted="$(cat pyproject.toml constraints.txt hatch_build.py virnucpro/compiled/*.[ch] | cksum) $PWD $extras"
  if [ -x .venv/bin/virnucpro ] && grep -qsxF -- "$wanted" "$stamp"; then
    return
  fi
  python=$(find_python)
  # Recreate an incomplete or moved environment.
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || ! grep -qsF -- " $PWD " "$stamp"; then
    "$python" -m venv --clear .venv
  fi
  echo "setting up .venv ($extras)" >&2
  # -qq: errors only, no warnings about users and paths.
  .venv/bin/python -m pip install -qq --no-compile --no-warn-script-location \
    --disable-pip-version-check --constraint constraints.txt --editable ".[$extras]"
  # On all CPUs, unlike pip. Some packages have templates that are not valid Python.
  .venv/bin/python -m compileall -qq -j 0 virnucpro .venv/lib || true
  # Another set of extras removes no package: older lines stay valid while the pins are the same.
  { grep -sF -- "${wanted% *}" "$stamp" || true; echo "$wanted"; } > "$stamp.tmp"
  mv "$stamp.tmp" "$stamp"
}
