"""Checks, and the test bench that they use."""

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
from securebench.sandboxes.copying import adapted
from securebench.sandboxes.enforcement import DriverFeature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import CommandResult, DriverInfo, Sandbox, SandboxDriver, SandboxProcess

PROBE = (Path(__file__).parent / "probe.py").read_text(encoding="utf-8")
"""The source of the program that the checks run in a sandbox: see :mod:`securebench.testing.conformance.probe`."""

TIMEOUT_SECONDS = 60.0
"""The time limit in seconds of commands that are expected to end on their own."""


class ConformanceError(AssertionError):
    """A driver violates the contract that all drivers share."""


def require(truth: object, what: str) -> None:
    """Raise :class:`ConformanceError` with the message ``what`` if ``truth`` is false, even under ``python -O``."""
    if not truth:
        raise ConformanceError(what)


def require_equal(actual: object, expected: object, what: str) -> None:
    """Raise :class:`ConformanceError` unless both values are equal. ``what`` says what they are."""
    require(actual == expected, f"{what}: got {actual!r}, expected {expected!r}")


def require_raises(call: Callable[[], object], kind: type[Exception]) -> Exception:
    """Return the exception of ``kind`` that ``call`` raises. Raises :class:`ConformanceError` if ``call`` returns."""
    try:
        call()
    except kind as error:
        return error
    raise ConformanceError(f"{kind.__name__} was not raised")


def probe_command(action: str, *arguments: str, timeout: float = TIMEOUT_SECONDS, **options: Any) -> Command:
    """Return the command that runs ``action`` of the probe. ``options`` are fields of :class:`Command`."""
    return Command(argv=("python3", "-c", PROBE, action, *arguments), timeout_seconds=timeout, **options)


@dataclass(slots=True)
class Bench:
    """A driver under test, an image with ``python3``, and an empty host ``directory`` that anyone may read."""

    driver: SandboxDriver
    image: ResolvedImage
    directory: Path
    _opened: list[Sandbox] = field(default_factory=list)

    def sandbox(self, *, persistent: bool = False, **options: Any) -> Sandbox:
        """Return a sandbox that is closed after the check. ``options`` are fields of :class:`SandboxSpec`."""
        sandbox = self.driver.create(SandboxSpec(image=self.image, **options), persistent=persistent)
        self._opened.append(sandbox)
        return sandbox

    def run(self, action: str, *arguments: str, **options: Any) -> CommandResult:
        """Run ``action`` in a new sandbox. ``options`` are the arguments of :meth:`sandbox`."""
        return self.sandbox(**options).run(probe_command(action, *arguments))

    def output(self, action: str, *arguments: str, **options: Any) -> str:
        """Return the stripped stdout of ``action``. Raises :class:`ConformanceError` unless its exit code is 0."""
        result = self.run(action, *arguments, **options)
        require_equal(result.exit_code, 0, f"{action} {arguments} failed: {result.stderr[-300:]!r}")
        return result.stdout.decode().strip()

    def facts(self, **options: Any) -> dict[str, Any]:
        """Return the properties of a process in a new sandbox. ``options`` are the arguments of :meth:`sandbox`."""
        return dict(json.loads(self.output("facts", **options)))

    def shared(self, name: str = "shared") -> Path:
        """Return a new directory of the host that every user may write to."""
        path = self.directory / name
        path.mkdir()
        path.chmod(0o777)
        return path

    def close(self) -> None:
        """Close the sandboxes of the check."""
        for sandbox in self._opened:
            sandbox.close()
        self._opened.clear()


@dataclass(frozen=True, slots=True)
class Check:
    """One property of every driver. ``sentence`` states it as a fact.

    ``needs`` are names in :data:`~securebench.sandboxes.enforcement.ENFORCEABLE`. A driver that declares one of them as
    not enforced may fail the check. If a driver declares that it lacks one of the ``features``, the check is skipped.
    """

    name: str
    sentence: str
    function: Callable[[Bench], None]
    needs: tuple[str, ...] = ()
    features: tuple[DriverFeature, ...] = ()

    def skipped(self, info: DriverInfo) -> str:
        """Return why this check is skipped for the driver described by ``info``, or an empty string if it is not."""
        lacking = [feature for feature in self.features if feature in info.lacks]
        return f"this driver declares that it lacks {lacking[0]}" if lacking else ""

    def run(self, driver: SandboxDriver, image: ResolvedImage, directory: Path) -> None:
        """Run the check. Raises :class:`ConformanceError`, or what the driver raises.

        As in a run, features that the driver lacks are replaced where possible: see :func:`adapted`.
        """
        bench = Bench(adapted(driver), image, directory)
        try:
            self.function(bench)
        finally:
            bench.close()


class CheckRegistry:
    """Collects the checks of one module with a decorator."""

    def __init__(self) -> None:
        self._checks: list[Check] = []

    def __call__(self, function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        """Add a check that calls ``function``, whose docstring becomes the check's sentence. Return ``function``."""
        return self.needing()(function)

    def needing(self, *names: str) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
        """Return a decorator that adds a check that needs ``names``: restrictions or features of the driver."""
        features = tuple(name for name in names if isinstance(name, DriverFeature))
        needs = tuple(name for name in names if not isinstance(name, DriverFeature))

        def add(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
            sentence = (function.__doc__ or "").strip()
            self._checks.append(Check(function.__name__, sentence, function, needs, features))
            return function

        return add

    def __iter__(self) -> Iterator[Check]:
        return iter(self._checks)


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of one check.

    ``problem`` says why the check failed. ``skipped`` says why it was not run. Each is empty if it does not apply.
    """

    check: Check
    problem: str = ""
    skipped: str = ""


def run_checks(checks: Sequence[Check], driver: SandboxDriver, image: ResolvedImage) -> list[CheckOutcome]:
    """Run ``checks`` in order, each with its own directory, and return the results. A failed check does not raise."""
    outcomes = []
    info = driver.info()
    for check in checks:
        if reason := check.skipped(info):
            outcomes.append(CheckOutcome(check, skipped=reason))
            continue
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


def read_until(process: SandboxProcess, text: bytes, timeout: float = TIMEOUT_SECONDS) -> bytes:
    """Read output until it contains ``text``, and return it.

    Raises :class:`ConformanceError` if the output ends earlier, and ``TimeoutError`` after ``timeout`` seconds without
    output.
    """
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
    """Return the path of ``names`` below ``/workspace``, where checks mount a directory."""
    return posixpath.join("/workspace", *names)
