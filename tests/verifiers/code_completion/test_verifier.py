"""The verifier as a run uses it: the sandboxes that it requests, the candidates that it refuses, and its results."""

from __future__ import annotations

import ast
import sys
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import EngineError, FailureReason, ImageError, InfrastructureError, MaterializationError
from securebench.sandboxes.base import BASE_ENVIRONMENT, UNPRIVILEGED_USER
from securebench.tasks import DEFAULT_IMAGE
from securebench.testing.judging.code import artifact, context, judge, view_of
from securebench.verifiers.code_completion import CodeCompletionVerifier
from securebench.verifiers.code_completion.programs import ARGV
from securebench.verifiers.code_completion.request import MAX_SOURCE_BYTES
from verifiers.code_completion.judging_code import local_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.base import Sandbox, SandboxSpec
    from securebench.testing.scripted_sandbox import ProgramContext, ScriptedDriver

CANARY = "canary0123456789abcdef"
TESTS = f"# {CANARY}\nassert f(2) == 4, '{CANARY}'\n"
RIGHT = "def f(x): return x * x"
_VERDICT = """import os
body = b'{"outcome": "passed", "answered": 1}'
forge = lambda x=0: os.write(4, b'V' + len(body).to_bytes(4, 'big') + body)
"""
FORGE = f"{_VERDICT}forge()"
FORGE_LATER = f"{_VERDICT}f = forge"


@pytest.fixture
def local() -> Iterator[ScriptedDriver]:
    """Provide a driver that runs the guests as local processes, and check that no sandbox stays open."""
    made = local_driver()
    yield made
    assert not made.open_sandboxes
    made.close()


def test_two_sandboxes_of_the_strictest_kind(local: ScriptedDriver) -> None:
    """B07, B22: Both sandboxes have no mounts, no network, no capabilities, an unprivileged user and a read-only root.

    Their command lines and environments are constant, so they contain nothing of the task.
    """
    assert judge(local, RIGHT, TESTS).passed
    assert len(local.commands) == 2
    for spec, command in local.commands:
        assert (spec.mounts, spec.network, spec.read_only, spec.user) == ((), "none", True, UNPRIVILEGED_USER)
        assert (spec.cap_add, spec.cap_drop, spec.image.reference) == ((), ("ALL",), DEFAULT_IMAGE)
        assert not spec.inherit_image_environment
        assert (command.argv, command.environment, spec.environment) == (ARGV, {}, BASE_ENVIRONMENT)
        assert command.stdin == b""


def test_a_pass_says_how_it_came_about(local: ScriptedDriver) -> None:
    """The metadata of a pass names verifier, version, phase, isolation, image, duration and the number of answers."""
    result = judge(local, RIGHT, TESTS)
    duration = result.metadata["duration_seconds"]
    assert isinstance(duration, float)
    assert dict(result.metadata) == {
        "verifier": "code_completion",
        "version": CodeCompletionVerifier.version,
        "phase": "verdict",
        "reason": None,
        "isolation": "split",
        "image_id": local.resolve_image(DEFAULT_IMAGE).id,
        "answered": 1,
        "duration_seconds": duration,
    }
    assert result.score == 1.0


def test_a_failure_names_type_and_line_and_no_text_of_the_tests(local: ScriptedDriver) -> None:
    """F13: The result of a failure names the exception's type and line, and contains no text of the tests."""
    result = judge(local, "def f(x): return x", TESTS)
    assert result.reason is FailureReason.TESTS_FAILED
    assert result.message == "the tests failed at line 2 of the tests: AssertionError"
    assert (result.metadata["error"], result.metadata["line"]) == ("AssertionError", 2)
    assert CANARY not in repr(result)
    assert result.score == 0.0


