"""Makes the attempts that it is told to: ``{"host": {...}, "names": [...]}`` is its last argument.

Says a line of JSON for each: its name, its outcome, and how.
"""

from __future__ import annotations

import json
import os
import sys

from securebench.testing.breakout.inside.base import ATTEMPTS, TOGETHER, Host, outcome_apart, outcome_of


def main() -> None:
    """Make them: those that share a sandbox in a process each."""
    asked = json.loads(sys.argv[-1])
    host = Host(**{**asked["host"], "addresses": tuple(asked["host"]["addresses"])})
    for name in asked["names"]:
        attempt = ATTEMPTS[name]
        make = outcome_apart if attempt.staging == TOGETHER else outcome_of
        os.write(1, (json.dumps([name, *make(attempt, host)]) + "\n").encode())
