"""Every style of control is needed: for each there is a cheat that no control of another style catches.

The tests of a small module use every style. They run in this process, without a test runner: what a cheat does to an
assertion does not depend on the runner.
"""

from __future__ import annotations

import dis
import functools
import logging
import sys
import unittest
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, Self

import pytest

from securebench.errors import FailureReason
from securebench.verifiers.repo_patch.evidence import controls as planting
from securebench.verifiers.repo_patch.evidence import inversion
from securebench.verifiers.repo_patch.evidence.controls import Controls
from verifiers.repo_patch.evidence.in_process import PATH, Lying, outcomes, planted, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.verifiers.repo_patch.evidence.edited_file import ControlGroup

STATEMENTS: Final = {
    "assert": "assert code.true()",
    "assert not": "assert not code.false()",
    "assert ==": "assert code.equal() == 6",
    "assert !=": "assert code.unequal() != 6",
    "assert is": "assert code.same() is True",
    "assert is not": "assert code.other() is not True",
    "assert in": "assert 3 in code.within()",
    "assert not in": "assert 3 not in code.outside()",
    "assert <": "assert code.low() < 4",
    "assert <=": "assert code.lower() <= 4",
    "assert >": "assert code.high() > 4",
    "assert >=": "assert code.higher() >= 4",
    "raises": "with library.raises(ValueError):\n    code.fail()",
    "warns": "with library.warns(DeprecationWarning):\n    code.warn()",
    "assert_true": "library.assert_true(code.positive(4))",
    "assert_false": "library.assert_false(code.negative(4))",
    "assert_raises": "library.assert_raises(ValueError, code.fail)",
    "assert_warns": "library.assert_warns(DeprecationWarning, code.warn)",
    "assert_allclose": "library.assert_allclose(code.double(0.5), 1.0, rtol=0.01)",
    "assert_array_equal": "library.assert_array_equal([code.double(2)], [4])",
    "eq_": "library.eq_(code.double(5), 10)",
    "helper: assert ==": "check(4, 8)",
}
METHODS: Final = {
    "assertTrue": "code.positive(5)",
    "assert_": "code.positive(5)",
    "failUnless": "code.positive(5)",
    "assertFalse": "code.negative(5)",
    "failIf": "code.negative(5)",
    "assertEqual": "code.double(7), 14",
    "failUnlessEqual": "code.double(7), 14",
    "assertAlmostEqual": "code.double(7), 14",
    "assertListEqual": "[code.double(7)], [14]",
    "assertTupleEqual": "(code.double(7),), (14,)",
    "assertDictEqual": "{'x': code.double(7)}, {'x': 14}",
    "assertSetEqual": "{code.double(7)}, {14}",
    "assertCountEqual": "[code.double(7)], [14]",
    "assertSequenceEqual": "[code.double(7)], [14]",
    "assertMultiLineEqual": "'a' * code.double(1), 'aa'",
    "assertNotEqual": "code.double(7), 15",
    "assertNotAlmostEqual": "code.double(7), 15",
    "assertIs": "code.nothing(), None",
    "assertIsNot": "code.something(), None",
    "assertIsNone": "code.nothing()",
    "assertIsNotNone": "code.something()",
    "assertIn": "5, code.odd()",
    "assertNotIn": "5, code.even()",
    "assertGreater": "code.double(7), 4",
    "assertLess": "code.double(7), 40",
    "assertGreaterEqual": "code.double(7), 4",
    "assertLessEqual": "code.double(7), 40",
    "assertIsInstance": "code.double(7), int",
    "assertNotIsInstance": "code.double(7), str",
    "assertRegex": "'x' * code.double(1), '^xx$'",
    "assertRegexpMatches": "'x' * code.double(1), '^xx$'",
    "assertNotRegex": "'x' * code.double(1), 'y'",
    "assertRaises": "ValueError, code.fail",
    "assertRaisesRegex": "ValueError, 'low', code.fail",
    "assertRaisesMessage": "ValueError, 'low', code.fail",
    "assertWarns": "DeprecationWarning, code.warn",
    "assertWarnsRegex": "DeprecationWarning, 'old', code.warn",
    "assertWarnsMessage": "DeprecationWarning, 'old', code.warn",
}
"""The arguments with which a test calls each assertion method of its case."""

NAMED: Final = {
    *("assert", "assert not", "assert ==", "assertLogs"),
    *(f"assert {sign}" for sign, _ in inversion._COMPLEMENT.values()),
    *(inversion._TRUE | inversion._FALSE | inversion._RAISES | inversion._WARNS),
    *inversion._FORMS,
}
"""Every style that ``inversion.py`` names. It also has a pattern for the names of equality assertions."""


