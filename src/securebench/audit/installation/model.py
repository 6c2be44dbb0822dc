"""The results of an audit: of each probe in each place, of each catalogue entry, and the whole report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.audit.installation.catalogue import CatalogueEntry, CatalogueSection
    from securebench.resources import JsonValue

HOST: Final = "host"
"""The ``place`` of probes that need no sandbox, and of probes that could not run because no driver is available."""


class AuditOutcome(StrEnum):
    """The outcome of a probe or an entry.

    ``not contained``: an attack worked, or there was no result. ``not applicable``: this installation has nothing that
    could be attacked, or no meaningful check is possible. ``not checked here``: only the project's own tests cover the
    entry. Probes never have this last outcome.
    """

    CONTAINED = "contained"
    NOT_CONTAINED = "not contained"
    NOT_APPLICABLE = "not applicable"
    NOT_CHECKED = "not checked here"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one probe, such as ``code/abort``, in one place: a driver, or :data:`HOST`.

    ``entry`` is the id of the catalogue entry that the probe itself names, or empty. ``how`` says what stopped the
    attack, what happened instead, or why the probe does not apply.
    """

    kind: str
    item: str
    entry: str
    place: str
    outcome: AuditOutcome
    how: str

    @property
    def name(self) -> str:
        """The name of the probe, as the catalogue refers to it."""
        return f"{self.kind}/{self.item}"

    def belongs_to(self, entry: CatalogueEntry) -> bool:
        """Return whether ``entry`` refers to this probe."""
        return self.name in entry.probes or (self.kind in entry.probes and self.entry == entry.id)


@dataclass(frozen=True, slots=True)
class EntryResult:
    """The outcome of one entry, the reason in words, and the results of its probes."""

    entry: CatalogueEntry
    outcome: AuditOutcome
    why: str
    results: tuple[ProbeResult, ...] = ()

    def by_place(self) -> Iterator[tuple[str, AuditOutcome, int, int]]:
        """For each place, yield its name, its outcome, how many probes were contained, and how many probes apply."""
        places = dict.fromkeys(result.place for result in self.results)
        for place in places:
            here = [result for result in self.results if result.place == place]
            applied = [result for result in here if result.outcome is not AuditOutcome.NOT_APPLICABLE]
            contained = sum(result.outcome is AuditOutcome.CONTAINED for result in applied)
            yield place, worst(result.outcome for result in here), contained, len(applied)


@dataclass(frozen=True, slots=True)
class AuditedDriver:
    """A driver that the audit tried. ``weaker`` has the names of the restrictions that it does not enforce.

    ``missing`` is the reason why the driver is not available, or empty if the driver is available.
    """

    name: str
    version: str = ""
    weaker: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """An audit of this installation. ``started_at`` is its start in UTC (ISO 8601), ``seconds`` its duration.

    ``framework`` is the digest of SecureBench's source files.
    """

    version: str
    framework: str
    started_at: str
    seconds: float
    platform: str
    image: str
    drivers: tuple[AuditedDriver, ...]
    sections: tuple[CatalogueSection, ...]
    entries: Mapping[str, EntryResult]

    @property
    def counts(self) -> dict[str, int]:
        """The number of entries with each outcome."""
        return {
            str(outcome): sum(result.outcome is outcome for result in self.entries.values()) for outcome in AuditOutcome
        }

    @property
    def holds(self) -> bool:
        """Whether the audit found no entry with the outcome "not contained"."""
        return not self.counts[AuditOutcome.NOT_CONTAINED]

    def to_json(self) -> dict[str, JsonValue]:
        """Return the report as plain values."""
        return {
            "version": self.version,
            "framework": self.framework,
            "started_at": self.started_at,
            "seconds": round(self.seconds, 1),
            "platform": self.platform,
            "image": self.image,
            "drivers": [
                {"name": one.name, "version": one.version, "weaker": list(one.weaker), "missing": one.missing}
                for one in self.drivers
            ],
            "counts": {**self.counts},
            "entries": [_entry_to_json(result) for result in self.entries.values()],
        }


def _entry_to_json(result: EntryResult) -> JsonValue:
    entry = result.entry
    return {
        "id": entry.id,
        "title": entry.title,
        "attack": entry.attack,
        "contained_by": entry.contained_by,
        "outcome": str(result.outcome),
        "why": result.why,
        "tests": list(entry.tests),
        "probes": [
            {"name": one.name, "place": one.place, "outcome": str(one.outcome), "how": one.how}
            for one in result.results
        ],
    }


def worst(outcomes: Iterator[AuditOutcome]) -> AuditOutcome:
    """Return the worst of several outcomes. The result is "not applicable" only if all of them are."""
    found = set(outcomes)
    for outcome in (AuditOutcome.NOT_CONTAINED, AuditOutcome.CONTAINED):
        if outcome in found:
            return outcome
    return AuditOutcome.NOT_APPLICABLE


def judge_entry(entry: CatalogueEntry, results: Sequence[ProbeResult]) -> EntryResult:
    """Return the outcome of ``entry`` from the ``results`` of all probes."""
    if entry.not_applicable:
        return EntryResult(entry, AuditOutcome.NOT_APPLICABLE, entry.not_applicable)
    if not entry.probes:
        return EntryResult(entry, AuditOutcome.NOT_CHECKED, f"shown by {', '.join(entry.tests)}")
    own = tuple(result for result in results if result.belongs_to(entry))
    if not own:
        return EntryResult(entry, AuditOutcome.NOT_CONTAINED, "no result: none of its probes ran")
    outcome = worst(result.outcome for result in own)
    return EntryResult(entry, outcome, _reason(outcome, own), own)


def _reason(outcome: AuditOutcome, results: Sequence[ProbeResult]) -> str:
    """Return a text that explains ``outcome``, such as "3 attempts, none succeeded"."""
    applied = [result for result in results if result.outcome is not AuditOutcome.NOT_APPLICABLE]
    if outcome is AuditOutcome.NOT_APPLICABLE:
        return "; ".join(dict.fromkeys(result.how for result in results))
    if outcome is AuditOutcome.CONTAINED:
        return f"{counted(len(applied), 'attempt')}, none succeeded"
    failed = [result for result in applied if result.outcome is AuditOutcome.NOT_CONTAINED]
    shown = "; ".join(f"{one.name} on {one.place}: {one.how}" for one in failed[:3])
    return shown + (f"; {len(failed) - 3} more" if len(failed) > 3 else "")  # noqa: PLR2004 - enough for one line
