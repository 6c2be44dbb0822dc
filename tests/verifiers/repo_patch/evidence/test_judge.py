"""The judge rejects each run whose evidence is incomplete or contradictory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import FailureReason
from securebench.sandboxes.base import CommandResult
from securebench.verifiers.base import CandidateFailedError
from securebench.verifiers.repo_patch.evidence.adapter import CasePlace
from securebench.verifiers.repo_patch.evidence.channel import ReportedRun, ReportedTests
from securebench.verifiers.repo_patch.evidence.controls import Controls
from securebench.verifiers.repo_patch.evidence.edited_file import ControlGroup
from securebench.verifiers.repo_patch.evidence.judge import Judge, signed
from verifiers.repo_patch.evidence.in_process import adapter_of, judged, request_of

if TYPE_CHECKING:
    from securebench.verifiers.repo_patch.request import RepoPatchRequest

MODULE = CasePlace("test_x", (), "")
CONTROLS = Controls(
    groups=[
        ControlGroup(
            MODULE._replace(function="test_2"), "test_2", {"test_edge_width": "assert =="}, frozenset({MODULE}), 1.0
        ),
        ControlGroup(
            CasePlace("test_x", ("TestX",), "test_4"),
            "test_4",
            {"test_copy_line": "assert =="},
            frozenset({CasePlace("test_x", ("TestX",), "")}),
        ),
        ControlGroup(MODULE, "", {"test_slow_table": "plain"}, frozenset({MODULE})),
    ]
)
HONEST = {
    "tests/test_x.py::test_1": "passed",
    "tests/test_x.py::test_2[a b]": "passed",
    "tests/test_x.py::test_2[c]": "skipped",
    "tests/test_x.py::test_3": "xfailed",
    "tests/test_x.py::TestX::test_4": "passed",
    "tests/test_x.py::TestY::test_4": "passed",
    "tests/test_x.py::test_edge_width[a b]": "failed",
    "tests/test_x.py::test_edge_width[c]": "skipped",
    "tests/test_x.py::TestX::test_copy_line": "failed",
    "tests/test_x.py::TestY::test_copy_line": "passed",
    "tests/test_x.py::test_slow_table": "failed",
}
"""What an honest run reports.