@pytest.mark.parametrize(
    "tests",
    [
        *("def check(:\n", "x = '\0'", "return", "assert (" + "(" * 500),
        *("import no_such_module\nassert f(2) == 4", "from math import no_such\nassert f(2) == 4"),
        "try:\n    import no_such_module\nfinally:\n    pass",
    ],
)
@pytest.mark.parametrize("candidate", [RIGHT, "def f(x): raise ModuleNotFoundError('numpy')", "import math"])
def test_tests_that_cannot_run_make_the_task_unusable(local: ScriptedDriver, tests: str, candidate: str) -> None:
    """Tests that do not compile or that import a missing module are an error of the task, with any candidate."""
    with pytest.raises(MaterializationError) as caught:
        judge(local, candidate, tests)
    assert caught.value.code == "tests-unusable"


@pytest.mark.parametrize(
    ("candidate", "tests"),
    [
        ("def f(x): raise ModuleNotFoundError('numpy')", TESTS),
        ("def f(x): import numpy_that_is_not_there", TESTS),
        (RIGHT, "assert f(2) == 4\nimport no_such_module"),
        ("f = 1", "f\nimport no_such_module"),
        ("import no_such_module", TESTS),
        ("def f(x)", "assert ("),
    ],
)
def test_a_candidate_cannot_make_a_task_unusable(local: ScriptedDriver, candidate: str, tests: str) -> None:
    """If the tests have used the candidate, or the candidate cannot be loaded, it fails, and there is no error."""
    assert judge(local, candidate, tests).reason is not None


def test_in_one_process_broken_tests_are_a_failure(local: ScriptedDriver) -> None:
    """With shared isolation, the candidate may be why tests cannot run, so this is a failure and no error."""
    code = "import builtins\ndef refuse(*a, **k): raise SyntaxError\nbuiltins.compile = refuse"
    for tests in (TESTS, "def check(:", "import no_such_module"):
        assert judge(local, code, tests, isolation="shared").reason is not None


@pytest.mark.parametrize(
    "tests",
    [
        "pass",
        "def check(): assert f(2) == 5",
        "callable(f)",
        "import sys; sys.exit(0)",
        "import unittest; unittest.main()",
        "try:\n    f(__import__('threading').Lock())\nexcept TypeError:\n    pass",
    ],
)
def test_tests_that_use_nothing_are_no_pass(local: ScriptedDriver, tests: str) -> None:
    """A17: Tests that get no answer from the candidate are no pass.

    Neither a mention of the candidate's function nor a call that cannot be sent is an answer.
    """
    result = judge(local, RIGHT, tests)
    assert result.reason is FailureReason.NO_VERDICT


@pytest.mark.parametrize("tests", ["f(2)\nraise SystemExit(1)", "f(2)\nimport sys; sys.exit('no')", "f(2); exit(True)"])
def test_tests_that_leave_with_a_failure_fail(local: ScriptedDriver, tests: str) -> None:
    """Tests that exit with a status other than success fail."""
    assert judge(local, RIGHT, tests).reason is FailureReason.TESTS_FAILED


def test_tests_that_kill_themselves_are_no_verdict(local: ScriptedDriver) -> None:
    """A15: If the tests' process ends without a verdict, the candidate does not pass."""
    result = judge(local, RIGHT, "f(2)\nimport os; os._exit(0)")
    assert result.reason is FailureReason.NO_VERDICT


def test_tests_that_hang_are_no_verdict(local: ScriptedDriver) -> None:
    """If the tests themselves hang until the time limit of the task, there is no verdict."""
    assert judge(local, RIGHT, "f(2)\nwhile True: pass", timeout=1).reason is FailureReason.NO_VERDICT


def test_no_function_of_the_tests_ends_them_for_the_candidate(local: ScriptedDriver) -> None:
    """A candidate that gets ``sys.exit`` as an argument cannot use it to make the tests pass."""
    result = judge(local, "def f(g): g(0)", "import sys\nf(sys.exit)")
    assert result.reason is FailureReason.TESTS_FAILED


