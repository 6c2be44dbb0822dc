"""repo_patch: the agent changes a repository, and a test command judges the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from securebench.families.base import COMMAND, STRUCTURE, Family
from securebench.families.fields import ContainerDirectory, Seconds, ShellOrArgv, Source, SourceOrNothing, Text
from securebench.pack_paths import is_at_or_below, relative_path_fault
from securebench.resources import Visibility
from securebench.runner_commands import read_command
from securebench.strict_input.faults import Fault
from securebench.strict_input.models import OPTIONAL, WireModel, refusal
from securebench.tasks import WORKSPACE_TARGET, CandidateKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.tasks import Environment

MAX_PATTERNS: Final = 1000
"""The maximum number of path patterns in one list of a policy."""


def _pattern(pattern: str) -> str:
    if fault := relative_path_fault(pattern.removesuffix("/")):
        raise refusal("path-unsafe", fault, "use a pattern relative to the repository, such as 'src/**'")
    return pattern


MAX_TEST_IDS: Final = 100_000
"""The maximum number of test ids in one list of a row."""

_RECOGNIZED: Final = (
    "the command must start one test runner and nothing else: pytest, python -m unittest, tests/runtests.py, "
    "manage.py test or bin/test. Only a pytest command may select single tests"
)
"""What to do about a command that can only be judged by its exit code."""

TestIds = Annotated[list[Source], Field(max_length=MAX_TEST_IDS)]

Patterns = Annotated[list[Annotated[str, AfterValidator(_pattern)]], Field(max_length=MAX_PATTERNS)]


class RepoPatchInput(WireModel):
    """The repository, its commit, and the instructions for the change."""

    repo: Text
    base_commit: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{7,64}$")]
    instructions: Text
    hints: Any = OPTIONAL


class Patch(WireModel):
    """An inline patch in unified format. An empty patch changes nothing."""

    source: Literal["inline"]
    patch: SourceOrNothing


class CandidatePolicy(WireModel):
    """Which paths a candidate may change."""

    allow_paths: Patterns = OPTIONAL
    allow_sensitive_paths: Patterns = OPTIONAL


class Expect(WireModel):
    """The tests that must pass, by the ids that the test runner gives them, or by their names in its log."""

    fail_to_pass: TestIds = OPTIONAL
    pass_to_pass: TestIds = OPTIONAL


class RepoPatchTests(WireModel):
    """The test command, the patches that are applied before it runs, the path policy, and the tests that must pass."""

    source: Literal["command"]
    command: Annotated[ShellOrArgv, COMMAND]
    workdir: Annotated[ContainerDirectory, STRUCTURE] = OPTIONAL
    timeout_seconds: Annotated[Seconds, STRUCTURE] = OPTIONAL
    setup_patch: Patch = OPTIONAL
    test_patch: Patch = OPTIONAL
    candidate_policy: Annotated[CandidatePolicy, STRUCTURE] = OPTIONAL
    expect: Expect = OPTIONAL
    require: Literal["test_by_test"] = OPTIONAL


class RepoPatchEval(WireModel):
    """How a change is judged, and a reference solution."""

    tests: Annotated[RepoPatchTests, Visibility.EVALUATION_INPUTS]
    gold_patch: Annotated[Source | Patch, Visibility.HIDDEN] = OPTIONAL


def _check(_inputs: dict[str, Any], evals: dict[str, Any], environment: Environment) -> Iterable[Fault]:
    yield from _check_required_evidence(evals["tests"])
    repository, workdir = environment.workdir, evals["tests"].get("workdir")
    if repository is None:
        return
    if is_at_or_below(repository, WORKSPACE_TARGET) or is_at_or_below(WORKSPACE_TARGET, repository):
        message = f"the repository's directory and the workspace at {WORKSPACE_TARGET} overlap"
        yield Fault("workdir-unsafe", message, ("environment", "workdir"), "keep the repository elsewhere in the image")
    if workdir is not None and not is_at_or_below(workdir, repository):
        message = "tests.workdir is outside the repository at environment.workdir"
        yield Fault("workdir-unsafe", message, ("eval", "tests", "workdir"))


def _check_required_evidence(tests: dict[str, Any]) -> Iterable[Fault]:
    """If the row requires results of single tests, reject a command that can only be judged by its exit code."""
    command = tests["command"]
    if "require" not in tests or read_command(command) is not None:
        return
    message = "tests.require is 'test_by_test', but this command can only be judged by its exit code"
    yield Fault("command-not-test-by-test", message, ("eval", "tests", "command"), _RECOGNIZED)


def _warn(_inputs: dict[str, Any], evals: dict[str, Any], _environment: Environment) -> Iterable[Fault]:
    """Warn about expected tests that no verdict can depend on, because only the command's exit code counts."""
    tests = evals["tests"]
    if any((tests.get("expect") or {}).values()) and read_command(tests["command"]) is None:
        message = "tests.expect is ignored, because this command can only be judged by its exit code"
        hint = f"{_RECOGNIZED}. To refuse other commands, set tests.require to 'test_by_test'"
        yield Fault("expect-ignored", message, ("eval", "tests", "expect"), hint)


FAMILY = Family(
    name="repo_patch",
    summary="The agent changes a repository. A test command judges the change.",
    candidate_kind=CandidateKind.PATCH,
    input_model=RepoPatchInput,
    eval_model=RepoPatchEval,
    check=_check,
    warn=_warn,
)
