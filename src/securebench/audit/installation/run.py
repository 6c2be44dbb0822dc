"""Run the probes of a catalogue, some on the host and the others on drivers, and judge the catalogue's entries."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.audit.installation.candidate_probes import CANDIDATE_KINDS
from securebench.audit.installation.catalogue import entries_of
from securebench.audit.installation.host_probes import HOST_KINDS
from securebench.audit.installation.model import (
    HOST,
    AuditedDriver,
    AuditOutcome,
    AuditReport,
    ProbeResult,
    judge_entry,
)
from securebench.audit.installation.probes import ProbeContext, ProbeFinding
from securebench.audit.installation.record_probes import RECORD_KINDS
from securebench.audit.installation.sandbox_probes import SANDBOX_KINDS
from securebench.errors import ConfigError, EngineError, ImageError, SecureBenchError
from securebench.fs.rmtree import clear_directory, make_private_directory
from securebench.results.records.provenance import framework_provenance
from securebench.sandboxes.select import open_driver
from securebench.tasks import DEFAULT_IMAGE
from securebench.testing.judging.repository_image import repository_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from securebench.audit.installation.catalogue import CatalogueEntry, CatalogueSection
    from securebench.audit.installation.probes import ProbeKind
    from securebench.sandboxes.base import SandboxDriver

KINDS: Final = (*HOST_KINDS, *RECORD_KINDS, *SANDBOX_KINDS, *CANDIDATE_KINDS)
"""All kinds of probes. Those that run on the host come first, because they are quick."""

DRIVERS: Final = ("crun", "runc", "runsc", "docker", "docker:runsc")
"""The drivers that are tried by default: runtimes of the oci driver, Docker's default runtime, and gVisor in Docker."""

_NO_DRIVER: Final = "no driver can make sandboxes on this machine"


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What to audit: sections of the catalogue, and names of drivers.

    Without names of drivers, the available ones of :data:`DRIVERS` are audited. ``report`` is called with each line of
    the progress.
    """

    sections: Sequence[CatalogueSection]
    drivers: Sequence[str] = ()
    image: str = DEFAULT_IMAGE
    report: Callable[[str], None] = lambda _line: None


def audit_installation(request: AuditRequest) -> AuditReport:
    """Run the probes of the requested entries, and return a report with the outcome of each entry.

    A probe that raises an error has the outcome "not contained". An image that the audit pulls is not removed.

    Raises :class:`EngineError` or :class:`ConfigError` if the request names a driver that is not available. Raises
    :class:`ImageError` if the request names a driver that cannot provide the image.
    """
    started, begin = datetime.now(UTC), time.monotonic()
    wanted = [entry for entry in entries_of(request.sections) if entry.probes]
    results: list[ProbeResult] = []
    drivers: list[AuditedDriver] = []
    with _scratch() as scratch, _repository(request, wanted) as repository:
        for kind in KINDS:
            if not kind.sandboxed:
                results += _run_kind(kind, ProbeContext(scratch), wanted, request)
        for name in (request.drivers or DRIVERS) if _need_driver(wanted) else ():
            again = not request.drivers and any(not driver.missing for driver in drivers)
            kinds = [kind for kind in KINDS if kind.sandboxed and not (kind.once and again)]
            here = ProbeContext(scratch, repository_image=repository)
            described, found = _audit_driver(name, kinds, here, wanted, request)
            drivers.append(described)
            results += found
    if all(driver.missing for driver in drivers):
        results += _without_driver(wanted)
    framework: Any = framework_provenance()
    return AuditReport(
        version=framework["version"],
        framework=framework["digest"],
        started_at=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=time.monotonic() - begin,
        platform=f"{platform.system()} {platform.release()} {platform.machine()}, {_user()}",
        image=request.image,
        drivers=tuple(drivers),
        sections=tuple(request.sections),
        entries={entry.id: judge_entry(entry, results) for entry in entries_of(request.sections)},
    )


def _user() -> str:
    return "as root" if os.geteuid() == 0 else "as an ordinary user"


@contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a temporary directory. It is removed at the end, even if it contains hostile trees."""
    with tempfile.TemporaryDirectory(prefix="securebench-audit-") as top:
        Path(top).chmod(0o755)  # sandboxes run as other users, and mount directories below it
        place = Path(top) / "scratch"
        make_private_directory(place)
        place.chmod(0o755)
        try:
            yield place
        finally:
            clear_directory(place)


