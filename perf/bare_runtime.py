"""Cycles of a bare runtime, in a mount namespace of its own: prints the median ms. Its argument is JSON.

``argv`` is what runs the bundle, with ``ID`` for the container's; ``text`` goes in to and comes out of ``workspace``.
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
    """Run them."""
    call = json.loads(sys.argv[1])
    # crun refuses machines that have both versions of cgroups mounted; this namespace is thrown away.
    ctypes.CDLL(None).umount2(b"/sys/fs/cgroup/unified", _DETACH)
    times = [_cycle(call, f"bare{number}") for number in range(call["count"])]
    print(statistics.median(times) * 1000)


def _cycle(call: dict[str, str], name: str) -> float:
    started = time.perf_counter()
    way_in, run_egress = (os.path.join(call["workspace"], side) for side in ("in", "out"))  # noqa: PTH118 - no imports
    with open(way_in, "w") as file:  # noqa: PTH123 - as above
        file.write(call["text"])
    subprocess.run([name if word == "ID" else word for word in call["argv"]], check=True)
    with open(run_egress) as file:  # noqa: PTH123 - as above
        if file.read() != call["text"].upper():
            raise SystemExit("a cycle of the bare runtime failed")
    os.unlink(run_egress)  # noqa: PTH108 - as above
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
