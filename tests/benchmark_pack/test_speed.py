"""A large pack is loaded and compiled quickly and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from bounds import on_this_machine
from pack_files import row

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 10_000

PROGRAM = """
import json, re, sys, time
from pathlib import Path
from securebench.benchmark_compiler import compile_benchmark_pack
from securebench.benchmark_pack import load_benchmark_pack
directory = Path(sys.argv[1])
tasks = compile_benchmark_pack(load_benchmark_pack(directory / "manifest.yaml", directory / "tasks.jsonl"))
seconds = time.process_time()
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps([len(tasks), seconds, int(peak[1]) // 1024]))
"""
"""Peak memory is read from VmHWM, because ru_maxrss of getrusage includes the peak of the process that called fork."""


def test_ten_thousand_rows_load_and_compile_in_bounded_time_and_memory(tmp_path: Path) -> None:
    """10,000 rows take less than 3 s of processor time, imports included, and less than 300 MB.

    On a slow machine, they may take more time.
    """
    (tmp_path / "manifest.yaml").write_text("id: big\nversion: 1\n")
    with (tmp_path / "tasks.jsonl").open("w", encoding="utf-8") as file:
        for index in range(ROWS):
            family = ("multiple_choice", "code_completion", "short_answer", "free_response")[index % 4]
            line = row(family, id=f"task/{index}", metadata={"text": "x" * 500, "n": index})
            file.write(json.dumps(line) + "\n")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, check=True, text=True)
    tasks, seconds, megabytes = json.loads(done.stdout)
    assert tasks == ROWS
    assert seconds < on_this_machine(3)
    assert megabytes < 300