@contextmanager
def _repository(request: AuditRequest, wanted: Sequence[CatalogueEntry]) -> Iterator[str]:
    """Yield the name of a temporary image with a repository.

    The name is empty if no probe needs the image, or if its build failed.
    """
    with ExitStack() as stack:
        name = ""
        if any(kind.name == "repository" and _items(kind, wanted) for kind in KINDS):
            with suppress(SecureBenchError):  # the probes that need the image then have no result
                name = stack.enter_context(repository_image(request.image))
        yield name


def _need_driver(wanted: Sequence[CatalogueEntry]) -> bool:
    return any(_items(kind, wanted) for kind in KINDS if kind.sandboxed)


def _audit_driver(
    name: str,
    kinds: Sequence[ProbeKind],
    context: ProbeContext,
    wanted: Sequence[CatalogueEntry],
    request: AuditRequest,
) -> tuple[AuditedDriver, list[ProbeResult]]:
    """Run the probes of ``kinds`` on the driver ``name``, and return the driver and the results.

    A driver that is not available has no results. If the request names such a driver, its error is raised instead.
    """
    request.report(f"{name}: opening")
    with ExitStack() as stack:
        try:
            driver = _open(name)
            stack.callback(driver.close)
            image = driver.resolve_image(request.image, lambda line: request.report(f"{name}: {line}"))
        except (EngineError, ImageError, ConfigError) as error:
            if request.drivers:
                raise
            request.report(f"{name}: not available")
            return AuditedDriver(name, missing=error.message), []
        info = driver.info()
        described = AuditedDriver(name, f"{info.runtime} {info.version}".strip(), tuple(sorted(info.weaker)))
        place = context.scratch / name.replace(":", "-")
        place.mkdir(mode=0o755)
        here = replace(context, scratch=place, place=name, driver=driver, image=image)
        found = [result for kind in kinds for result in _run_kind(kind, here, wanted, request)]
    return described, found


def _open(name: str) -> SandboxDriver:
    """Return an open driver. ``name`` is ``docker``, ``docker:RUNTIME``, ``oci``, or a runtime of the oci driver."""
    driver, _, runtime = name.partition(":")
    if driver == "docker":
        return open_driver("docker", runtime or None, "audit", _ignore)
    return open_driver("oci", None if driver == "oci" else driver, "audit", _ignore)


def _ignore(_message: str) -> None:
    """Ignore a message about restrictions that a driver does not enforce. The report lists them."""


def _run_kind(
    kind: ProbeKind, context: ProbeContext, wanted: Sequence[CatalogueEntry], request: AuditRequest
) -> list[ProbeResult]:
    """Run the probes of ``kind`` that the entries refer to. After an error, the remaining probes have no result."""
    names = _items(kind, wanted)
    if not names:
        return []
    request.report(f"{context.place}: {kind.title}")
    found: dict[str, ProbeFinding] = {}
    problem = "the probe returned no finding"
    try:
        for finding in kind.run(context, names):
            found[finding.item] = finding
    except SecureBenchError as error:
        problem = error.message
    except Exception as error:  # noqa: BLE001 - the other probes must still run, and this one shows its error
        problem = f"{type(error).__name__}: {error}"
    for name in names:
        found.setdefault(name, ProbeFinding.of(name, f"no result: {problem}", ""))
    return [
        ProbeResult(kind.name, item, kind.items.get(item, ""), context.place, finding.outcome, finding.how)
        for item, finding in found.items()
    ]


def _items(kind: ProbeKind, wanted: Iterable[CatalogueEntry]) -> list[str]:
    """Return the names of the probes of ``kind`` that the entries refer to, in the order of ``kind.items``."""
    chosen = {
        item
        for entry in wanted
        for item, of_item in kind.items.items()
        if f"{kind.name}/{item}" in entry.probes or (kind.name in entry.probes and of_item == entry.id)
    }
    return [item for item in kind.items if item in chosen]


def _without_driver(wanted: Sequence[CatalogueEntry]) -> list[ProbeResult]:
    """Return "not applicable" for every probe that needs sandboxes."""
    return [
        ProbeResult(kind.name, item, kind.items[item], HOST, AuditOutcome.NOT_APPLICABLE, _NO_DRIVER)
        for kind in KINDS
        if kind.sandboxed
        for item in _items(kind, wanted)
    ]