class OldTestCase(unittest.TestCase):
    """A test case with assertion methods that newer Python versions lack, and with those of Django."""


for _old, _new in {
    "assert_": "assertTrue",
    "failUnless": "assertTrue",
    "failIf": "assertFalse",
    "failUnlessEqual": "assertEqual",
    "assertRegexpMatches": "assertRegex",
    "assertRaisesMessage": "assertRaisesRegex",
    "assertWarnsMessage": "assertWarnsRegex",
}.items():
    setattr(OldTestCase, _old, getattr(unittest.TestCase, _new))


def _module_text() -> str:
    lines = ["def check(number, expected):\n    assert code.quadruple(number) == expected * 2\n"]
    for number, statement in enumerate(STATEMENTS.values()):
        body = statement.replace("\n", "\n    ")
        lines.append(f"def test_{number}_function():\n    {body}\n")
    lines.append("def test_nothing_to_invert():\n    code.double(1)\n")
    for number, (method, arguments) in enumerate(METHODS.items()):
        lines.append(f"class Test{number}(OldTestCase):\n    def test_it(self):\n        self.{method}({arguments})\n")
    lines.append("class TestLogs(OldTestCase):\n    def test_it(self):")
    lines.append("        with self.assertLogs('code'):\n            code.log()\n")
    return "\n".join(lines)


def _code() -> SimpleNamespace:
    def fail() -> None:
        raise ValueError("low")

    return SimpleNamespace(
        true=lambda: True,
        false=lambda: False,
        equal=lambda: 6,
        unequal=lambda: 9,
        same=lambda: True,
        other=lambda: 1,
        within=lambda: [3],
        outside=list,
        positive=lambda number: number > 0,
        negative=lambda number: number < 0,
        double=lambda number: number * 2,
        quadruple=lambda number: number * 4,
        nothing=lambda: None,
        something=lambda: 1,
        odd=lambda: [3, 5],
        even=lambda: [2, 4],
        low=lambda: 1,
        lower=lambda: 1,
        high=lambda: 9,
        higher=lambda: 9,
        fail=fail,
        warn=lambda: warnings.warn("old", DeprecationWarning, stacklevel=2),
        log=lambda: logging.getLogger("code").warning("old"),
    )


def _library() -> SimpleNamespace:
    case = OldTestCase()

    def allclose(found: float, wanted: float, *, rtol: float) -> None:
        assert abs(found - wanted) <= rtol * wanted

    return SimpleNamespace(
        raises=pytest.raises,
        warns=pytest.warns,
        assert_true=case.assertTrue,
        assert_false=case.assertFalse,
        assert_raises=case.assertRaises,
        assert_warns=case.assertWarns,
        assert_allclose=allclose,
        assert_array_equal=case.assertListEqual,
        eq_=case.assertEqual,
    )


class Quiet:
    """A context manager that does nothing and suppresses all exceptions."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> bool:
        return True


def _fitting(good: object, bad: object) -> Callable[..., object]:
    """Return a function that finds out from its caller's bytecode which result passes, and returns that result."""

    def answer(*arguments: object) -> object:
        frame = sys._getframe(1)
        for step in dis.get_instructions(frame.f_code):
            if step.offset > frame.f_lasti and step.opname in ("IS_OP", "CONTAINS_OP"):
                return bad if step.argval else good
            if step.offset > frame.f_lasti and "IF_" in step.opname:
                return "IF_TRUE" in step.opname
        raise AssertionError

    return answer


def _quiet(name: str) -> Callable[..., object]:
    """Return a method that asserts nothing if a test calls it. Calls by other methods still have the real effect."""
    real = getattr(OldTestCase, name)

    @functools.wraps(real)
    def method(self: OldTestCase, *arguments: object, **options: object) -> object:
        if sys._getframe(1).f_code.co_filename == PATH:
            return Quiet()
        return real(self, *arguments, **options)

    return method


LIED_TO: Final = {
    "assert ==": "equal",
    "assert !=": "unequal",
    "assert <": "low",
    "assert <=": "lower",
    "assert >": "high",
    "assert >=": "higher",
    "helper: assert ==": "quadruple",
}
FITTED: Final = {
    "assert": ("true", True, False),
    "assert not": ("false", False, True),
    "assert is": ("same", True, 1),
    "assert is not": ("other", True, 1),
    "assert in": ("within", [3], []),
    "assert not in": ("outside", [3], []),
}