``TestY`` inherits from ``TestX`` but overrides ``test_4``. In ``TestY``, the control of ``test_4`` does not count.
"""


EXPECTED = request_of(("tests/test_x.py::test_1", "tests/test_x.py::test_2[a"), ("tests/test_x.py::test_3",))


BEFORE = {"unittest.case:TestCase": "aa", "builtins": "bb"}


def _reason(
    outcomes: dict[str, str],
    *,
    reported_exit: int | None = 1,
    exit_code: int = 1,
    request: RepoPatchRequest = EXPECTED,
    unloaded: list[str] | None = None,
    changed: dict[str, str] | None = None,
    details: dict[str, Any] | None = None,
    unchanged: dict[str, str] | None = None,
) -> FailureReason | None:
    talk = ReportedRun()
    after = {name: signed(digest, talk.nonce) for name, digest in {**BEFORE, **(changed or {})}.items() if digest}
    reported = ReportedTests(outcomes, unloaded or [], before=BEFORE, after=after, exit=reported_exit, started=True)
    try:
        before = {"tests/test_x.py::test_3": "xfailed"} if unchanged is None else unchanged
        judge = Judge(adapter_of(), CONTROLS, request, {} if details is None else details, None, lambda: before)
        judge.judge(reported, CommandResult(exit_code=exit_code), talk)
    except CandidateFailedError as fault:
        return fault.reason
    return None


def test_whole_evidence_is_a_pass() -> None:
    """A run passes if each expected test passed, or is xfailed both with and without the change.

    An expected id that was cut at a space still matches its test.
    """
    assert _reason(HONEST) is None
    assert _reason(HONEST, request=request_of()) is None


@pytest.mark.parametrize("before", ["passed", "failed", "skipped", ""])
def test_a_failure_that_was_not_expected_without_the_change_is_no_pass(before: str) -> None:
    """A run does not pass if a test is xfailed only with the change: code under test can mark tests."""
    unchanged = {"tests/test_x.py::test_3": before} if before else {}
    assert _reason(HONEST, unchanged=unchanged) is FailureReason.TESTS_FAILED


SHORT: dict[str, tuple[dict[str, Any], FailureReason]] = {
    "expected test failed": ({"tests/test_x.py::test_1": "failed"}, FailureReason.TESTS_FAILED),
    "expected test was skipped": ({"tests/test_x.py::test_1": "skipped"}, FailureReason.TESTS_FAILED),
    "expected test is expected to fail": ({"tests/test_x.py::test_1": "xfailed"}, FailureReason.TESTS_FAILED),
    "expected test did not run": ({"tests/test_x.py::test_1": ""}, FailureReason.TESTS_FAILED),
    "one that passed before is skipped": ({"tests/test_x.py::test_3": "skipped"}, FailureReason.TESTS_FAILED),
    "raised and passed": ({"tests/test_x.py::test_1": "contradicted"}, FailureReason.TAMPERED),
    "plain control passed": ({"tests/test_x.py::test_slow_table": "passed"}, FailureReason.TAMPERED),
    "plain control was skipped": ({"tests/test_x.py::test_slow_table": "skipped"}, FailureReason.TAMPERED),
    "plain control did not run": ({"tests/test_x.py::test_slow_table": ""}, FailureReason.TAMPERED),
    "copy passed": ({"tests/test_x.py::TestX::test_copy_line": "passed"}, FailureReason.TAMPERED),
    "copy passed unexpectedly": ({"tests/test_x.py::TestX::test_copy_line": "xpassed"}, FailureReason.TAMPERED),
    "copy did not run": ({"tests/test_x.py::TestX::test_copy_line": ""}, FailureReason.TAMPERED),
    "one of its cases passed": ({"tests/test_x.py::test_edge_width[a b]": "passed"}, FailureReason.TAMPERED),
    "one of its cases was skipped": ({"tests/test_x.py::test_edge_width[a b]": "skipped"}, FailureReason.TAMPERED),
}


@pytest.mark.parametrize(("change", "reason"), SHORT.values(), ids=SHORT.keys())
def test_one_outcome_that_is_not_right_is_no_pass(change: dict[str, str], reason: FailureReason) -> None:
    """A run does not pass if one expected test or one control has a wrong outcome."""
    assert _reason({name: outcome for name, outcome in {**HONEST, **change}.items() if outcome}) is reason


def test_copies_of_tests_that_did_not_pass_say_nothing() -> None:
    """The copy of a test that did not pass does not count, whether the copy passed or did not run."""
    change = {"tests/test_x.py::TestX::test_4": "skipped", "tests/test_x.py::TestX::test_copy_line": "passed"}
    details: dict[str, Any] = {}
    assert _reason({**HONEST, **change}, details=details) is None
    assert details["evidence"]["controls"] == 3
    assert details["evidence"]["controls_failed"] == 2
    change["tests/test_x.py::TestX::test_copy_line"] = ""
    assert _reason({name: outcome for name, outcome in {**HONEST, **change}.items() if outcome}) is None


def test_where_no_control_could_speak_the_record_says_so() -> None:
    """Tests in files without controls may pass with exit code 0, but the evidence then has the kind ``exit_code``."""
    details: dict[str, Any] = {}
    outcomes = {"tests/test_y.py::test_9": "passed"}
    assert _reason(outcomes, request=request_of(), reported_exit=0, exit_code=0, details=details) is None
    assert details["evidence"]["kind"] == "exit_code"
    details = {}
    assert _reason(HONEST, details=details) is None
    assert details["evidence"]["kind"] == "test_by_test"


@pytest.mark.parametrize(
    ("reported_exit", "exit_code", "reason"),
    [
        (None, 0, FailureReason.TAMPERED),
        (None, 1, FailureReason.NO_VERDICT),
        (None, 134, FailureReason.NO_VERDICT),
        (1, 0, FailureReason.TAMPERED),
        (0, 0, FailureReason.TAMPERED),
        (2, 2, FailureReason.NO_VERDICT),
        (3, 3, FailureReason.NO_VERDICT),
        (5, 5, FailureReason.NO_VERDICT),
    ],
)
def test_the_end_must_be_the_one_that_follows(reported_exit: int | None, exit_code: int, reason: FailureReason) -> None:
    """Controls make an honest pytest run exit with code 1. A run with any other end does not pass."""
    assert _reason(HONEST, reported_exit=reported_exit, exit_code=exit_code) is reason


def test_without_expected_ids_all_must_pass() -> None:
    """A run without expected ids does not pass if a test failed, a file was not loaded or no test passed."""
    none = request_of()
    assert _reason({**HONEST, "tests/test_y.py::test_9": "error"}, request=none) is FailureReason.TESTS_FAILED
    assert _reason(HONEST, request=none, unloaded=["tests/test_y.py"]) is FailureReason.TESTS_FAILED
    controls = ("edge_width", "copy_line", "slow_table")
    only = {test: outcome if test.endswith(controls) else "skipped" for test, outcome in HONEST.items()}
    assert (
        _reason({**only, "tests/test_x.py::TestY::test_copy_line": "failed"}, request=none) is FailureReason.NO_VERDICT
    )


@pytest.mark.parametrize(
    "changed", [{"builtins": "cc"}, {"builtins": ""}, {"unittest.case:TestCase": "x", "builtins": ""}]
)
def test_a_fingerprint_that_changed_is_tampering_and_says_what_changed(changed: dict[str, str]) -> None:
    """A changed or missing entry of the fingerprint is tampering, and the evidence lists its name.

    A new entry is accepted.
    """
    details: dict[str, Any] = {}
    assert _reason(HONEST, changed=changed, details=details) is FailureReason.TAMPERED
    assert details["evidence"]["changed"] == sorted(changed)
    assert _reason(HONEST, changed={"numpy.testing": "new"}) is None


MOVED = Controls(
    groups=[
        ControlGroup(
            CasePlace("test_x", ("Base",), "test_1"),
            "test_moved",
            {"test_1": "assert ==", "test_other": "assert =="},
            frozenset({CasePlace("test_x", ("Base",), ""), CasePlace("test_x", ("TestX",), "")}),
            1.5,
        )
    ]
)
HEIR = "tests/test_x.py::TestX::"
RUN = {f"{HEIR}test_moved": "passed", f"{HEIR}test_1": "failed", f"{HEIR}test_other": "failed"}


@pytest.mark.parametrize(
    ("change", "reason", "bits"),
    [
        ({}, None, 1.5),
        ({"test_1": "passed"}, FailureReason.TAMPERED, 0),
        ({"test_other": "passed"}, FailureReason.TAMPERED, 0),
        ({"test_other": ""}, FailureReason.TAMPERED, 0),
        ({"test_other": "", "test_moved": "", "test_1": "passed"}, FailureReason.TAMPERED, 0),  # no new name ran
        ({"test_moved": "failed"}, FailureReason.TESTS_FAILED, 0),
        ({"test_moved": "failed", "test_1": "passed"}, FailureReason.TESTS_FAILED, 0),  # control does not count
        ({"test_1": "skipped"}, FailureReason.TESTS_FAILED, 0),  # skipped because of its name
        ({"test_1": ""}, FailureReason.TESTS_FAILED, 0),  # deselected because of its name
        ({"test_moved": ""}, FailureReason.TESTS_FAILED, 0),
    ],
)
def test_a_test_with_another_name_is_judged_by_its_own(
    change: dict[str, str], reason: FailureReason | None, bits: float
) -> None:
    """The outcome of a renamed test is the outcome under its new name, although a control now has its old name.

    Its controls must fail, here in a subclass. If the run does not pass, the record has no bits.
    """
    found = {test: outcome for test, outcome in {**RUN, **{HEIR + k: v for k, v in change.items()}}.items() if outcome}
    verdict, evidence = judged({**found, "tests/test_x.py::test_9": "passed"}, MOVED, [f"{HEIR}test_1"])
    assert verdict is reason
    assert evidence["control_bits"] == bits


def test_controls_in_a_class_that_nobody_knew_are_nobodys() -> None:
    """If a class in another file is not known to inherit a test, the test counts there, but its controls do not."""
    heir = "tests/test_y.py::TestY::"
    found = {f"{heir}test_moved": "passed", f"{heir}test_1": "passed", f"{heir}test_other": "passed"}
    assert judged({**RUN, **found}, MOVED, [f"{HEIR}test_1", f"{heir}test_1"])[0] is None
