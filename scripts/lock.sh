#!/usr/bin/env bash
# Writes requirements/*.txt from pyproject.toml, with pinned versions and hashes of all files, without an index address.
# The resolver, uv, has a separate environment, so that the result does not depend on the installed packages.
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
compile pyproject.toml --extra view --extra sigstore --extra brotli --group dev --output-file requirements/dev.txt
# The demo needs the extra for reports. Its versions are those of dev, so that an environment for the tests also works
# for the demo.
compile pyproject.toml --extra view --group build --constraints requirements/dev.txt --output-file requirements/runtime.txt
# The extra for clusters is large, so only `make test-all` installs it on top of dev.
compile pyproject.toml --extra ray --constraints requirements/dev.txt --output-file requirements/ray.txt
