#!/usr/bin/env bash
# Runs the checks and the tests, and installs what they need. Arguments are passed to pytest.
# There are two more workers than processors, because many tests wait for a sandbox. With -n 0 there is only one process.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

# In a fresh clone, these checks take half a minute, in which the set-up below mostly waits for downloads.
# No test runs if one of them fails.
make --no-print-directory lint &
checks=$!

# In a fresh clone, every worker would compile all test files at the same time. One process does it during the set-up.
compiling=
if [ ! -d tests/__pycache__ ]; then
  .venv/bin/python -m pytest -n 0 --collect-only -qq >/dev/null 2>&1 &
  compiling=$!
fi

no_engine=$(.venv/bin/python -m scripts.sandboxes test)
if [ -n "$no_engine" ]; then
  say "tests that need a Docker Engine are skipped: $no_engine"
  export SECUREBENCH_NO_ENGINE="$no_engine"
fi
.venv/bin/securebench images build --install-tools
no_agents=$(.venv/bin/python -m scripts.agents)
if [ -n "$no_agents" ]; then
  say "tests that run the real agent programs are skipped: $no_agents"
  export SECUREBENCH_NO_AGENTS="$no_agents"
fi
if ! command -v chromium >/dev/null; then
  say "installing Chromium for the tests of reports"
  if ! apt_install chromium; then
    say "tests of reports in a browser are skipped: Chromium cannot be installed here"
    export SECUREBENCH_NO_BROWSER="Chromium cannot be installed here"
  fi
fi
if ! command -v ssh-agent >/dev/null && ! apt_install openssh-client; then
  say "tests of keys in an ssh-agent are skipped: openssh-client cannot be installed here"
fi
if ! command -v strace >/dev/null; then
  say "installing strace for the tests of power failures"
  if ! apt_install strace; then
    say "tests of power failures are skipped: strace cannot be installed here"
    export SECUREBENCH_NO_STRACE="strace cannot be installed here"
  fi
fi
wait "$checks"
case " $* " in
*" --thorough "*)
  say "installing Ray for the tests of runs on many machines"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/ray.txt
  ;;
esac
# A failure of this process is ignored: if a file cannot be imported, the tests below report that.
[ -z "$compiling" ] || wait "$compiling" || true
workers=$(($(nproc) + 2))
status=0
.venv/bin/python -m pytest -n $workers --dist loadfile --no-loadscope-reorder --durations 20 "$@" || status=$?
if [ "$status" -eq 1 ]; then
  # On a busy machine, a test can exceed its time limits. If it fails again on its own, it is a real failure.
  say "running failed tests again, one at a time"
  status=0
  .venv/bin/python -m pytest -n 0 --last-failed --last-failed-no-failures none --durations 0 "$@" || status=$?
fi
exit "$status"
