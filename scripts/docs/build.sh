#!/usr/bin/env bash
# Sets up .venv-docs and builds the site in build/site. Broken links and anchors are errors.
# Usage: bash scripts/docs/build.sh [--serve]     (--serve: show it on http://127.0.0.1:8000)
# Environment: PYTHON, the interpreter (default: the first Python >= 3.11 on PATH).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/setup.sh
wanted="$(cksum < scripts/docs/requirements.txt) $PWD"
if ! grep -qsxF -- "$wanted" .venv-docs/set-up-for; then
  echo "setting up .venv-docs" >&2
  "$(find_python)" -m venv --clear .venv-docs
  .venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
    --requirement scripts/docs/requirements.txt
  echo "$wanted" > .venv-docs/set-up-for
fi
export PYTHONPATH=$PWD NO_MKDOCS_2_WARNING=1
if [ "${1:-}" = --serve ]; then
  exec .venv-docs/bin/mkdocs serve --strict
fi
.venv-docs/bin/mkdocs build --strict
rm build/site/404.html build/site/sitemap.xml* # for servers
if grep -rlE '<(script|link|img|iframe)[^>]*(src|href)="(https?:)?//|url\("?(https?:)?//' \
  --include='*.html' --include='*.css' --include='*.svg' build/site; then
  echo "these pages load something from another place" >&2
  exit 1
fi
