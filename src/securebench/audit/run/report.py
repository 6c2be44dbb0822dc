"""What was checked in a run directory, and the exit code that says which kind of check failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.resources import JsonValue

MAX_PROBLEMS: Final = 20
"""The maximum number of reported problems of one check. Further problems are only counted."""

_MAX_MESSAGE: Final = 500


class CheckKind(IntEnum):
    """The kinds of checks.

    Each value is the exit code if a check of this kind fails. If several kinds fail, the smallest value is used.
    """

    BYTES = 10
    """``run.json`` and the records are valid, and have the exact bytes that SecureBench writes."""
    CHAIN = 11
    """Each record has the hash of the record before it, and no record before the last one is missing."""
    CLOSING = 12
    """Records and files are the same as when the run was closed."""
    CANDIDATES = 13
    """Sealed candidates are complete and unchanged, and match the records."""
    CONTENT = 14
    """No record contradicts itself, other records or the description of the run."""
    PACK = 15
    """The run was made with the given pack."""
    SIGNATURE = 16
    """The given key or identity signed the run."""
    CLOSED = 17
    """The run was closed when it ended."""
    FORMAT = 18
    """The run has a format that can be verified."""


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    FAILED = "FAILED"
    NOT_CHECKED = "not checked"


class CheckProblem(NamedTuple):
    """A problem that a check found. ``file`` is relative to the run directory, ``line`` counts from 1."""

    message: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part)
        return f"{place}: {self.message}" if place else self.message

    def to_json(self) -> dict[str, JsonValue]:
        """Return the problem as JSON."""
        return {"message": self.message, "file": self.file or None, "line": self.line or None}


@dataclass(slots=True)
class RunCheck:
    """One check. It passes unless it is skipped or has a problem."""

    name: str
    kind: CheckKind
    text: str = ""
    """What was checked, such as the number of records."""
    problems: list[CheckProblem] = field(default_factory=list)
    """The first :data:`MAX_PROBLEMS` problems."""
    found: int = 0
    """The number of all problems."""
    skipped: str = ""
    """Why the check was skipped; empty if it was not."""

    def add(self, message: str, file: str = "", line: int = 0) -> None:
        """Add a problem. ``message`` may contain untrusted text; ``line`` counts from 1."""
        self.found += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(CheckProblem(message[:_MAX_MESSAGE], file, line))

    def require(self, condition: object, message: str, file: str = "", line: int = 0) -> None:
        """Add a problem unless ``condition`` is true."""
        if not condition:
            self.add(message, file, line)

    @property
    def state(self) -> CheckState:
        """The result of the check."""
        if self.found:
            return CheckState.FAILED
        return CheckState.NOT_CHECKED if self.skipped else CheckState.OK

    @property
    def summary(self) -> str:
        """What was checked, or why it was not, or how many problems there are."""
        if self.found:
            return counted(self.found, "problem")
        return self.skipped or self.text

    def to_json(self) -> dict[str, JsonValue]:
        """Return the check as JSON."""
        return {
            "name": self.name,
            "kind": self.kind.name.lower(),
            "state": self.state.value,
            "text": self.summary,
            "problems": [problem.to_json() for problem in self.problems],
            "problem_count": self.found,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """All checks of one run. ``run_id`` and ``benchmark_id`` are empty if ``run.json`` cannot be read."""

    run_id: str = ""
    benchmark_id: str = ""
    checks: Sequence[RunCheck]
    signed_by: str = ""
    """Who signed the run; empty unless the signature was verified."""

    @property
    def exit_code(self) -> int:
        """0 if no check failed, otherwise the smallest :class:`CheckKind` of the failed checks."""
        return min((check.kind.value for check in self.checks if check.state is CheckState.FAILED), default=0)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the report as JSON."""
        return {
            "run_id": self.run_id or None,
            "benchmark_id": self.benchmark_id or None,
            "exit_code": self.exit_code,
            "signed_by": self.signed_by or None,
            "checks": [check.to_json() for check in self.checks],
        }


def missing_run() -> RunReport:
    """Return the report of a run that a suite names but that has no ``run.json``."""
    check = RunCheck("closed", CheckKind.CLOSED)
    check.add("the run was not started, or its directory was removed")
    return RunReport(checks=[check])