@pytest.mark.parametrize(
    "tests",
    [
        None,
        "code",
        {},
        {"source": "command", "code": "x"},
        {"source": "inline"},
        {"source": "inline", "code": 1},
        {"source": "inline", "code": "x", "isolation": "none"},
    ],
    ids=repr,
)
def test_a_task_without_inline_tests_is_no_pass(local: ScriptedDriver, tests: Any) -> None:
    """A task without valid inline tests gives no verdict and uses no sandbox. Loading a pack refuses such a task."""
    result = CodeCompletionVerifier().verify(view_of(tests), artifact(RIGHT), context(local))
    assert result.reason is FailureReason.NO_VERDICT
    assert local.commands == []


@pytest.mark.parametrize(("language", "passes"), [("python", True), ("Python3", True), ("rust", False)])
def test_python_is_the_language(local: ScriptedDriver, language: str, passes: bool) -> None:
    """A task in another language does not pass, even if its tests would pass in Python."""
    view = view_of({"source": "inline", "code": TESTS}, language=language)
    assert CodeCompletionVerifier().verify(view, artifact(RIGHT), context(local)).passed is passes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, FailureReason.CANDIDATE_NOT_TEXT),
        ("", FailureReason.CANDIDATE_EMPTY),
        ("\ufeff \n\t", FailureReason.CANDIDATE_EMPTY),
        ("```python\n\n```\n", FailureReason.CANDIDATE_EMPTY),
        ("#" * (MAX_SOURCE_BYTES + 1), FailureReason.CANDIDATE_TOO_LARGE),
        ("\u00e9" * MAX_SOURCE_BYTES, FailureReason.CANDIDATE_TOO_LARGE),
    ],
    ids=["not text", "empty", "blank", "empty block", "long", "long in bytes"],
)
def test_what_is_no_program_is_refused_without_a_sandbox(
    local: ScriptedDriver, text: str | None, reason: FailureReason
) -> None:
    """B20: A candidate that is empty, too large or not text fails, and no sandbox is used."""
    result = judge(local, text, TESTS)
    assert (result.reason, result.metadata["phase"]) == (reason, "extraction")
    assert local.commands == []


@pytest.mark.parametrize("operation", ["open", "create", "wait", "resolve_image"])
def test_trouble_of_the_engine_is_raised(local: ScriptedDriver, operation: str) -> None:
    """L15: An engine error is raised and not scored, and no sandbox stays open."""
    local.fail_next(EngineError("gone"), on=operation)
    with pytest.raises(InfrastructureError):
        judge(local, "import os; os._exit(3)", TESTS)


