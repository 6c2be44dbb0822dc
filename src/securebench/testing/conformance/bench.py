"""What a check is, and what it works with."""

from __future__ import annotations

import json
import posixpath
import shutil
import tempfile
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.sandboxes.base import Command, Limits, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import CommandResult, Sandbox, SandboxDriver, SandboxProcess

PROBE = (Path(__file__).parent / "probe.py").read_text(encoding="utf-8")
"""The source of the program that checks run inside: see :mod:`securebench.testing.conformance.probe`."""

PATIENCE = 60.0
"""Seconds that a command gets which is expected to end by itself."""


class ConformanceError(AssertionError):
    """A driver does not do what the contract says."""


def require(truth: object, what: str) -> None:
    """Raise :class:`ConformanceError` that says ``what`` unless ``truth``. Not an ``assert``, which ``-O`` removes."""
    if not truth:
        raise ConformanceError(what)


def require_equal(actual: object, expected: object, what: str) -> None:
    """Raise :class:`ConformanceError` unless both are equal."""
    require(actual == expected, f"{what}: got {actual!r}, expected {expected!r}")


def require_refused(call: Callable[[], object], kind: type[Exception]) -> Exception:
    """Return what ``call`` raises. Raises :class:`ConformanceError` unless that is of ``kind``."""
    try:
        call()
    except kind as error:
        return error
    raise ConformanceError(f"{kind.__name__} was not raised")


def probe_command(action: str, *arguments: str, timeout: float = PATIENCE, **options: Any) -> Command:
    """Return the command that runs ``action`` of the probe. ``options`` are fields of :class:`Command`."""
    return Command(argv=("python3", "-c", PROBE, action, *arguments), timeout_seconds=timeout, **options)


@dataclass(slots=True)
class Bench:
    """A driver under test, an image with ``python3``, and ``directory``, an empty host directory anyone may enter."""

    driver: SandboxDriver
    image: ResolvedImage
    directory: Path
    _opened: list[Sandbox] = field(default_factory=list)

    def sandbox(self, *, persistent: bool = False, **options: Any) -> Sandbox:
        """Return a sandbox that is closed with the check. ``options`` are fields of :class:`SandboxSpec`."""
        sandbox = self.driver.create(SandboxSpec(image=self.image, **options), persistent=persistent)
        self._opened.append(sandbox)
        return sandbox

    def run(self, action: str, *arguments: str, **options: Any) -> CommandResult:
        """Run ``action`` in a fresh sandbox with defaults, or with ``options`` of the spec."""
        return self.sandbox(**options).run(probe_command(action, *arguments))

    def said(self, action: str, *arguments: str, **options: Any) -> str:
        """Return what ``action`` wrote to stdout, when it ended well."""
        result = self.run(action, *arguments, **options)
        require_equal(result.exit_code, 0, f"{action} {arguments} failed: {result.stderr[-300:]!r}")
        return result.stdout.decode().strip()

    def facts(self, **options: Any) -> dict[str, Any]:
        """Return what a process of such a sandbox is and has."""
        return dict(json.loads(self.said("facts", **options)))

    def shared(self, name: str = "shared") -> Path:
        """Return a new directory of the host that every user may write."""
        path = self.directory / name
        path.mkdir()
        path.chmod(0o777)
        return path

    def close(self) -> None:
        """Close what the check opened."""
        for sandbox in self._opened:
            sandbox.close()
        self._opened.clear()


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that every driver does. ``sentence`` states it as a fact.

    ``needs`` are names out of :data:`~securebench.sandboxes.enforcement.ENFORCEABLE`: a driver that says that it is
    weaker there is not held to it.
    """

    name: str
    sentence: str
    function: Callable[[Bench], None]
    needs: tuple[str, ...] = ()

    def run(self, driver: SandboxDriver, image: ResolvedImage, directory: Path) -> None:
        """Run it. Raises :class:`ConformanceError`, or what the driver raises."""
        bench = Bench(driver, image, directory)
        try:
            self.function(bench)
        finally:
            bench.close()


class CheckRegistry:
    """Collects the checks of one module, by decoration."""

    def __init__(self) -> None:
        self._checks: list[Check] = []

    def __call__(self, function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        """Add ``function``; its docstring is its sentence."""
        return self.needing()(function)

    def needing(self, *names: str) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
        """Return what adds a function whose check needs what ``names`` stand for."""

        def add(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
            self._checks.append(Check(function.__name__, (function.__doc__ or "").strip(), function, names))
            return function

        return add

    def __iter__(self) -> Iterator[Check]:
        return iter(self._checks)


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """How one check came out: ``problem`` is empty when the driver conforms."""

    check: Check
    problem: str = ""


def run_checks(checks: Sequence[Check], driver: SandboxDriver, image: ResolvedImage) -> list[CheckOutcome]:
    """Run ``checks`` in order, each with a directory of its own, and return what came out. Nothing is raised."""
    outcomes = []
    for check in checks:
        directory = Path(tempfile.mkdtemp(prefix="conformance-")).resolve()
        directory.chmod(0o755)
        try:
            check.run(driver, image, directory)
            outcomes.append(CheckOutcome(check))
        except Exception as error:  # noqa: BLE001 - a driver under test may raise anything, and the next check still runs
            outcomes.append(CheckOutcome(check, "".join(traceback.format_exception_only(error)).strip()))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return outcomes


def read_until(process: SandboxProcess, text: bytes, timeout: float = PATIENCE) -> bytes:
    """Read output until it holds ``text``, and return it. Raises :class:`ConformanceError` if it ends before."""
    seen = b""
    while text not in seen:
        chunk = process.receive(timeout)
        require(chunk is not None, f"the output ended before {text!r}: {seen!r}")
        seen += chunk[1] if chunk is not None else b""
    return seen


def limits(**changes: Any) -> Limits:
    """Return the default limits with ``changes``."""
    return replace(Limits(), **changes)


def workspace_path(*names: str) -> str:
    """Return a path in the directory that checks mount."""
    return posixpath.join("/workspace", *names)
