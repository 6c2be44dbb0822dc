"""Compare the verdicts of a run with those of a new run that judges its sealed candidates again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from securebench.results.records.record import VerificationStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.results.read import RecordedRun
    from securebench.results.records.record import Assurance, RecordEntry
    from securebench.results.run_directory.header import RunHeader
    from securebench.results.summary import TesterRunSummary
    from securebench.trials import TrialId

_COMPARED = ("sandbox", "framework", "verifiers", "families")
"""The sections of ``decisive`` in ``run.json`` that describe what judges candidates."""


class RecordedVerdict(NamedTuple):
    """The verdict of a verifier."""

    status: VerificationStatus
    reason: str
    assurance: Assurance

    @classmethod
    def of(cls, entry: RecordEntry | None) -> Self | None:
        """Return the verdict in a record; ``None`` if no verifier gave one."""
        return cls(entry.status, entry.reason, entry.assurance) if entry and entry.assurance else None

    def __str__(self) -> str:
        return f"{self.status.value} ({', '.join(filter(None, (self.reason, self.assurance.value)))})"

    def to_json(self) -> dict[str, JsonValue]:
        """Return the verdict with the keys of a record."""
        return {
            "verification_status": self.status.value,
            **({"failure_reason": self.reason} if self.reason else {}),
            "assurance": self.assurance.value,
        }


class ChangedVerdict(NamedTuple):
    """A trial whose verdict changed. ``message`` explains the new verdict."""

    trial: TrialId
    was: RecordedVerdict
    now: RecordedVerdict
    message: str


class Unjudged(NamedTuple):
    """A trial that was not judged again, and why."""

    trial: TrialId
    why: str


class Difference(NamedTuple):
    """A value in ``run.json`` that differs between the two runs: its name, and both values."""

    name: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.name} was {self.was}, and is {self.now} now"


@dataclass(frozen=True, slots=True)
class VerdictComparison:
    """The comparison of the old and the new verdicts. ``same`` is the number of verdicts that did not change."""

    same: int
    changed: tuple[ChangedVerdict, ...]
    unjudged: tuple[Unjudged, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverification:
    """The result of judging the candidates of the run in ``directory`` again.

    ``summary`` is the summary of the new run. ``notes`` say what limits the comparison, such as missing records.
    """

    directory: Path
    summary: TesterRunSummary
    verdicts: VerdictComparison
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, JsonValue]:
        """Return the result as JSON."""
        return {
            "directory": str(self.directory),
            "output_dir": str(self.summary.output_dir),
            "same": self.verdicts.same,
            "changed": [
                {**_named(trial), "was": was.to_json(), "is": now.to_json(), "message": message}
                for trial, was, now, message in self.verdicts.changed
            ],
            "unjudged": [{**_named(trial), "why": why} for trial, why in self.verdicts.unjudged],
            "differences": [difference._asdict() for difference in self.differences],
            "notes": list(self.notes),
            "summary": self.summary.to_json(),
        }


def why_unjudged(entry: RecordEntry | None) -> str:
    """Return why a record has no verdict to compare with; empty if it has one."""
    if entry is None:
        return "the run has no record of this trial"
    if entry.assurance is not None:
        return ""
    if entry.status is VerificationStatus.PENDING:
        return "its family has no verifier"
    if entry.status is VerificationStatus.ERROR:
        return f"the run has no verdict on this trial: {entry.message}"
    return f"the agent failed, so nothing was judged: {entry.message}"


def compare_verdicts(
    trials: Iterable[TrialId], before: Mapping[TrialId, RecordEntry], now: RecordedRun
) -> VerdictComparison:
    """Compare the verdicts on ``trials`` in the records ``before`` with those in the run ``now``.

    The results are sorted by id. Raises :class:`ConfigError` as :meth:`RecordedRun.records` does.
    """
    same = 0
    changed: list[ChangedVerdict] = []
    left = dict.fromkeys(trials, "it has not been judged yet")
    for record in now.records():
        entry, trial = record.entry, record.id
        was, found = RecordedVerdict.of(before.get(trial)), RecordedVerdict.of(entry)
        if was is None or found is None:
            left[trial] = why_unjudged(before.get(trial)) or entry.message
            continue
        del left[trial]
        if was == found:
            same += 1
        else:
            changed.append(ChangedVerdict(trial, was, found, entry.message))
    unjudged = sorted(Unjudged(trial, why) for trial, why in left.items())
    return VerdictComparison(same, tuple(sorted(changed)), tuple(unjudged))


def reverified(earlier: RunHeader, decisive: Mapping[str, Any], images: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return ``information.reverifies`` of a run that judges the candidates of the run ``earlier`` again.

    ``decisive`` and ``images`` are those of the new run. An image is compared only if both runs resolved it.
    """
    names = [section for section in _COMPARED if section in earlier.decisive or section in decisive]
    shared = earlier.images.keys() & images.keys()
    differences = [
        *_leaves({name: earlier.decisive.get(name) for name in names}, {name: decisive.get(name) for name in names}),
        *_leaves({name: earlier.images[name] for name in shared}, {name: images[name] for name in shared}, "images."),
    ]
    return {
        "run_id": earlier.run_id,
        "created_at": earlier.created_at,
        "root": earlier.root,
        "differences": [difference._asdict() for difference in differences],
    }


def _leaves(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[Difference]:
    """Yield every value that differs, with its path."""
    for name in sorted({*then, *now}):
        before, after = then.get(name), now.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _leaves(before, after, f"{prefix}{name}.")
        elif before != after:
            yield Difference(f"{prefix}{name}", _text(before), _text(after))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "nothing" if value in (None, []) else str(value)


def _named(trial: TrialId) -> dict[str, JsonValue]:
    return {"task_id": trial.task_id, "trial": trial.trial}
