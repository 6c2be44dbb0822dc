"""The self-test of a driver: what a sandbox says of itself, before anything hostile runs in one. It fails closed.

A specification is only what was asked for. An engine of another version, or one that was configured to be lenient, may
do something else with it, and nothing would show: so the first sandbox of a run is asked what it sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.errors import EngineError
from securebench.sandboxes.base import Command, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver

_COMMAND: Final = ("/bin/cat", "/proc/net/dev", "/proc/self/status")
_SECONDS: Final = 60.0

_EXPECTED: Final[Mapping[str, tuple[str, str]]] = {
    "CapBnd": ("0000000000000000", "capabilities can be had"),
    "NoNewPrivs": ("1", "privileges can be gained"),
    "Seccomp": ("2", "no seccomp filter is on"),
}
"""Lines of ``/proc/self/status``: what each must say, and what it means if it does not."""


def require_isolation(driver: SandboxDriver, image: ResolvedImage) -> None:
    """Run one sandbox of the strictest kind and look at it. Raises :class:`EngineError` (``sandbox-not-isolated``)."""
    with driver.create(SandboxSpec(image=image)) as sandbox:
        result = sandbox.run(Command(argv=_COMMAND, timeout_seconds=_SECONDS))
    if result.exit_code != 0:
        raise _failed(f"it could not be looked at: {_COMMAND[0]} ended with {result.exit_code} in {image.reference}")
    if troubles := list(weaknesses(result.stdout.decode("utf-8", "replace"))):
        raise _failed("; ".join(troubles))


def weaknesses(seen: str) -> Iterator[str]:
    """Yield what is wrong with a sandbox that sees these two files, one after the other."""
    fields = dict(line.split(":", 1) for line in seen.splitlines() if ":" in line)
    status = {name: value.strip() for name, value in fields.items()}
    interfaces = [line.split(":", 1)[0].strip() for line in _interface_lines(seen)]
    if interfaces != ["lo"]:
        yield f"it has these network interfaces: {', '.join(interfaces) or 'not even its own'}"
    for name, (wanted, trouble) in _EXPECTED.items():
        if status.get(name) != wanted:
            yield f"{trouble} ({name} is {status.get(name, 'not there')})"


def _interface_lines(seen: str) -> Iterator[str]:
    """Yield the lines of ``/proc/net/dev`` that name an interface: all before the status, but for its two headings."""
    for line in seen.splitlines():
        if line.startswith("Name:"):
            return
        if ":" in line:
            yield line


def _failed(why: str) -> EngineError:
    return EngineError(
        f"a sandbox of this engine is not what was asked for: {why}",
        code="sandbox-not-isolated",
        hint="use an engine with its default seccomp profile, and images with /bin/cat",
    )
