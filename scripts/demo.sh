#!/usr/bin/env bash
# The demo: real benchmark tasks, run in sandboxes and judged out of the agent's reach. `make demo` installs what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

securebench=.venv/bin/securebench
results=runs/demo
packs=(humaneval-mini text-smoke code-completion-smoke)

driver=$(.venv/bin/python -m scripts.sandboxes demo)
"$securebench" images build --install-tools >&2
"$securebench" import humaneval --output benchmarks/humaneval-mini --cache .cache/import >&2

rm -rf "$results"
for pack in "${packs[@]}"; do
  say "$pack"
  "$securebench" run --config "benchmarks/$pack/tester.yaml" --workers 2 --driver "$driver" --output-dir "$results/$pack"
done
reports=("${packs[@]/#/$results/}")
"$securebench" report "${reports[@]}" --output "$results/report.html"

cat <<END

The agent's answers are prepared, five of them wrong on purpose: see benchmarks/demo-agent/README.md.
Open $results/report.html in a browser: pass rates, plots, and every task with its evidence.
Records: $results/<pack>/candidates.jsonl has one per line; run.json describes the sandboxes and their isolation.
To run a pack with your own agent: docs/how-to/bring-an-agent.md
END
