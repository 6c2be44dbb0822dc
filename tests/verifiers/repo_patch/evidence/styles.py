"""Tests of a small module, written in many styles, and the styles of controls that they must get."""

from __future__ import annotations

CORE = """\
import logging
import warnings


class Odd(ValueError):
    pass


def add(a, b):
    return a + b


def mean(values):
    if not values:
        raise Odd("no values in sight")
    return sum(values) / len(values)


def words(text):
    return text.split()


def old(x):
    warnings.warn("old is old", DeprecationWarning)
    logging.getLogger("calc").warning("old")
    return x
"""
BROKEN = """\
def add(a, b):
    return a - b


def mean(values):
    return 0


def words(text):
    return [text]


def old(x):
    return x + 1


class Odd(ValueError):
    pass
"""
_IMPORT = "from calc.core import Odd, add, mean, old, words\n\n\n"
_CASE = "import unittest\n\n" + _IMPORT + "class CoreTests(unittest.TestCase):\n"


def _case(*bodies: str) -> str:
    methods = []
    for number, body in enumerate(bodies):
        lines = "".join(f"        {line}\n" for line in body.splitlines())
        methods.append(f"    def test_{number}{'abcdefghij'[number]}(self):\n{lines}")
    return _CASE + "\n".join(methods)


def _functions(*bodies: str) -> str:
    functions = []
    for number, body in enumerate(bodies):
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        functions.append(f"def test_{number}{'abcdefghij'[number]}():\n{lines}")
    return "import pytest\n" + _IMPORT + "\n\n".join(functions)


STYLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "assert": (
        _functions(
            "assert add(1, 2) == 3",
            "assert add(1, 2) != 4\nassert 2 < add(1, 2) < 9, 'text'",
            "value = words('a b')\nassert 'a' in value\nassert 'c' not in value\nassert value is not None",
            "assert len(words('a b')) >= 2\nassert not words('')\nassert add(2, 2) == 4 and words('x') == ['x']",
            "assert mean([1, 2]) is not None\nassert add(-1, -2) == -3, (\n    'two lines'\n)",
        ),
        ("assert ==", "assert !=", "assert in", "assert not in", "assert >=", "assert not"),
    ),
    "values": (
        _functions(
            "assert words('ab cd') == ['ab', 'cd']",
            "assert {'a': add(1, 2), 'b': words('')} == {'a': 3, 'b': []}",
            "assert (add(1, 2), 'x') == (3, 'x')",
            "assert [1] + [add(1, 1)] == sorted([2, 1])",
            "for a, b in [(1, 2), (3, 4)]:\n    assert add(a, b) == a + b",
        ),
        ("assert ==",),
    ),
    "parameters": (
        "import pytest\n"
        + _IMPORT
        + "@pytest.mark.parametrize('a, b, expected', [(1, 2, 3), (5, 6, 11)])\n"
        + "def test_add(a, b, expected):\n    assert add(a, b) == expected\n\n\n"
        + "@pytest.mark.parametrize('number', [2, 3])\n@pytest.mark.parametrize('other', [4, 5])\n"
        + "def test_sum(number, other):\n    assert add(number, other) == number + other\n\n\n"
        + "@pytest.fixture(params=[1, 2])\ndef value(request):\n    return request.param\n\n\n"
        + "def test_fixture(value, tmp_path, capsys):\n    assert add(value, 1) == value + 1\n",
        ("assert ==",),
    ),
    "class": (
        "import pytest\n"
        + _IMPORT
        + "class TestCore:\n    limit = 3\n\n    def setup_method(self):\n        self.values = [1, 2]\n\n"
        + "    def test_mean(self):\n        assert mean(self.values) == 1.5\n\n"
        + "    @pytest.mark.parametrize('n', [1, 2])\n    def test_add(self, n):\n        assert add(n, 1) == n + 1\n\n"
        + "    def test_words(self):\n        assert words('a b') == ['a', 'b']\n\n\n"
        + "class TestMore(TestCore):\n    def test_mean(self):\n        assert True\n\n\n"
        + "class TestOuter:\n    class TestInner:\n        def test_add(self):\n            assert add(1, 1) == 2\n",
        ("assert ==",),
    ),
    "raises": (
        _functions(
            "with pytest.raises(ValueError):\n    mean([])",
            "with pytest.raises(Odd, match='sight') as caught:\n    mean([])\nassert 'values' in str(caught.value)",
            "pytest.raises(ValueError, mean, [])",
        ),
        ("raises",),
    ),
    "warns": (_functions("with pytest.warns(DeprecationWarning):\n    assert old(3) == 3"), ("warns",)),
    "approx": (
        _functions(
            "assert mean([0.1, 0.2]) == pytest.approx(0.15)",
            "assert [mean([1]), 2.5] == pytest.approx([1.0, 2.5], rel=1e-3)",
        ),
        ("assert ==",),
    ),
    "unittest": (
        _case(
            "self.assertEqual(add(1, 2), 3)\nself.assertEqual(3, add(1, 2), 'message')",
            "self.assertTrue(words('a'))\nself.assertFalse(words(''))",
            "self.assertIn('a', words('a b'))\nself.assertNotIn('c', words('a b'))",
            "self.assertIsNone(None if words('a b') == ['a', 'b'] else 1)\nself.assertIsNotNone(words('a'))",
            "self.assertAlmostEqual(mean([0.1, 0.2]), 0.15)\nself.assertGreater(add(1, 2), 2)",
        ),
        ("assertEqual", "assertTrue", "assertFalse", "assertIn", "assertNotIn", "assertIsNone", "assertAlmostEqual"),
    ),
    "unittest contexts": (
        _case(
            "with self.assertRaises(ValueError):\n    mean([])",
            "self.assertRaises(ValueError, mean, [])",
            "with self.assertRaisesRegex(Odd, 'sight'):\n    mean([])",
            "with self.assertWarns(DeprecationWarning):\n    old(1)",
            "with self.assertLogs('calc', 'WARNING'):\n    old(1)",
            "with self.assertLogs():\n    old(1)",
            "for text in ('a', 'b'):\n    with self.subTest(text=text):\n        self.assertEqual(words(text), [text])",
        ),
        ("assertRaises", "assertRaisesRegex", "assertWarns", "assertLogs"),
    ),
    "unittest kinds": (
        _case(
            "self.assertListEqual(words('a b'), ['a', 'b'])\nself.assertDictEqual({'a': add(1, 1)}, {'a': 2})",
            "self.assertCountEqual(words('b a'), ['a', 'b'])\nself.assertIsInstance(words('a b')[1], str)",
            "self.assertRegex(' '.join(words('a  b')), '^a b$')\nself.assertNotEqual(add(1, 1), 3)",
            "self.assertIs(add(1, 1) == 2, True)\nself.assertLessEqual(add(1, 1), 2)",
            "self.assertSetEqual(set(words('a b')), {'a', 'b'})\nself.assertTupleEqual((add(1, 2),), (3,))",
        ),
        ("assertListEqual", "assertDictEqual", "assertCountEqual", "assertIsInstance", "assertRegex", "assertIs"),
    ),
    "helpers": (
        _IMPORT
        + "def check(a, b, expected):\n    got = add(a, b)\n    assert got == expected\n\n\n"
        + "def test_one():\n    check(1, 2, 3)\n\n\ndef test_two():\n    check(3, 4, 7)\n    check(-3, 4, 1)\n",
        ("helper: assert ==",),
    ),
    "helper methods": (
        _CASE
        + "    def check(self, text, count):\n        self.assertEqual(len(words(text)), count)\n\n"
        + "    def test_one(self):\n        self.check('a b', 2)\n\n"
        + "    def test_two(self):\n        self.check('', 0)\n",
        ("helper: assertEqual",),
    ),
    "async": (
        "import unittest\n\n" + _IMPORT + "class CoreTests(unittest.IsolatedAsyncioTestCase):\n"
        "    async def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n\n"
        "    async def test_words(self):\n        self.assertEqual(words('a b'), ['a', 'b'])\n",
        ("assertEqual",),
    ),
    "nothing to invert": (
        _IMPORT + "def test_add():\n    if add(1, 2) != 3:\n        raise ValueError\n\n\n"
        "def test_words():\n    if words('a b') != ['a', 'b']:\n        raise ValueError\n",
        ("plain",),
    ),
    "own lines": (
        "import inspect\n" + _IMPORT + "def test_line():\n    assert inspect.currentframe().f_lineno == 6\n\n\n"
        "def test_add():\n    assert add(1, 2) == 3\n",
        ("assert ==",),
    ),
    "windows lines": (
        (
            _IMPORT
            + "def test_add():\n    assert add(1, 2) == 3\n\n\ndef test_words():\n    assert words('é') == ['é']"
        ).replace("\n", "\r\n"),
        ("assert ==",),
    ),
    "not passing": (
        _functions(
            "pytest.skip('not here')\nassert add(1, 2) == 3",
            "if add(1, 2) == 3:\n    return\nassert add(1, 2) == 4",
            "assert add(1, 2) == 3",
        )
        + "\n\n@pytest.mark.xfail\ndef test_known():\n    assert add(1, 2) == 4\n",
        ("assert ==",),
    ),
}
"""By name: the text of a test file, and styles that its controls must include."""
