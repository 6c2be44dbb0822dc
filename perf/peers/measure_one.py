"""Runs in a peer's own environment: times its module's ``run`` and prints the median, in seconds.

python measure_one.py MODULE IMAGE COMMAND
"""

import importlib
import statistics
import sys
import time

_ROUNDS = 5


def main() -> None:
    """Warm up, then time."""
    module, image, command = sys.argv[1:]
    run = importlib.import_module(module).run
    times = []
    for _ in range(1 + _ROUNDS):
        started = time.perf_counter()
        output = run(image, command)
        times.append(time.perf_counter() - started)
        if "42" not in output:
            raise SystemExit(f"it said {output!r}")
    print(statistics.median(times[1:]))


if __name__ == "__main__":
    main()
