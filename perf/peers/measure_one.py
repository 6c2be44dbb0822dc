"""Measure batches of the trivial task in the environment of one harness, and print JSON in the last line.

python measure_one.py MODULE:FUNCTION IMAGE COMMAND COUNT AT_ONCE STARTED

``FUNCTION(IMAGE, COMMAND, COUNT, AT_ONCE)`` returns what each of COUNT tasks printed. STARTED is the time at which
this process was started, in seconds of the monotonic clock, which is the same for all processes. The time of the first
batch is measured from STARTED.
"""

import importlib
import json
import sys
import time
from pathlib import Path

_ROUNDS = 5
_ENOUGH = 30.0
"""After this many seconds, no further batch begins, unless fewer than two have been measured."""


def main() -> None:
    """Print the seconds per task of the first batch, including the process's start, and of the fastest later batch."""
    where, image, command = sys.argv[1:4]
    count, at_once, started = int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
    module, _, function = where.partition(":")
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    batch = getattr(importlib.import_module(module), function)
    times: list[float] = []
    begun = time.monotonic()
    while len(times) < 1 + _ROUNDS and (len(times) < 2 or time.monotonic() - begun < _ENOUGH):  # noqa: PLR2004
        begin = time.monotonic() if times else started
        outputs = batch(image, command, count, at_once)
        times.append((time.monotonic() - begin) / count)
        if [output.strip() for output in outputs] != ["42"] * count:
            raise SystemExit(f"the tasks printed {outputs}")
    print()
    print(json.dumps({"with_start": times[0], "without_start": min(times[1:])}))


if __name__ == "__main__":
    main()
