"""Both sides in one process, for rows with ``isolation: shared``. This is weaker, but the tests may use every feature.

The candidate is loaded before the tests arrive, and the verdict contains a random number that arrives with them. This
stops a candidate that exits or prints a verdict. It does not stop a candidate that searches this process's memory,
patches the modules that the tests use, or returns an object that is equal to everything. So the record shows the
isolation.
"""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.candidate import load
from securebench.verifiers.code_completion.guest.notes import Notes
from securebench.verifiers.code_completion.guest.run import Run, send_verdict
from securebench.verifiers.code_completion.guest.wire import HELLO, READY, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def main() -> NoReturn:
    """Load the candidate, then receive the tests and run them against it."""
    wire = Wire.take_over(silent=False)
    wire.write(HELLO, {})
    _, source = wire.read()
    namespace = load(wire, source["code"])
    wire.write(READY, {})
    _, given = wire.read()
    wire.silence()
    used: set[str] = set()

    def lookup(name: str) -> Any:
        value = namespace[name]
        used.add(name)
        return value

    def defined(names: list[str]) -> list[str]:
        return [name for name in names if name in namespace]

    verdict = Run(given["code"], given["starter"], lookup, defined, Notes(is_split=False)).verdict()
    send_verdict(wire, {**verdict, "answered": len(used), "nonce": given["nonce"]})
