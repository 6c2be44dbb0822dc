"""Evidence is weighed: each way in which it can be short or say two things is no pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from patches.trees import MemoryTree
from securebench.errors import FailureReason
from securebench.patches.model import FileVersion
from securebench.patches.policy import PathPolicy
from securebench.sandboxes.base import CommandResult
from securebench.verifiers.faults import FaultError
from securebench.verifiers.repo_patch.canaries import Canaries, plant
from securebench.verifiers.repo_patch.inverted import inverted
from securebench.verifiers.repo_patch.pytest_evidence import Told, judge, read_channel
from securebench.verifiers.repo_patch.request import Request

MARK = "ab" * 16
CANARIES = Canaries(
    files={b"tests/test_edge_width.py": FileVersion(b""), b"tests/test_copy_line.py": FileVersion(b"")},
    must_fail={"test_edge_width.py::test_a", "test_edge_width.py::test_b"},
    may_vanish={"test_copy_line.py::TestX::test_c"},
)
HONEST = {
    "tests/test_x.py::test_1": "passed",
    "tests/test_x.py::test_2[a b]": "passed",
    "tests/test_x.py::test_3": "xfailed",
    "tests/test_edge_width.py::test_a": "failed",
    "tests/test_edge_width.py::test_b": "failed",
    "tests/test_copy_line.py::TestX::test_c[1]": "failed",
}


def _request(fail_to_pass: tuple[str, ...] = (), pass_to_pass: tuple[str, ...] = ()) -> Request:
    return Request(
        image="i",
        repository="/r",
        workdir="/r",
        base_commit="0",
        command="pytest",
        timeout_seconds=1,
        setup_patch=b"",
        test_patch=b"",
        policy=PathPolicy(),
        fail_to_pass=fail_to_pass,
        pass_to_pass=pass_to_pass,
    )


EXPECTED = _request(("tests/test_x.py::test_1", "tests/test_x.py::test_2[a"), ("tests/test_x.py::test_3",))


def _reason(
    outcomes: dict[str, str],
    *,
    said: int | None = 1,
    exit_code: int = 1,
    request: Request = EXPECTED,
    unloaded: list[str] | None = None,
) -> FailureReason | None:
    told = Told(outcomes=outcomes, exit=said, started=True, unloaded=unloaded or [])
    try:
        judge(told, CommandResult(exit_code=exit_code), CANARIES, request, {})
    except FaultError as fault:
        return fault.reason
    return None


def test_whole_evidence_is_a_pass() -> None:
    """Expected tests passed, one may stay expected to fail, an id cut at a space means all that begin so."""
    assert _reason(HONEST) is None
    assert _reason(HONEST, request=_request()) is None


SHORT: dict[str, tuple[dict[str, Any], FailureReason]] = {
    "expected test failed": ({"tests/test_x.py::test_1": "failed"}, FailureReason.TESTS_FAILED),
    "expected test was skipped": ({"tests/test_x.py::test_1": "skipped"}, FailureReason.TESTS_FAILED),
    "expected test is expected to fail": ({"tests/test_x.py::test_1": "xfailed"}, FailureReason.TESTS_FAILED),
    "expected test did not run": ({"tests/test_x.py::test_1": ""}, FailureReason.TESTS_FAILED),
    "one that passed before is skipped": ({"tests/test_x.py::test_3": "skipped"}, FailureReason.TESTS_FAILED),
    "raised and passed": ({"tests/test_x.py::test_1": "contradicted"}, FailureReason.TAMPERED),
    "canary passed": ({"tests/test_edge_width.py::test_a": "passed"}, FailureReason.TAMPERED),
    "canary was skipped": ({"tests/test_edge_width.py::test_a": "skipped"}, FailureReason.TAMPERED),
    "canary did not run": ({"tests/test_edge_width.py::test_a": ""}, FailureReason.TAMPERED),
    "copy passed": ({"tests/test_copy_line.py::TestX::test_c[1]": "passed"}, FailureReason.TAMPERED),
    "copy passed once": ({"tests/test_copy_line.py::TestX::test_c[2]": "xpassed"}, FailureReason.TAMPERED),
}


@pytest.mark.parametrize(("change", "reason"), SHORT.values(), ids=SHORT.keys())
def test_one_outcome_that_is_not_right_is_no_pass(change: dict[str, str], reason: FailureReason) -> None:
    """Of expected tests, and of those that must fail."""
    assert _reason({name: outcome for name, outcome in {**HONEST, **change}.items() if outcome}) is reason


def test_copies_that_could_not_be_loaded_are_no_evidence() -> None:
    """They are not held against anybody: not every module can be copied."""
    outcomes = {name: outcome for name, outcome in HONEST.items() if "copy_line" not in name}
    assert _reason(outcomes, unloaded=["tests/test_copy_line.py"]) is None


@pytest.mark.parametrize(
    ("said", "exit_code", "reason"),
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
def test_the_end_must_be_the_one_that_follows(said: int | None, exit_code: int, reason: FailureReason) -> None:
    """Tests that must fail make pytest end with 1, and nothing else is a pass."""
    assert _reason(HONEST, said=said, exit_code=exit_code) is reason


def test_without_expected_ids_all_must_pass() -> None:
    """One failure, one file that is not loaded, or no pass at all is no pass."""
    none = _request()
    assert _reason({**HONEST, "tests/test_y.py::test_9": "error"}, request=none) is FailureReason.TESTS_FAILED
    assert _reason(HONEST, request=none, unloaded=["tests/test_y.py"]) is FailureReason.TESTS_FAILED
    only = {name: outcome if "edge_width" in name else "skipped" for name, outcome in HONEST.items()}
    assert _reason(only, request=none) is FailureReason.NO_VERDICT


def _line(number: int, *words: Any, mark: str = MARK) -> bytes:
    return f"{mark} {number} {json.dumps(words)}\n".encode()


WHOLE = _line(0, "start", "9") + _line(1, "test", "a", "passed") + _line(2, "end", 1)


def test_the_channel_is_read() -> None:
    """What comes before the first line is passed by; of two outcomes of a test the worse one counts."""
    told = read_channel(b"hello\n" + WHOLE, MARK)
    assert (told.started, told.outcomes, told.exit) == (True, {"a": "passed"}, 1)
    twice = _line(0, "start", "9") + _line(1, "test", "a", "failed") + _line(2, "test", "a", "passed")
    assert read_channel(twice, MARK).outcomes == {"a": "failed"}
    assert not read_channel(b"PASSED\n", MARK).started


@pytest.mark.parametrize(
    "data",
    [
        WHOLE + b"x\n",
        WHOLE + _line(3, "test", "b", "passed"),
        _line(0, "start", "9") + b"noise\n" + _line(1, "end", 1),
        _line(0, "start", "9") + _line(2, "end", 1),
        _line(0, "start", "9") + _line(1, "test", "a", "passed", mark="cd" * 16),
        _line(0, "start", "9") + _line(1, "test", "a", "splendid"),
        _line(0, "start", "9") + _line(1, "start", "9"),
        _line(0, "start", "9") + _line(1, "end", "1"),
        _line(0, "start", "9") + MARK.encode() + b" 1 [" + b"[" * 100_000 + b"]\n",
        _line(0, "start", "9") + MARK.encode() + b" 1 [nonsense]\n",
    ],
)
def test_what_we_did_not_write_is_tampering(data: bytes) -> None:
    """Other marks, lines out of order, unknown words, noise between lines, anything after the end."""
    with pytest.raises(FaultError) as caught:
        read_channel(data, MARK)
    assert caught.value.reason is FailureReason.TAMPERED


TESTS = b"""
from __future__ import annotations
import pytest, unittest
from unittest.mock import ANY

