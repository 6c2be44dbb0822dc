"""Terminal tasks in the formats of published benchmarks, written for these tests, as mappings of paths to texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UVX_SCRIPT = """\
#!/bin/bash

# Install curl
apt-get update
apt-get install -y curl

# Install uv
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh

source $HOME/.local/bin/env

# Check if we're in a valid working directory
if [ "$PWD" = "/" ]; then
    echo "Error: No working directory set. Please set a WORKDIR in your Dockerfile before running this script."
    exit 1
fi

uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA

if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
"""A script that downloads its runner, writes a reward file, and exits with 0 even if tests fail."""

TESTS = """\
import json
import pathlib
import subprocess

EXPECTED = pathlib.Path("/tests/expected.json")


def test_summary_is_right():
    assert json.loads(pathlib.Path("/app/summary.json").read_text()) == json.loads(EXPECTED.read_text())


class TestProgram:
    def test_program_counts_any_log(self, tmp_path):
        log = tmp_path / "log"
        log.write_text("error: a\\ninfo: b\\nerror: c\\n")
        out = subprocess.run(["sh", "/app/count.sh", str(log)], capture_output=True, text=True, timeout=20)
        assert out.stdout.split() == ["2"]
"""

SOLUTION = """\
#!/bin/sh
printf '#!/bin/sh\\ngrep -c ^error: "$1"\\n' > /app/count.sh
printf '{"errors": %s}' "$(sh /app/count.sh /app/app.log)" > /app/summary.json
"""

HARBOR: Mapping[str, str] = {
    "task.toml": """\
version = "1.0"

[metadata]
author_name = "nobody"
difficulty = "easy"
category = "data"
tags = ["logs"]
expert_time_estimate_min = 5.0

[verifier]
timeout_sec = 60.0

[agent]
timeout_sec = 120.0

[environment]
build_timeout_sec = 600.0
cpus = 1
memory = "2G"
storage = "10G"
""",
    "instruction.md": "Write /app/count.sh, which prints how many lines of a log begin with 'error:'.\n",
    "environment/Dockerfile": """\
FROM ubuntu:24.04
WORKDIR /app
COPY app.log /app/app.log
""",
    "environment/app.log": "error: one\ninfo: two\nerror: three\nerror: four\n",
    "tests/test.sh": UVX_SCRIPT,
    "tests/test_outputs.py": TESTS,
    "tests/expected.json": '{"errors": 3}\n',
    "solution/solve.sh": SOLUTION,
}
"""The files of a task in the format of Harbor and Terminal-Bench 2, by path."""

UV_SCRIPT = """\
#!/bin/bash
apt-get update && apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.7.13/install.sh | sh
source $HOME/.local/bin/env
if [ "$PWD" = "/" ]; then
    echo "Error: No working directory set."
    exit 1
fi
uv init
uv add pytest==8.4.1
uv run pytest $TEST_DIR/test_outputs.py -rA
"""

TERMINAL_BENCH: Mapping[str, str] = {
    "task.yaml": """\
instruction: |-
  Write /app/count.sh, which prints how many lines of a log begin with 'error:'.
author_name: nobody
author_email: nobody@example.org
difficulty: easy
category: data
tags:
  - logs
parser_name: pytest
max_agent_timeout_sec: 120.0
max_test_timeout_sec: 60.0
run_tests_in_same_shell: false
""",
    "Dockerfile": """\
FROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:latest
WORKDIR /app
COPY app.log ./
""",
    "docker-compose.yaml": """\
services:
  client:
    build:
      dockerfile: Dockerfile
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: [ "sh", "-c", "sleep infinity" ]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
""",
    "app.log": HARBOR["environment/app.log"],
    "run-tests.sh": UV_SCRIPT,
    "tests/test_outputs.py": TESTS,
    "tests/expected.json": HARBOR["tests/expected.json"],
    "solution.sh": SOLUTION,
}
"""The files of the same task in the first format of Terminal-Bench, by path."""


def lay_out(directory: Path, files: Mapping[str, str], changes: Mapping[str, str | None] | None = None) -> Path:
    """Write a task's files, with ``changes`` by path (``None`` leaves a file out), and return its directory."""
    for path, text in {**files, **(changes or {})}.items():
        if text is not None:
            place = directory / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            place.chmod(0o755 if path.endswith(".sh") else 0o644)
    return directory
