#!/usr/bin/env bash
# Writes requirements/*.txt from pyproject.toml: every version pinned, every file hashed, no index named.
# The tool that resolves, uv, has an environment of its own: what is locked does not depend on what is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

tool=.cache/lock
if [ ! -x $tool/bin/uv ]; then
  "${PYTHON:-python3}" -m venv $tool
  $tool/bin/python -m pip install --quiet --disable-pip-version-check uv
fi
compile() {
  $tool/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header --no-annotate "$@"
}
compile pyproject.toml --extra view --group dev --output-file requirements/dev.txt
# With the extra for reports, which the demo ends with. The same versions as in dev: an environment for the tests is one for the demo, too.
compile pyproject.toml --extra view --group build --constraints requirements/dev.txt --output-file requirements/runtime.txt