def double(x): return DOUBLE(x)

@pytest.mark.parametrize("n", [1, 2])
def test_param(n):
    assert double(n) == n * 2

class TestIt:
    def test_in_class(self):
        value = double(2)
        assert value
        assert value != 5
        assert 4 == value

class Case(unittest.TestCase):
    def test_unit(self):
        self.assertEqual(double(3), 6)

def test_any():
    assert double(2) == ANY

def test_returns():
    if double(1) == 2:
        return
    assert double(2) == 4
    return

def test_nothing():
    assert True

def test_yields():
    assert double(1) == 2
    yield
"""


class _Anything:
    def __eq__(self, _other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class _AnyNumber(_Anything):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    def __hash__(self) -> int:
        return 0


def _passes(name: str, double: Any) -> bool:
    """Return whether the copy of the test ``name`` passes with this function."""
    copied = inverted(TESTS, frozenset({name}), iter(["w_one", "w_two", "w_three", "w_four", "w_five", "w_six"]))
    assert copied is not None
    scope: dict[str, Any] = {"DOUBLE": double, "__name__": "test_copy"}
    exec(compile(copied.source, "copy", "exec"), scope)
    return any(_runs(scope, test) for test in copied.tests)


def _runs(scope: dict[str, Any], test: str) -> bool:
    holder, _, name = test.rpartition("::")
    try:
        if not holder:
            function = scope[name]
            function(*([2] if "param" in str(getattr(function, "pytestmark", "")) else []))
        elif holder == "Case":
            getattr(scope[holder](name), name)()
        else:
            getattr(scope[holder](), name)()
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", ["test_param", "test_in_class", "test_unit", "test_any", "test_returns"])
def test_copies_fail_for_what_is_right_and_for_what_is_wrong(name: str) -> None:
    """Numbers equal no other number, whether they are the right ones or not, and however the test ends."""
    assert not _passes(name, lambda x: x * 2)
    assert not _passes(name, lambda x: x)


@pytest.mark.parametrize("kind", [_Anything, _AnyNumber])
def test_copies_pass_for_what_equals_everything(kind: type) -> None:
    """An object that is equal to any number, or to anything, gives itself away."""
    assert _passes("test_param", lambda _: kind())


def test_what_cannot_be_turned_round_is_not_copied() -> None:
    """Modules without comparisons, and what is no Python, give no copy."""
    names = iter(["a_b"] * 9)
    for source in (b"def test_a():\n    assert True\n", b"def (", b"\xff\xfe", b"(" * 5000, b"x = 1\n"):
        assert inverted(source, frozenset(), names) is None


def test_canaries_lie_beside_the_tests_and_are_new_each_time() -> None:
    """Their names are two words, none the same in two verifications, and their ids are known."""
    tree = MemoryTree({b"a/test_x.py": FileVersion(TESTS)})
    one, other = (plant([b"a/test_x.py"], [b"a", b""], tree, ["a/test_x.py::test_unit"]) for _ in range(2))
    assert {path.rpartition(b"/")[0] for path in one.files} == {b"a", b""}
    assert not one.files.keys() & other.files.keys()
    assert len(one.must_fail) == 8
    assert len(one.may_vanish) == 3
    assert all(name.split("::")[0] in one.names for name in one.must_fail | one.may_vanish)
    for path, version in one.files.items():
        compile(version.content, path, "exec")
        assert b"canary" not in version.content.lower() + path
        assert b"securebench" not in version.content.lower() + path
