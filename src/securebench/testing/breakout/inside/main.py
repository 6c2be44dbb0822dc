"""Makes the attempts that the last argument requests: ``{"host": {...}, "names": [...]}``.

Prints two lines of JSON for each attempt: its name before it begins, and then its name, its outcome, and what stopped
it or what it reached.
"""

from __future__ import annotations

import json
import os
import sys

from securebench.testing.breakout.inside.base import ATTEMPTS, TOGETHER, Host, outcome_apart, outcome_of


def main() -> None:
    """Make each requested breakout attempt, and print its outcome."""
    request = json.loads(sys.argv[-1])
    host = Host(**{**request["host"], "addresses": tuple(request["host"]["addresses"])})
    for name in request["names"]:
        attempt = ATTEMPTS[name]
        # Attempts that share a sandbox are each made in a child process.
        make = outcome_apart if attempt.staging == TOGETHER else outcome_of
        _write([name])
        _write([name, *make(attempt, host)])


def _write(line: list[str]) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())
