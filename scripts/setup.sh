# Sourced by demo.sh and test.sh: makes .venv with the extras asked for, once.
#   set_up EXTRAS     e.g. set_up "ui" or "ui,test,lint"
# PYTHON names the interpreter; the first Python >= 3.11 on PATH is taken otherwise.

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  echo "virnucpro needs Python 3.11 or later with venv: install it, or set PYTHON=/path/to/python" >&2
  return 1
}

set_up() {
  local extras=$1 python wanted stamp=.venv/set-up-for
  wanted="$(cat pyproject.toml constraints.txt | cksum) $extras"
  # A fuller set-up serves a smaller wish: the stamp holds one line for every set-up that was made.
  if [ -x .venv/bin/virnucpro ] && grep -qsxF -- "$wanted" "$stamp"; then
    return
  fi
  python=$(find_python)
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  echo "setting up .venv ($extras)" >&2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt --editable ".[$extras]"
  # An install with other extras removes none: earlier lines stay true while the pins are the same.
  { grep -sF -- "${wanted% *}" "$stamp" || true; echo "$wanted"; } > "$stamp.tmp"
  mv "$stamp.tmp" "$stamp"
}
