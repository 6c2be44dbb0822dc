"""Print the lines of sorted.txt. The host compares them with the expected lines, which no sandbox ever sees."""

import json
import os
import stat
import sys

try:
    descriptor = os.open("sorted.txt", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        sys.exit(10)
    with os.fdopen(descriptor, encoding="ascii") as file:
        lines = file.read(10_000).split("\n")
except (OSError, ValueError):
    sys.exit(10)
print(json.dumps({"lines": lines}))
