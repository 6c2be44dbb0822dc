#!/usr/bin/env bash
# Creates .venv with the locked dependencies of KIND (runtime or dev) and the project itself, editable.
# It can be run again. A stamp records what .venv was created from; if that has not changed, nothing is done.
#
#   scripts/setup_env.sh runtime|dev
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

kind=${1:?usage: setup_env.sh runtime|dev}
lock=requirements/$kind.txt
[ -f "$lock" ] || fail "$lock does not exist; the argument must be 'runtime' or 'dev'"

# A digest of what an environment depends on, including its directory, because a virtual environment cannot be moved.
wanted() { { pwd; cat "requirements/$1.txt" pyproject.toml; } | sha256sum; }

works() { "$1" -c '' 2>/dev/null; }

is_current() {
  local stamp=.venv/.securebench-$1
  [ -f "$stamp" ] && works .venv/bin/python && [ "$(cat "$stamp")" = "$(wanted "$1")" ]
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if is_new_enough "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  fail "Python 3.11 or later is required, but is not on PATH" \
    "install it, or set its path: PYTHON=/path/to/python3 make ..."
}

can_make_environments() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

make_environment() {
  local python
  python=$(find_python)
  if ! can_make_environments "$python"; then
    say "Python's venv module is incomplete; installing its Debian package"
    apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv" ||
      fail "$python cannot create virtual environments (ensurepip is missing)" \
        "run 'apt-get install python3-venv' as an administrator, then run this again"
    can_make_environments "$python" || fail "$python still has no ensurepip" "use a different Python: PYTHON=/usr/bin/python3 make ..."
  fi
  say "creating .venv with $("$python" --version)"
  rm -rf .venv
  "$python" -m venv .venv
}

# dev includes everything in runtime, in the same versions.
if is_current dev || is_current "$kind"; then exit 0; fi

if ! works .venv/bin/python || ! .venv/bin/python -c 'import pip' 2>/dev/null; then make_environment; fi
rm -f .venv/.securebench-*
say "installing the packages in $lock"
# The lock lists every package, so pip must not resolve dependencies: for one with an extra, such as pydantic[email], it
# would look for the newest release instead of the locked one, and fail because that has no hash.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$lock"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
wanted "$kind" >".venv/.securebench-$kind"
