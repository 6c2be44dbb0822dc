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
"""The maximum length of :attr:`ProbeFinding.how`, in characters."""


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What a probe may use: a ``scratch`` directory and, if ``place`` is a driver, its sandboxes.

    ``repository_image`` is the name of an image with the repository of :mod:`securebench.testing.judging.repository`.
    """

    scratch: Path
    place: str = HOST
    driver: SandboxDriver | None = None
    image: ResolvedImage | None = None
    repository_image: str = ""

    @property
    def sandboxes(self) -> tuple[SandboxDriver, ResolvedImage]:
        """The driver and the image. Only probes of ``sandboxed`` kinds have them."""
        assert self.driver is not None
        assert self.image is not None
        return self.driver, self.image


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """The outcome of the probe ``item``.

    ``how`` says what contained the attack, what the problem is, or why the probe does not apply.
    """

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

    ``items`` maps each probe's name to the id of its catalogue entry. The id is empty if the probe has no entry of its
    own. Other entries can still list the probe as ``kind/item``. ``run`` runs the probes with the given names, and may
    yield findings of other probes, too. ``sandboxed`` kinds need a driver. A ``once`` kind tests verdicts, not the
    driver: it runs on the first available driver only, unless the user names drivers.
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
    """Call ``attempt`` for each of ``items`` whose name is in ``names``, and yield its findings.

    Up to ``workers`` attempts run at the same time; 0 means one for each CPU, but at most 4. If ``attempt`` raises,
    the finding is "not contained", with the error as its reason.
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
