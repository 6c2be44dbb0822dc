"""Run HumanEval in containers of a bare runtime, in a separate mount namespace. The argument is a JSON file.

In the file, ``tasks`` has three commands for each task: ``agent`` and ``candidate`` run containers, and ``tests`` runs
a bare process. ``workers`` is the number of tasks that run at once. Prints the seconds and processor seconds as JSON.
"""

from __future__ import annotations

import ctypes
import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

_DETACH = 2


def main() -> None:
    """Run the tasks."""
    with open(sys.argv[1]) as file:  # noqa: PTH123 - avoids importing pathlib
        call = json.load(file)
    # crun refuses machines that have both versions of cgroups mounted. This affects only this process's mount
    # namespace.
    ctypes.CDLL(None).umount2(b"/sys/fs/cgroup/unified", _DETACH)
    started, before = time.perf_counter(), _cpu()
    with ThreadPoolExecutor(call["workers"]) as pool:
        list(pool.map(_run, call["tasks"]))
    print(json.dumps({"wall": time.perf_counter() - started, "cpu": _cpu() - before}))


def _run(task: dict[str, list[str]]) -> None:
    subprocess.run(task["agent"], check=True, stdout=subprocess.DEVNULL)
    running = [subprocess.Popen(task[name]) for name in ("candidate", "tests")]
    if any([process.wait() for process in running]):  # noqa: C419 - a generator would not wait for each
        raise SystemExit(f"{task['candidate'][-1]} or its tests failed")


def _cpu() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