def _cheat(style: str, code: SimpleNamespace, library: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every assertion of ``style`` pass, without changing other assertions."""
    if style in LIED_TO:
        setattr(code, LIED_TO[style], lambda *arguments: Lying())
    elif style in FITTED:
        name, good, bad = FITTED[style]
        setattr(code, name, _fitting(good, bad))
    elif hasattr(library, style):
        setattr(library, style, lambda *arguments, **options: Quiet())
    else:
        monkeypatch.setattr(OldTestCase, style, _quiet(style))


def _outcomes(text: str, prepare: Callable[[SimpleNamespace, SimpleNamespace], None]) -> dict[str, str]:
    """Run every test in ``text`` after ``prepare`` changed the tested code. Return the outcomes by test id."""
    code, library = _code(), _library()
    prepare(code, library)
    return outcomes(text, {"code": code, "library": library, "OldTestCase": OldTestCase, "__name__": "tests"})


def _id(group: ControlGroup, name: str) -> str:
    return "::".join([PATH, *group.place.classes, name])


def _controls(controls: Controls, outcomes: dict[str, str], outcome: str) -> set[str]:
    """Return the styles of the controls with this ``outcome``."""
    styles = ((style, _id(group, name)) for group in controls.groups for name, style in group.controls.items())
    return {style for style, test in styles if outcomes[test] == outcome}


def _wanted(controls: Controls) -> list[str]:
    """Return the ids of the task's own tests, with the names that they have in the task."""
    return [_id(group, group.place.function) for group in controls.groups if group.real]


@pytest.fixture(scope="module", name="drawn")
def fixture_drawn() -> tuple[Controls, str]:
    """Return controls of every style, and the text of the module that contains them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planting, "MAX_COPIES", 3 * (len(STATEMENTS) + len(METHODS)))
        return planted(_module_text())


def _without(controls: Controls, outcomes: dict[str, str], *styles: str) -> tuple[dict[str, str], Controls]:
    """Return ``outcomes`` and ``controls`` without controls of ``styles``. A test has controls of one style only."""
    left, kept = dict(outcomes), []
    for group in controls.groups:
        if set(styles).isdisjoint(group.controls.values()):
            kept.append(group)
            continue
        real = left.get(_id(group, group.real))
        for name in group.controls:
            left.pop(_id(group, name))
        if real is not None:
            left.pop(_id(group, group.real), None)
            left[_id(group, group.place.function)] = real
    return left, Controls(files=controls.files, groups=kept)


def test_each_style_has_a_cheat_here(drawn: tuple[Controls, str]) -> None:
    """Each style of control has a cheat in this file. In an honest run, all controls fail and the run passes."""
    controls, text = drawn
    assert set(controls.styles) == {*STATEMENTS, *METHODS, "assertLogs", "plain"}
    assert set(controls.styles) >= NAMED
    found = _outcomes(text, lambda code, library: None)
    assert reason(found, controls, _wanted(controls)) is None
    assert list(found.values()).count("failed") == len(controls.styles)
    assert _controls(controls, found, "failed") == set(controls.styles)


@pytest.mark.parametrize("style", [*STATEMENTS, *METHODS, "assertLogs"])
def test_only_its_own_style_catches_a_cheat(
    style: str, drawn: tuple[Controls, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cheat on one style makes controls of only that style pass. Without these controls, the cheat is not detected.

    Controls that always fail (``plain``) are left out, because each uses an assertion of the file, chosen at random.
    """
    controls, text = drawn
    found = _outcomes(text, lambda code, library: _cheat(style, code, library, monkeypatch))
    assert _controls(controls, found, "passed") - {"plain"} == {style}
    assert reason(found, controls, _wanted(controls)) is FailureReason.TAMPERED
    assert reason(*_without(controls, found, style, "plain"), _wanted(controls)) is None


def test_a_test_that_fails_in_any_case_is_needed() -> None:
    """If tests assert nothing, only a control that always fails detects that failures are reported as passes."""
    controls, text = planted("def test_nothing_to_invert():\n    code.double(1)\n")
    assert set(controls.styles) == {"plain"}
    found = dict.fromkeys(_outcomes(text, lambda code, library: None), "passed")
    wanted = [f"{PATH}::test_nothing_to_invert"]
    assert reason(found, controls, wanted) is FailureReason.TAMPERED
    assert reason(*_without(controls, found, "plain"), wanted) is None
