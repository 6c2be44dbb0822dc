"""The candidate and its tests in one process, for rows with ``isolation: shared``.

The tests may use all features of Python, but a verdict is easier to fake than with two sandboxes. The candidate is
loaded before the tests arrive, and the verdict contains a random number that arrives with the tests. So a candidate
cannot pass by exiting or by printing a verdict. But it could search the memory of this process, patch the modules that
the tests use, or return an object that is equal to everything. Therefore, the record shows the isolation.
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
