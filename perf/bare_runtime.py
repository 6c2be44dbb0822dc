"""Measure cycles of a bare runtime, in a separate mount namespace, and print the median in ms. The argument is JSON.

In the JSON, ``argv`` is the command that runs the bundle. ``text`` is written into ``workspace``, and the container
writes it back in upper case. ``count`` is the number of cycles.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

_DETACH = 2


def main() -> None:
    """Run the cycles."""
    call = json.loads(sys.argv[1])
    # crun refuses machines that have both versions of cgroups mounted. This affects only this process's mount
    # namespace.
    ctypes.CDLL(None).umount2(b"/sys/fs/cgroup/unified", _DETACH)
    times = [_cycle(call) for _ in range(call["count"])]
    print(statistics.median(times) * 1000)


def _cycle(call: dict[str, str]) -> float:
    started = time.perf_counter()
    source, result = (os.path.join(call["workspace"], side) for side in ("in", "out"))  # noqa: PTH118 - no pathlib
    with open(source, "w") as file:  # noqa: PTH123 - avoids importing pathlib
        file.write(call["text"])
    subprocess.run(call["argv"], check=True)
    with open(result) as file:  # noqa: PTH123 - avoids importing pathlib
        if file.read() != call["text"].upper():
            raise SystemExit("a cycle of the bare runtime failed")
    os.unlink(result)  # noqa: PTH108 - avoids importing pathlib
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