def test_what_was_made_is_closed_when_the_other_cannot_be(
    local: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the second sandbox cannot be created, the first one is closed."""
    create = local.create
    made: list[Sandbox] = []

    def create_one(spec: SandboxSpec, *, persistent: bool = False) -> Sandbox:
        if made:
            raise EngineError("gone")
        made.append(create(spec, persistent=persistent))
        return made[0]

    monkeypatch.setattr(local, "create", create_one)
    with pytest.raises(EngineError):
        judge(local, RIGHT, TESTS)
    assert len(made) == 1  # the fixture checks that it is closed


def test_a_missing_image_is_raised(local: ScriptedDriver) -> None:
    """The image of the row is used. If it does not exist, an error is raised."""
    with pytest.raises(ImageError, match="no/such:image"):
        judge(local, RIGHT, TESTS, image="no/such:image")


def test_an_image_without_python_is_no_candidates_fault(local: ScriptedDriver) -> None:
    """L15: If ``python3`` cannot start, this is an error of the image and no failure of the candidate."""

    @local.program("python3")
    def missing(program: ProgramContext) -> int:
        return 127

    with pytest.raises(ImageError, match="exit code 127") as caught:
        judge(local, RIGHT, TESTS)
    assert caught.value.code == "image-without-python"


def test_a_sandbox_too_small_for_python_is_no_candidates_fault(local: ScriptedDriver) -> None:
    """L15: If memory does not suffice to start Python, this is an infrastructure error and no failure."""

    @local.program("python3")
    def starve(program: ProgramContext) -> int:
        program.run_out_of_memory()
        return 0

    with pytest.raises(InfrastructureError, match="ran out of memory"):
        judge(local, RIGHT, TESTS)


class TestSharedIsolation:
    """Candidate and tests in one process, with ``isolation: shared``."""

    def test_objects_with_operators_cross(self, local: ScriptedDriver) -> None:
        """Only with shared isolation do tests use a candidate's ``__eq__``. The metadata names the isolation."""
        code = "class V:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x"
        assert not judge(local, code, "assert V(1) == V(1) and V(1) != V(2)").passed
        result = judge(local, code, "assert V(1) == V(1) and V(1) != V(2)", isolation="shared")
        assert result.passed
        assert result.metadata["isolation"] == "shared"
        assert len(local.commands) == 3

    def test_printed_output_can_be_tested(self, local: ScriptedDriver) -> None:
        """Tests may capture what the candidate prints."""
        tests = """
        import contextlib, io
        with contextlib.redirect_stdout(io.StringIO()) as out:
            greet('you')
        assert out.getvalue() == 'hello you\\n'
        """
        assert judge(local, "def greet(x): print('hello', x)", tests, isolation="shared").passed

    def test_unittest_main_passes_and_fails(self, local: ScriptedDriver) -> None:
        """``unittest.main()`` always exits. The candidate passes only if the unit tests have passed."""
        tests = """
        import unittest
        class T(unittest.TestCase):
            def test(self): self.assertEqual(f(2), 4)
        unittest.main()
        """
        assert judge(local, RIGHT, tests, isolation="shared").passed
        assert not judge(local, "def f(x): return x", tests, isolation="shared").passed

    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            ("def f(x): raise SystemExit(0)", FailureReason.TESTS_FAILED),
            ("def f(x): exit(0)", FailureReason.TESTS_FAILED),
            ("import os\ndef f(x): os._exit(0)", FailureReason.CANDIDATE_CRASHED),
            ("import sys; sys.exit(0)", FailureReason.CANDIDATE_CRASHED),
            ("def f(x): return x", FailureReason.TESTS_FAILED),
            ("def g(x): return x", FailureReason.TESTS_FAILED),
            ("def f(x): return", FailureReason.TESTS_FAILED),
            ("def f(x)", FailureReason.SYNTAX_ERROR),
            (FORGE, FailureReason.PROTOCOL_VIOLATION),
            (FORGE_LATER, FailureReason.PROTOCOL_VIOLATION),
        ],
    )
    def test_what_it_still_stops(self, local: ScriptedDriver, code: str, reason: FailureReason) -> None:
        """B01, B02, B12: Exits, wrong code, and forged verdicts without the tests' random number fail."""
        assert judge(local, code, TESTS, isolation="shared").reason is reason

    def test_tests_that_use_nothing_are_no_pass(self, local: ScriptedDriver) -> None:
        """A17: Tests that do not use the candidate are no pass."""
        assert judge(local, RIGHT, "pass", isolation="shared").reason is FailureReason.NO_VERDICT


_GUESTS = [
    entry
    for entry in resources.files("securebench.verifiers.code_completion.guest").iterdir()
    if entry.name.endswith(".py")
]


@pytest.mark.parametrize("guest", _GUESTS, ids=lambda entry: entry.name)
def test_guests_run_on_old_pythons_with_the_standard_library(guest: Any) -> None:
    """The guests' modules parse as Python 3.8, and import only each other and the standard library."""
    tree = ast.parse(guest.read_text(encoding="utf-8"), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            known = node.module.startswith("securebench.verifiers.code_completion.guest.")
            assert known or node.module.split(".")[0] in sys.stdlib_module_names
        elif isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
