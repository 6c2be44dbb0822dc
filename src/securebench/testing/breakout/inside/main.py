"""Makes the attempts that its last argument requests: ``{"host": {...}, "names": [...]}``.

Prints a line of JSON for each attempt: its name, its outcome, and what stopped it or what it reached.
"""

from __future__ import annotations

import json
import os
import sys

from securebench.testing.breakout.inside.base import ATTEMPTS, TOGETHER, Host, outcome_apart, outcome_of


def main() -> None:
    """Make the attempts. Those that share a sandbox run in their own processes."""
    request = json.loads(sys.argv[-1])
    host = Host(**{**request["host"], "addresses": tuple(request["host"]["addresses"])})
    for name in request["names"]:
        attempt = ATTEMPTS[name]
        make = outcome_apart if attempt.staging == TOGETHER else outcome_of
        os.write(1, (json.dumps([name, *make(attempt, host)]) + "\n").encode())
