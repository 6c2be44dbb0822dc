"""Try to break out of sandboxes on this machine, and print the table or write it to a page.

    python -m securebench.testing.breakout docker crun runc runsc
    python -m securebench.testing.breakout docker docker:runsc crun runc runsc --page docs/explanation/security.md

Exit code 1 if an attempt escaped or gave no result.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.sandboxes.select import open_driver
from securebench.tasks import DEFAULT_IMAGE
from securebench.testing.breakout.run import USERS, AttemptOutcome, break_out
from securebench.testing.breakout.table import render, replaced

if TYPE_CHECKING:
    from securebench.testing.breakout.run import AttemptResult


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m securebench.testing.breakout", description=_summary())
    parser.add_argument(
        "drivers", nargs="*", default=["docker", "crun"], help="docker, docker:RUNTIME, or a runtime of the oci driver"
    )
    parser.add_argument("--image", default=DEFAULT_IMAGE, help="an image with python3 (default: %(default)s)")
    parser.add_argument("--page", type=Path, help="a page to write the table to, instead of printing it")
    arguments = parser.parse_args()
    columns = {name: _try(name, arguments.image) for name in arguments.drivers}
    table = render(columns)
    if arguments.page:
        arguments.page.write_text(replaced(arguments.page.read_text(encoding="utf-8"), table), encoding="utf-8")
    else:
        sys.stdout.write(table)
    bad = [
        finding
        for column in columns.values()
        for findings in column.values()
        for finding in findings
        if _is_bad(finding)
    ]
    return 1 if bad else 0


def _summary() -> str:
    return (__doc__ or "").splitlines()[0]


def _try(name: str, reference: str) -> dict[str, list[AttemptResult]]:
    driver, _, of_engine = name.partition(":")
    driver, runtime = ("docker", of_engine or None) if driver == "docker" else ("oci", name)
    with closing(open_driver(driver, runtime, "breakout", _print_progress)) as opened:
        image = opened.resolve_image(reference)
        return {who: break_out(opened, image, user=user) for who, user in USERS.items()}


def _print_progress(message: str) -> None:
    sys.stderr.write(message + "\n")


def _is_bad(finding: AttemptResult) -> bool:
    return finding.outcome in {AttemptOutcome.ESCAPED, AttemptOutcome.UNKNOWN}


if __name__ == "__main__":
    sys.exit(main())
