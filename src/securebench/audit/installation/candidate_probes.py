"""Probes with candidates that try to pass without solving their task. Judging them needs sandboxes.

Each kind of probe first judges a known solution. If this solution fails, the probes of this kind have no result,
because the failure of a cheat would prove nothing.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from securebench.audit.installation.probes import ProbeContext, ProbeFinding, ProbeKind, findings
from securebench.testing.attacks import code, workspaces
from securebench.testing.attacks.repositories import REPOSITORY_CHEATS
from securebench.testing.judging.code import judge as judge_code
from securebench.testing.judging.repository import FIXED
from securebench.testing.judging.unittests import unittest_job
from securebench.testing.judging.workspace import WorkspaceJob

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from securebench.testing.attacks.repositories import RepositoryCheat
    from securebench.verifiers.base import VerificationResult

_SORTS: Final = "def solve(xs): return sorted(xs)"
_FIX: Final = {"project/numbers.py": FIXED}


def judge_code_cheats(context: ProbeContext, names: Collection[str]) -> Iterator[ProbeFinding]:
    """Judge code that does not solve its task."""
    driver, image = context.sandboxes
    canary = _canary()

    def result_of(program: str, tests: str, timeout: float | None = None) -> VerificationResult:
        return judge_code(driver, program, tests, timeout=timeout, image=image.reference)

    def attempt(name: str, cheat: code.CodeCheat) -> ProbeFinding:
        tests = cheat.tests or code.TESTS.format(canary=canary)
        return _judged(name, result_of(cheat.code, tests, cheat.timeout), canary)

    known = result_of(_SORTS, code.TESTS.format(canary=canary))
    yield from _unless_unsolved(known, names, findings(_CODE, names, attempt))


def judge_workspace_cheats(context: ProbeContext, names: Collection[str]) -> Iterator[ProbeFinding]:
    """Judge workspaces that do not solve their task."""
    driver, _ = context.sandboxes
    canary = _canary()
    job = WorkspaceJob(files={"check.py": workspaces.CHECKER.replace("{canary}", canary)})

    def attempt(name: str, cheat: workspaces.WorkspaceCheat) -> ProbeFinding:
        root = context.scratch / f"workspace-{secrets.token_hex(4)}"
        return _judged(name, job.judge(driver, root, cheat.tree), canary)

    known = job.judge(driver, context.scratch / "workspace_known", workspaces.SOLUTION)
    yield from _unless_unsolved(known, names, findings(_WORKSPACE, names, attempt))


def judge_repository_cheats(context: ProbeContext, names: Collection[str]) -> Iterator[ProbeFinding]:
    """Judge changes that do not fix a repository whose tests use unittest."""
    driver, _ = context.sandboxes
    job = unittest_job(context.repository_image)

    def attempt(name: str, cheat: RepositoryCheat) -> ProbeFinding:
        root = context.scratch / f"repository-{secrets.token_hex(4)}"
        return _judged(name, job.judge(driver, root, cheat.changes), "")

    known = job.judge(driver, context.scratch / "repository_known", _FIX)
    yield from _unless_unsolved(known, names, findings(_REPOSITORY, names, attempt))


def _canary() -> str:
    return f"canary{secrets.token_hex(16)}"


def _judged(name: str, result: VerificationResult, canary: str) -> ProbeFinding:
    """Return the finding for a cheat: its verdict must not be a pass, and must not contain the canary of the tests."""
    if result.passed:
        return ProbeFinding.of(name, "passed without a solution", "")
    if canary and canary in repr(result):
        return ProbeFinding.of(name, "the verdict contains a secret of the tests", "")
    return ProbeFinding.of(name, "", str(result.reason))


def _unless_unsolved(
    known: VerificationResult, names: Collection[str], cheats: Iterator[ProbeFinding]
) -> Iterator[ProbeFinding]:
    """Yield ``cheats`` or, if the known solution did not pass, "no result" for each name."""
    if known.passed:
        yield from cheats
    else:
        problem = f"no result: the known solution failed ({known.reason})"
        yield from (ProbeFinding.of(name, problem, "") for name in names)


_CODE: Final = {cheat.name: cheat for cheat in code.CHEATS}
_WORKSPACE: Final = {cheat.name: cheat for cheat in workspaces.CHEATS}
_REPOSITORY: Final = {cheat.name: cheat for cheat in REPOSITORY_CHEATS}

CANDIDATE_KINDS: Final = (
    ProbeKind(
        "code",
        "code that cheats",
        {name: cheat.entry for name, cheat in _CODE.items()},
        judge_code_cheats,
        sandboxed=True,
        once=True,
    ),
    ProbeKind(
        "workspace",
        "workspaces that cheat",
        {name: cheat.entry for name, cheat in _WORKSPACE.items()},
        judge_workspace_cheats,
        sandboxed=True,
        once=True,
    ),
    ProbeKind(
        "repository",
        "repository changes that cheat",
        {name: cheat.entry for name, cheat in _REPOSITORY.items()},
        judge_repository_cheats,
        sandboxed=True,
        once=True,
    ),
)
