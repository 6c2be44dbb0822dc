"""The verifier as a run uses it: what it asks of a driver, what it refuses, and what it says."""

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
    """Give a driver that runs the guests as local processes, and see that no sandbox stays open."""
    made = local_driver()
    yield made
    assert not made.open_sandboxes
    made.close()


def test_two_sandboxes_of_the_strictest_kind(local: ScriptedDriver) -> None:
    """B07, B22: no mount, no network, nobody, a read-only root; argv and environment are the same for every task."""
    assert judge(local, RIGHT, TESTS).passed
    assert len(local.commands) == 2
    for spec, command in local.commands:
        assert (spec.mounts, spec.network, spec.read_only, spec.user) == ((), "none", True, UNPRIVILEGED_USER)
        assert (spec.cap_add, spec.cap_drop, spec.image.reference) == ((), ("ALL",), DEFAULT_IMAGE)
        assert not spec.inherit_image_environment
        assert (command.argv, command.environment, spec.environment) == (ARGV, {}, BASE_ENVIRONMENT)
        assert command.stdin == b""


def test_a_pass_says_how_it_came_about(local: ScriptedDriver) -> None:
    """Metadata names the verifier, its version, the phase, the isolation and how much was answered."""
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
    """F13: neither the message of an assertion nor a value is in the result."""
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
    """A mistake of the pack or its image is no candidate's fault: an error, whatever the candidate is."""
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
    """Once the candidate has been asked for anything, or does not load, the outcome is a failure."""
    assert judge(local, candidate, tests).reason is not None


def test_in_one_process_broken_tests_are_a_failure(local: ScriptedDriver) -> None:
    """There the candidate may have broken them: it runs first, in the same process."""
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
    """A17: an answer of the candidate is needed; to name its function, or to ask what cannot be asked, is none."""
    result = judge(local, RIGHT, tests)
    assert result.reason is FailureReason.NO_VERDICT


@pytest.mark.parametrize("tests", ["f(2)\nraise SystemExit(1)", "f(2)\nimport sys; sys.exit('no')", "f(2); exit(True)"])
def test_tests_that_leave_with_a_failure_fail(local: ScriptedDriver, tests: str) -> None:
    """An exit of the tests is a pass only when it says so."""
    assert judge(local, RIGHT, tests).reason is FailureReason.TESTS_FAILED


def test_tests_that_kill_themselves_are_no_verdict(local: ScriptedDriver) -> None:
    """A15: whatever ends the tests' process, no verdict is no pass."""
    result = judge(local, RIGHT, "f(2)\nimport os; os._exit(0)")
    assert result.reason is FailureReason.NO_VERDICT


def test_tests_that_hang_are_no_verdict(local: ScriptedDriver) -> None:
    """The whole budget bounds the tests, too."""
    assert judge(local, RIGHT, "f(2)\nwhile True: pass", timeout=1).reason is FailureReason.NO_VERDICT


def test_no_function_of_the_tests_ends_them_for_the_candidate(local: ScriptedDriver) -> None:
    """A candidate that is handed ``sys.exit`` cannot end the tests with it."""
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
    """Loading refuses such a pack; should one come all the same, it fails, without a sandbox."""
    result = CodeCompletionVerifier().verify(view_of(tests), artifact(RIGHT), context(local))
    assert result.reason is FailureReason.NO_VERDICT
    assert local.commands == []


@pytest.mark.parametrize(("language", "passes"), [("python", True), ("Python3", True), ("rust", False)])
def test_python_is_the_language(local: ScriptedDriver, language: str, passes: bool) -> None:
    """Another language is no pass, even where the tests would."""
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
    """B20: such a candidate fails at once."""
    result = judge(local, text, TESTS)
    assert (result.reason, result.metadata["phase"]) == (reason, "extraction")
    assert local.commands == []


@pytest.mark.parametrize("operation", ["open", "create", "wait", "resolve_image"])
def test_trouble_of_the_engine_is_raised(local: ScriptedDriver, operation: str) -> None:
    """L15: no candidate is scored for it, and nothing is left open."""
    local.fail_next(EngineError("gone"), on=operation)
    with pytest.raises(InfrastructureError):
        judge(local, "import os; os._exit(3)", TESTS)


def test_what_was_made_is_closed_when_the_other_cannot_be(
    local: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first sandbox does not outlive the failure to make, or to open, a second one."""
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
    assert len(made) == 1  # and the fixture sees that it is closed


def test_a_missing_image_is_raised(local: ScriptedDriver) -> None:
    """A row's own image is the one that is used."""
    with pytest.raises(ImageError, match="no/such:image"):
        judge(local, RIGHT, TESTS, image="no/such:image")


def test_an_image_without_python_is_no_candidates_fault(local: ScriptedDriver) -> None:
    """L15: what ends before any of its code was given is trouble of the image."""

    @local.program("python3")
    def missing(program: ProgramContext) -> int:
        return 127

    with pytest.raises(ImageError, match="exit code 127") as caught:
        judge(local, RIGHT, TESTS)
    assert caught.value.code == "image-without-python"


def test_a_sandbox_too_small_for_python_is_no_candidates_fault(local: ScriptedDriver) -> None:
    """L15: nor is a memory limit in which not even the guest starts."""

    @local.program("python3")
    def starve(program: ProgramContext) -> int:
        program.run_out_of_memory()
        return 0

    with pytest.raises(InfrastructureError, match="ran out of memory"):
        judge(local, RIGHT, TESTS)


class TestSharedIsolation:
    """One process for packs that ask for it."""

    def test_objects_with_operators_cross(self, local: ScriptedDriver) -> None:
        """What only shared isolation can do, and the record says at what price."""
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
        """It always exits: with a pass only where its tests passed."""
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
        """B01, B02, B12: exits and verdicts without the number that came with the tests."""
        assert judge(local, code, TESTS, isolation="shared").reason is reason

    def test_tests_that_use_nothing_are_no_pass(self, local: ScriptedDriver) -> None:
        """A17."""
        assert judge(local, RIGHT, "pass", isolation="shared").reason is FailureReason.NO_VERDICT


_GUESTS = [
    entry
    for entry in resources.files("securebench.verifiers.code_completion.guest").iterdir()
    if entry.name.endswith(".py")
]


@pytest.mark.parametrize("guest", _GUESTS, ids=lambda entry: entry.name)
def test_guests_run_on_old_pythons_with_the_standard_library(guest: Any) -> None:
    """The programs parse as Python 3.8 and import each other and the standard library alone."""
    tree = ast.parse(guest.read_text(encoding="utf-8"), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            known = node.module.startswith("securebench.verifiers.code_completion.guest.")
            assert known or node.module.split(".")[0] in sys.stdlib_module_names
        elif isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
