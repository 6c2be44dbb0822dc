"""The signature of a suite. It covers the list of runs: no run can be removed, added, replaced or moved unnoticed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from securebench.results.attestation import Attestation, RunAttestation, not_closed, result_statement
from securebench.results.read import read_run
from securebench.results.run_directory.files import SUITE
from securebench.results.run_directory.header import HEADER
from securebench.results.suite import started_runs

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.results.run_directory.closing import Closing
    from securebench.results.suite import RecordedSuite
    from securebench.signing.signers import StatementSigner
    from securebench.signing.statement import Statement


class SuiteAttestation(Attestation):
    """The statement about a suite: ``suite.json``, the ``run.json`` of each run, and the results of the runs.

    A run that was not started is listed by its path only.
    """

    kind = "suite"

    def __init__(self, directory: Path, suite: RecordedSuite) -> None:
        super().__init__(directory)
        self._suite = suite

    def sign(self, signer: StatementSigner) -> Path:
        """See :class:`Attestation`. Each run that was started must already have the signature of ``signer``."""
        for run in started_runs(self.directory, self._suite).values():
            RunAttestation(read_run(run)).require_signed_by(signer)
        return super().sign(signer)

    def digests(self) -> dict[str, str]:
        """See :class:`Attestation`."""
        files = {SUITE: self._suite.to_bytes()}
        for path, run in started_runs(self.directory, self._suite).items():
            files[f"{path}/{HEADER}"] = read_run(run).header.to_bytes()
        return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}

    def statement(self) -> Statement:
        """See :class:`Attestation`."""
        tests: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
        runs = started_runs(self.directory, self._suite)
        for path in self._suite.runs:
            closing = None
            if path in runs:
                closing = read_run(runs[path]).header.closing
                if closing is None:
                    raise not_closed(runs[path])
            tests[_list_of(closing)].append(path)
        return result_statement(self.digests(), [{"name": f"suite {self._suite.id}"}], tests)


def _list_of(closing: Closing | None) -> str:
    """Return the key under which the statement lists a run: ``passedTests``, ``warnedTests`` or ``failedTests``.

    ``closing`` is ``None`` for a run that was not started.
    """
    counts = closing.counts if closing else {"not_run": 1}
    if counts.get("failed"):
        return "failedTests"
    return "warnedTests" if any(counts.get(name) for name in ("error", "pending", "not_run")) else "passedTests"
