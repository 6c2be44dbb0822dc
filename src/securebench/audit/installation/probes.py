"""A kind of probe, its context, and the finding of one probe."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from securebench.audit.installation.model import HOST, AuditOutcome
from securebench.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver

_T = TypeVar("_T")

_WORKERS: Final = 4
MAX_HOW: Final = 200
"""Characters of an explanation that are kept."""


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What a probe may use: a ``scratch`` directory and, in a place that is a driver, sandboxes.

    ``repository_image`` is the name of an image with the repository of :mod:`securebench.testing.judging.repository`.
    """

    scratch: Path
    place: str = HOST
    driver: SandboxDriver | None = None
    image: ResolvedImage | None = None
    repository_image: str = ""

    @property
    def sandboxes(self) -> tuple[SandboxDriver, ResolvedImage]:
        """The driver and the image. Only for kinds that are ``sandboxed``."""
        assert self.driver is not None
        assert self.image is not None
        return self.driver, self.image


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """The result of the probe ``item`` of one kind."""

    item: str
    outcome: AuditOutcome
    how: str

    @classmethod
    def of(cls, item: str, problem: str, how: str) -> ProbeFinding:
        """Return "not contained" with ``problem``, or "contained" with ``how`` if there is no problem."""
        outcome = AuditOutcome.NOT_CONTAINED if problem else AuditOutcome.CONTAINED
        return cls(item, outcome, (problem or how)[:MAX_HOW])


@dataclass(frozen=True, slots=True)
class ProbeKind:
    """Probes that run together.

    ``items`` are their names, each with the id of the entry that it belongs to, or an empty string if only the
    catalogue says so. ``run`` makes the given items, and may yield more. ``sandboxed``: it needs a driver.
    ``once``: it runs on one driver only, unless several were named, because it tests verdicts and not the driver.
    """

    name: str
    title: str
    items: Mapping[str, str]
    run: Callable[[ProbeContext, Collection[str]], Iterable[ProbeFinding]]
    sandboxed: bool = False
    once: bool = False


def findings(
    items: Mapping[str, _T], names: Collection[str], attempt: Callable[[str, _T], ProbeFinding], *, workers: int = 0
) -> Iterator[ProbeFinding]:
    """Yield ``attempt``'s finding for each of ``items`` in ``names``, several at a time.

    If it raises, there is no result: unknown is never contained.
    """

    def made(name: str) -> ProbeFinding:
        try:
            return attempt(name, items[name])
        except InfrastructureError as error:
            return ProbeFinding.of(name, f"no result: {error.message}", "")
        except Exception as error:  # noqa: BLE001 - the other probes must still run, and this one shows its error
            return ProbeFinding.of(name, f"no result: {type(error).__name__}: {error}", "")

    with ThreadPoolExecutor(workers or min(_WORKERS, os.cpu_count() or 1)) as pool:
        yield from pool.map(made, [name for name in items if name in names])
