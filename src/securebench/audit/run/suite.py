"""Check a suite from a stranger: each of its runs, and that the author's signature covers these runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securebench.audit.run.report import CheckKind, RunCheck, missing_run
from securebench.audit.run.signature import check_signatures
from securebench.audit.run.verify import verify_run
from securebench.results.suite import started_runs
from securebench.results.suite_attestation import SuiteAttestation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from securebench.audit.run.report import RunReport
    from securebench.audit.run.verify import Evidence
    from securebench.resources import JsonValue
    from securebench.results.suite import RecordedSuite


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """The reports of a suite's runs, by the path of the run in the suite, and the checks of the suite itself."""

    runs: Mapping[str, RunReport]
    checks: Sequence[RunCheck]
    signed_by: str = ""
    """Who signed the suite; empty unless the signature was verified."""

    @property
    def exit_code(self) -> int:
        """0 if no check failed, otherwise the smallest :class:`CheckKind` of the failed checks."""
        codes = [report.exit_code for report in self.runs.values()]
        codes += [check.kind.value for check in self.checks if check.found]
        return min(filter(None, codes), default=0)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the report as JSON."""
        return {
            "exit_code": self.exit_code,
            "signed_by": self.signed_by or None,
            "checks": [check.to_json() for check in self.checks],
            "runs": [{"path": path, **report.to_json()} for path, report in self.runs.items()],
        }


def verify_suite(directory: Path, suite: RecordedSuite, evidence: Evidence) -> SuiteReport:
    """Check the suite in ``directory``.

    Raises the errors of :func:`verify_run`, and ``suite-damaged`` if the path of a run is or contains a link.
    """
    directory = directory.resolve()
    of_run, started = replace(evidence, other_packs=True), started_runs(directory, suite)
    runs = {path: verify_run(started[path], of_run) if path in started else missing_run() for path in suite.runs}
    check = RunCheck("suite signature", CheckKind.SIGNATURE)
    signed_by = check_signatures(check, SuiteAttestation(directory, suite), evidence)
    return SuiteReport(runs, [check], signed_by)
