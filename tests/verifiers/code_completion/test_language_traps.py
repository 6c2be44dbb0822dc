"""In plain Python, a wrong candidate would pass some tests. The tests' side detects this, and accepts honest code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from securebench.testing.judging.code import artifact, judge, view_of
from securebench.verifiers.code_completion import guest
from securebench.verifiers.code_completion.guest import hints, notes
from securebench.verifiers.code_completion.relay import NOTES, explain
from securebench.verifiers.code_completion.request import read_request

if TYPE_CHECKING:
    from securebench.testing.scripted_sandbox import ScriptedDriver


_CATCH = "try:\n    f()\n    assert False\nexcept {}:\n    pass\n"
_UNITTEST = """
import unittest
class T(unittest.TestCase):
    def test(self): self.assertEqual(f(2), 4)
"""
_TOLERANCE = "if abs(f(1) - 0.5) > 1e-6: raise ValueError\n"

TRAPS = {
    "exception alias": ("MyErr = Exception\ndef f(): pass", _CATCH.format("MyErr"), notes.BROAD_EXCEPTION),
    "assertion alias": ("MyErr = AssertionError\ndef f(): pass", _CATCH.format("MyErr"), notes.BROAD_EXCEPTION),
    "a tuple of them": ("MyErr = (ValueError, (Exception,))\ndef f(): pass", _CATCH.format("MyErr"), "broad_exception"),
    "in a tuple": ("MyErr = Exception\ndef f(): pass", _CATCH.format("(MyErr, OSError)"), notes.BROAD_EXCEPTION),
    "an exception of a call": ("def e(): return Exception\ndef f(): pass", _CATCH.format("e()"), "broad_exception"),
    "one of an object": ("class N: e = Exception\ndef f(): pass", _CATCH.format("N().e"), "broad_exception"),
    "one of a dict": ("D = {'e': AssertionError}\ndef f(): pass", _CATCH.format("D['e']"), "broad_exception"),
    "one in a named tuple": (
        "from collections import namedtuple\nn = namedtuple('N', 'e')(Exception)\ndef f(): pass",
        _CATCH.format("n.e"),
        notes.BROAD_EXCEPTION,
    ),
    "one by a variable": (
        "def e(): return Exception\ndef f(): pass",
        "E = e()\n" + _CATCH.format("E"),
        "broad_exception",
    ),
    "one in suppress": (
        "def e(): return Exception\ndef f(): pass",
        "import contextlib\nwith contextlib.suppress(OSError, e()):\n    assert f()",
        notes.BROAD_EXCEPTION,
    ),
    "one in assertRaises": (
        "def e(): return Exception\ndef f(): pass",
        "from unittest import TestCase\nwith TestCase().assertRaises(e()):\n    assert f()",
        notes.BROAD_EXCEPTION,
    ),
    "a changed argument under is": (
        "def f(d): d.clear(); return True",
        "d = [2]\nassert f(d) is (len(d) == 0)",
        notes.CHANGED_ARGUMENT,
    ),
    "NaN in math": (
        "def f(): return float('nan')",
        "import math\nif math.fabs(f() - 1) > 1e-6: raise ValueError",
        notes.NAN,
    ),
    "NaN in a complex number": ("def f(): return complex('nan')", "if abs(f() - 1) > 1e-6: raise ValueError", "nan"),
    "a complex NaN under not": (
        "def f(): return complex('nan')",
        "assert not abs(f() - 1) > 1e-6",
        notes.NAN,
    ),
    "NaN in an array": (
        "import array\ndef f(): return array.array('d', [float('nan')])",
        "assert not abs(f()[0] - 1) > 1e-6",
        notes.NAN,
    ),
    "NaN in a distance": (
        "def f(): return (float('nan'), 0.0)",
        "import math\nassert not math.dist(f(), (1, 0)) > 1e-6",
        notes.NAN,
    ),
    "NaN in a filter": (
        "def f(x): return float('nan')",
        "import math\nbad = [x for x in (1, 2) if math.fabs(f(x) - x) > 1e-6]\nassert not bad",
        notes.NAN,
    ),
    "NaN under any": (
        "def f(x): return float('nan')",
        "import math\nassert not any(math.fabs(f(x) - x) > 1e-6 for x in (1, 2))",
        notes.NAN,
    ),
    "NaN in a loop": (
        "def f(): return float('nan')",
        "import math\nwhile math.fabs(f() - 1) > 1e-6: raise ValueError",
        notes.NAN,
    ),
    "NaN under assertFalse": (
        "def f(): return float('nan')",
        "import math\nfrom unittest import TestCase\nTestCase().assertFalse(math.fabs(f() - 1) > 1e-6)",
        notes.NAN,
    ),
    "emptied list": ("def f(d): d.clear(); return []", "d = [2, 1]\nassert f(d) == sorted(d)", "changed_argument"),
    "emptied dict": (
        "def f(d): d.clear(); return 0",
        "def check(f):\n    d = {1: 2}\n    assert f(d) == sum(d.values())\ncheck(f)",
        notes.CHANGED_ARGUMENT,
    ),
    "an item changed": ("def f(p): p[1] = p[0] = 0; return 0", "c = [2, 1]\nassert f(c) == c[1]", "changed_argument"),
    "under a conversion": (
        "def f(d): d.clear(); return []",
        "d = [2, 1]\nassert tuple(f(d)) == tuple(sorted(x for x in d)), 'no'",
        notes.CHANGED_ARGUMENT,
    ),
    "assertEqual": (
        "def f(d): d.clear(); return []",
        "from unittest import TestCase\nd = [2, 1]\nTestCase().assertEqual(f(d), sorted(d))",
        notes.CHANGED_ARGUMENT,
    ),
    "NaN": ("def f(x): return float('nan')", _TOLERANCE, notes.NAN),
    "NaN in a list": (
        "def f(x): return [float('nan')]",
        "if max(abs(x - y) for x, y in zip(f(1), [1.0])) > 1e-6: raise ValueError",
        notes.NAN,
    ),
    "NaN summed up": ("def f(x): return float('nan')", "if sum([f(1), 2]) / 2 >= 1: raise ValueError", notes.NAN),
    "unittest without exit": ("def f(x): return x", _UNITTEST + "unittest.main(exit=False)", notes.UNITTEST),
    "a runner": (
        "def f(x): return x",
        _UNITTEST + "unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T))",
        notes.UNITTEST,
    ),
    "doctest": (
        "def f(x): return x",
        '"""\n>>> f(2)\n4\n"""\nimport doctest\ng = f\ndoctest.testmod()',
        notes.UNITTEST,
    ),
    "doctest of an error": (
        "def f(x): 1 / 0",
        '"""\n>>> f(2)\n4\n"""\nimport doctest\ng = f\ndoctest.testmod()',
        "unittest",
    ),
}


@pytest.mark.parametrize("trap", TRAPS, ids=str)
def test_a_trap_fails_and_says_why(local: ScriptedDriver, trap: str) -> None:
    """A wrong candidate that would pass in plain Python fails, and the result explains why.

    One trap fails in plain Python, too: ``except`` does not accept nested tuples.
    """
    candidate, tests, note = TRAPS[trap]
    result = judge(local, candidate, tests)
    assert (result.reason, result.metadata.get("note")) == (FailureReason.TESTS_FAILED, note), result.message
    assert explain(note) in result.message


HONEST = {
    "its own class": ("class MyErr(Exception): pass\ndef f(): raise MyErr", _CATCH.format("MyErr")),
    "a narrow alias": ("MyErr = ValueError\ndef f(): raise MyErr", _CATCH.format("MyErr")),
    "Exception raised, caught by a table": (
        "def f(x):\n    if x: raise Exception('no')\n    raise ValueError",
        "for x, e in [(1, Exception), (0, ValueError)]:\n    try: f(x)\n    except e as error: assert type(error) is e",
    ),
    "Exception as a value": (
        "def f(e): return type(e)",
        "assert f(Exception()) is Exception\ntry: f()\nexcept (TypeError, OSError): pass\nelse: raise AssertionError",
    ),
    "changed, then compared": ("def f(d): d.sort()", "d = [2, 1]\nf(d)\nassert d == [1, 2] and d == sorted(d)"),
    "sorted in place": ("def f(d): d.sort(); return d", "d = [2, 1]\nassert f(d) == sorted(d)"),
    "changed and given back": ("def f(d): d.append(1); return d", "d = [2]\nassert f(d) == d and f(d) is d"),
    "the whole list": ("def f(d): d.append(1); return [2, 1]", "d = [2]\nassert f(d) == d"),
    "another line": ("def f(d): d.pop(); return len(d)", "d = [2, 3]\nn = f(d)\nassert n == len(d)"),
    "a NaN that is asked for": (
        "def f(x): return float('nan')",
        "import math\nassert math.isnan(f(1)) and not f(1) > 1 and type(f(1)) is float",
    ),
    "a NaN beside asserted orders": (
        "def f(xs): return sum(xs) / len(xs) if xs else float('nan')",
        "none = f([])\nassert none != none\nassert f([1]) < 2 and all(f([x, x + 1]) > x for x in range(3))",
    ),
    "a NaN that is not ordered": ("def f(x): return [float('nan')]", "assert f(1)[0] != f(1)[0] and len(f(1)) == 1"),
    "unittest without exit": ("def f(x): return x * x", _UNITTEST + "unittest.main(exit=False)"),
    "doctest": ("def f(x): return x * x", '"""\n>>> f(2)\n4\n"""\nimport doctest\ng = f\ndoctest.testmod()'),
    "the name of a builtin": ("def sum(a, b): return a + b", "assert sum(10, 15) == 25\nassert sum(-1, 1) == 0"),
    "a class with the name of a builtin": (
        "class filter:\n    def __init__(self, n): self.n = n\n    def run(self, x): return [y for y in x if y > 3]",
        "assert filter(3).run([1, 5]) == [5]",
    ),
}


@pytest.mark.parametrize("case", HONEST, ids=str)
def test_honest_code_that_looks_like_a_trap_passes(local: ScriptedDriver, case: str) -> None:
    """Honest code that resembles a trap passes, as it does in plain Python.

    Examples are code that changes its arguments, raises its own errors, or returns NaN because the tests ask for it.
    """
    result = judge(local, *HONEST[case])
    assert result.passed, result.message


def test_a_wrong_function_with_the_name_of_a_builtin_fails(local: ScriptedDriver) -> None:
    """MBPP 126: If the tests use no name of the candidate except ``sum``, this is the candidate's function.

    A wrong function then fails.
    """
    assert judge(local, "def sum(a, b): return 1", "assert sum(10, 15) == 25").reason is FailureReason.TESTS_FAILED


@pytest.mark.parametrize(
    ("candidate", "tests"),
    [
        ("def f(x): return 1\ndef len(x): return 1", "assert f([1, 2]) == len([1, 2])"),
        ("def sum(a, b): return 1\ndef len(x): return 1", "assert sum(1, 1) == len([1, 2])"),
        ("def sorted(x): return 1\ndef f(x): return 1", "assert f([2, 1]) == sorted([2, 1])"),
        ("def f(): pass\nAssertionError = ValueError", "try:\n    f()\n    assert False\nexcept ValueError: pass"),
    ],
)
def test_a_candidate_cannot_take_over_the_builtins_that_judge_it(
    local: ScriptedDriver, candidate: str, tests: str
) -> None:
    """B09: If the tests use several names of the candidate, a builtin's name means the builtin.

    A note says so, but need not do so for ``AssertionError``.
    """
    result = judge(local, candidate, tests)
    assert result.reason is FailureReason.TESTS_FAILED
    if "AssertionError" not in candidate:
        assert result.metadata["note"] == notes.BUILTIN


def test_starter_code_says_whose_a_builtins_name_is() -> None:
    """``read_request`` returns the names of functions and classes in starter code, or none if it does not parse."""
    view = view_of({"source": "inline", "code": "pass"}, starter="import x\ndef hash(a): ...\nclass Map: ...\nn = 1\n")
    assert read_request(view, artifact("pass")).starter == ("Map", "hash")
    broken = view_of({"source": "inline", "code": "pass"}, starter="def f(:")
    assert read_request(broken, artifact("pass")).starter == ()


def test_the_name_of_a_builtin_beside_others(local: ScriptedDriver) -> None:
    """If the tests use ``add`` and ``hash``, ``hash`` is the candidate's function only if starter code defines it."""
    candidate, tests = "def hash(x): return x % 7\ndef add(x): return x + 1", "assert add(1) == 2 and hash(8) == 1"
    assert judge(local, candidate, tests, starter="def hash(x):\n    ...\n").passed
    assert judge(local, candidate, tests).metadata["note"] == notes.BUILTIN


def test_every_note_has_its_sentence() -> None:
    """The host has an explanation for each note that the guests' modules send, and none for an unknown note."""
    named = {value for name, value in vars(notes).items() if name.isupper() and isinstance(value, str)}
    modules = "".join(path.read_text(encoding="utf-8") for path in Path(guest.__path__[0]).glob("*.py"))
    literal = set(re.findall(r"unsupported\(\"(\w+)\"\)", modules))
    assert {"operator", "constructor"} <= literal
    assert named | literal | set(hints.BY_NAME.values()) <= NOTES
    assert all(explain(note) for note in NOTES)
    assert explain("canary") == ""
