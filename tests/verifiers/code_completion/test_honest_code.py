"""A correct candidate passes and a wrong one fails, for many ordinary Python features that tests use.

These tests run the real guests as local processes. ``test_in_sandboxes.py`` repeats some cases in real sandboxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from securebench.testing.judging.code import judge

if TYPE_CHECKING:
    from securebench.testing.scripted_sandbox import ScriptedDriver


@dataclass(frozen=True)
class Case:
    """A correct and a wrong candidate for the same tests."""

    name: str
    right: str
    wrong: str
    tests: str


CASES = [
    Case(
        "plain function",
        "def add(a, b): return a + b",
        "def add(a, b): return a - b",
        "def check():\n    assert add(2, 3) == 5\n    assert add(a=-1, b=1) == 0\ncheck()",
    ),
    Case(
        "function given to a checker",
        "def double(x): return 2 * x",
        "def double(x): return x",
        "def check(candidate):\n    assert candidate(4) == 8\ncheck(double)",
    ),
    Case(
        "helper and constant by name",
        "LIMIT = 3\nTABLE = {'a': [1, 2]}\ndef first(xs): return xs[:LIMIT]",
        "LIMIT = 4\nTABLE = {'a': [1, 2]}\ndef first(xs): return xs[:LIMIT]",
        "assert LIMIT == 3 and TABLE['a'] == [1, 2]\nassert first([1, 2, 3, 4]) == [1, 2, 3]",
    ),
    Case(
        "list changed in place",
        "def tidy(xs): xs.sort(); xs.append(None)",
        "def tidy(xs): xs = sorted(xs) + [None]",
        "xs = [3, 1, 2]\nalias = xs\nassert tidy(xs) is None\nassert xs == [1, 2, 3, None] and alias is xs",
    ),
    Case(
        "nested containers changed in place",
        "def mark(d): d['seen'].add(1); d['rows'][0].append(9); d['new'] = [0]; d['buffer'] += b'!'",
        "def mark(d): d['seen'].add(1)",
        """
        row, seen, buffer = [1], set(), bytearray(b'x')
        d = {'rows': [row, row], 'seen': seen, 'buffer': buffer}
        mark(d)
        assert row == [1, 9] and seen == {1} and d['new'] == [0] and buffer == b'x!' and d['rows'][1] is row
        """,
    ),
    Case(
        "one object twice stays one object",
        "def push(a, b): a.append(1); return len(b), a is b",
        "def push(a, b): a.append(1); return 0, False",
        "xs = []\nassert push(xs, xs) == (1, True)",
    ),
    Case(
        "what it returns may be its argument",
        "def same(xs): xs.append(1); return xs",
        "def same(xs): return xs + [1]",
        "xs = []\nassert same(xs) is xs",
    ),
    Case(
        "a list that holds itself",
        "def loop():\n    xs = [1]\n    xs.append(xs)\n    return xs",
        "def loop(): return [1, [1]]",
        "xs = loop()\nassert xs[1] is xs",
    ),
    Case(
        "arguments are left alone",
        "def rev(xs): return xs[::-1]",
        "def rev(xs): xs.reverse(); return xs",
        "xs = [1, 2]\nassert rev(xs) == [2, 1] and xs == [1, 2]",
    ),
    Case(
        "every plain type, exactly",
        "def back(x): return x",
        "def back(x): return int(x) if isinstance(x, bool) else x",
        r"""
        import math
        values = [None, True, False, 0, -1, 2**63, -2**70, 10**50, 0.0, -0.0, 1e308, float('inf'), -float('inf'),
                  1j, '', 'aé\u4e2d\U0001f600', '\ud800', '\ud83d\ude00', 'a\x00b', b'\xff\x00', bytearray(b'x'), [],
                  (), {}, set(), frozenset({1}), range(1, 9, 2), [1, [2, (3, {4: 5})]], {(1, 'a'): {2}},
                  {1: 'int', 'x': None}]
        for value in values:
            found = back(value)
            assert type(found) is type(value) and found == value and repr(found) == repr(value), repr(value)
        assert math.isnan(back(float('nan'))) and math.copysign(1, back(-0.0)) == -1
        """,
    ),
    Case(
        "collections and standard values",
        """
        from collections import *; from decimal import *; from fractions import *; import datetime
        def all_of(): return [Counter('aab'), OrderedDict(b=1, a=2), deque([1, 2]), defaultdict(list, a=[1]),
            Decimal('1.10'), Fraction(1, 3), datetime.date(2020, 2, 29), datetime.timedelta(1, 2, 3),
            datetime.datetime(2020, 1, 2, 3, 4, 5, 6), datetime.time(1, 2, 3, 4)]
        def note(d, k): d[k].append(1)
        """,
        """
        def all_of(): return [1]
        def note(d, k): d[k].append(1)
        """,
        """
        from collections import *; from decimal import *; from fractions import *; import datetime as dt
        wanted = [Counter('aab'), OrderedDict(b=1, a=2), deque([1, 2]), defaultdict(list, a=[1]),
            Decimal('1.10'), Fraction(1, 3), dt.date(2020, 2, 29), dt.timedelta(1, 2, 3),
            dt.datetime(2020, 1, 2, 3, 4, 5, 6), dt.time(1, 2, 3, 4)]
        found = all_of()
        assert found == wanted and list(map(type, found)) == list(map(type, wanted))
        found[3]['new'].append(2)
        mine = defaultdict(list)
        note(mine, 'k')
        assert mine == {'k': [1]}
        """,
    ),
    Case(
        "views of a dict",
        "def parts(d): return d.keys(), d.values(), d.items()",
        "def parts(d): return list(d), list(d), list(d)",
        "k, v, i = parts({'a': 1})\nassert k == {'a'} and list(v) == [1] and i == {('a', 1)} and len(k) == 1",
    ),
    Case(
        "exceptions by type and message",
        "def half(x):\n    if x % 2: raise ValueError(f'{x} is odd')\n    return x // 2",
        "def half(x):\n    if x % 2: raise TypeError(f'{x} is odd')\n    return x // 2",
        """
        try:
            half(3)
        except ValueError as error:
            assert str(error) == '3 is odd' and error.args == ('3 is odd',)
        else:
            raise AssertionError
        """,
    ),
    Case(
        "its own exceptions",
        """
        class BankError(Exception): pass
        class NoFunds(BankError, ValueError): pass
        def pay(n):
            if n > 5: raise NoFunds('short', n)
        """,
        """
        class BankError(Exception): pass
        class NoFunds(Exception): pass
        def pay(n):
            if n > 5: raise NoFunds('short', n)
        """,
        """
        for kind in (NoFunds, BankError, ValueError):
            try:
                pay(7)
            except kind as error:
                assert error.args == ('short', 7) and type(error) is NoFunds
        assert issubclass(NoFunds, BankError)
        """,
    ),
    Case(
        "exceptions of the standard library",
        "import json\nfrom dataclasses import dataclass\ndef parse(s): return json.loads(s)\n"
        "@dataclass(frozen=True)\nclass P:\n    x: int\ndef poke():\n    P(1).x = 2",
        "def parse(s): raise ValueError\ndef poke(): raise AttributeError",
        """
        import json, dataclasses
        for call, kind in ((lambda: parse('{'), json.JSONDecodeError), (poke, dataclasses.FrozenInstanceError)):
            try:
                call()
            except kind:
                continue
            raise AssertionError
        """,
    ),
    Case(
        "unittest",
        "def area(r):\n    if r < 0: raise ValueError\n    return r * r",
        "def area(r): return r * r",
        """
        import unittest
        class Areas(unittest.TestCase):
            function = area
            def test_value(self):
                self.assertEqual(area(3), 9)
            def test_negative(self):
                with self.assertRaises(ValueError):
                    area(-1)
        if __name__ == '__main__':
            unittest.main()
        """,
    ),
    Case(
        "classes with state",
        """
        class Stack:
            kind = 'lifo'
            def __init__(self, items=()): self.items = list(items)
            def push(self, x): self.items.append(x); return self
            def pop(self): return self.items.pop()
            @classmethod
            def of(cls, *xs): return cls(xs)
            @property
            def size(self): return len(self.items)
        """,
        """
        class Stack:
            kind = 'lifo'
            def __init__(self, items=()): self.items = list(items)
            def push(self, x): self.items.append(x); return self
            def pop(self): return self.items.pop(0)
            @classmethod
            def of(cls, *xs): return cls(xs)
            @property
            def size(self): return len(self.items)
        """,
        """
        s = Stack([1])
        assert s.push(2).push(3) is s and s.size == 3 and s.pop() == 3 and Stack.kind == 'lifo'
        assert Stack.of(7, 8).pop() == 8
        s.items = [5]
        assert s.pop() == 5 and s is s and s == s and s != Stack() and len({s, s}) == 1
        assert hasattr(s, 'push') and not hasattr(s, 'peek')
        """,
    ),
    Case(
        "linked objects",
        """
        class Node:
            def __init__(self, value, next=None): self.value, self.next = value, next
        def reverse(head):
            done = None
            while head: head.next, done, head = done, head, head.next
            return done
        """,
        """
        class Node:
            def __init__(self, value, next=None): self.value, self.next = value, next
        def reverse(head): return head
        """,
        """
        first = Node(1, Node(2, Node(3)))
        node, values = reverse(first), []
        while node:
            last = node
            values.append(node.value)
            node = node.next
        assert values == [3, 2, 1] and last is first
        """,
    ),
    Case(
        "closures, callbacks and decorators",
        """
        import functools
        def adder(n): return lambda x: x + n
        def apply(f, xs): return [f(x) for x in xs]
        def logged(f):
            @functools.wraps(f)
            def inner(*a, **k): return (f.__name__, f(*a, **k))
            return inner
        """,
        """
        def adder(n): return lambda x: x - n
        def apply(f, xs): return [f(x) for x in xs]
        def logged(f): return f
        """,
        """
        assert adder(2)(3) == 5
        calls = []
        assert apply(lambda x: calls.append(x) or x * x, [1, 2]) == [1, 4] and calls == [1, 2]
        assert apply(adder(1), [1]) == [2] and apply(len, ['ab']) == [2] and apply(int, ['7']) == [7]
        @logged
        def greet(name, mark='!'): return name + mark
        assert greet('a', mark='?') == ('greet', 'a?') and greet.__name__ == 'greet'
        """,
    ),
    Case(
        "errors of a callback",
        "def safely(f):\n    try: return f()\n    except ValueError as e: return str(e)\ndef boldly(f): return f()",
        "def safely(f):\n    try: return f()\n    except ValueError as e: return ''\ndef boldly(f): return f()",
        """
        class Mine(ValueError): pass
        def fail(): raise Mine('told')
        assert safely(fail) == 'told'
        try:
            boldly(fail)
        except ValueError:
            pass
        else:
            raise AssertionError
        """,
    ),
    Case(
        "a callback changes what it is given",
        "def gather(f):\n    xs = []\n    f(xs)\n    f(xs)\n    return xs",
        "def gather(f):\n    return []",
        "assert gather(lambda xs: xs.append(len(xs))) == [0, 1]",
    ),
    Case(
        "generators, endless ones too",
        """
        def evens():
            n = 0
            while True:
                yield n
                n += 2
        def up_to(n):
            for i in range(n): yield i
            raise ValueError('end')
        def pairs(xs): return zip(xs, xs[1:])
        def echo():
            got = yield 'ready'
            while True: got = yield got * 2
        """,
        """
        def evens():
            n = 0
            while True:
                yield n
                n += 3
        def up_to(n): return iter(range(n))
        def pairs(xs): return zip(xs, xs)
        def echo():
            yield 'ready'
        """,
        """
        from itertools import islice
        assert list(islice(evens(), 40)) == list(range(0, 80, 2))
        seen = []
        try:
            for i in up_to(5): seen.append(i)
        except ValueError as error:
            assert str(error) == 'end'
        assert seen == [0, 1, 2, 3, 4]
        assert list(pairs([1, 2, 3])) == [(1, 2), (2, 3)]
        g = echo()
        assert next(g) == 'ready' and g.send(4) == 8 and g.send(5) == 10
        """,
    ),
    Case(
        "iterators as arguments",
        "def total(xs): return sum(xs)",
        "def total(xs): return len(list(xs))",
        "assert total(x for x in (1, 2, 3)) == 6 and total(map(int, '45')) == 9 and total(range(4)) == 6",
    ),
    Case(
        "iterators without an end as arguments",
        "from itertools import islice\ndef first(xs, n): return list(islice(xs, n))",
        "def first(xs, n): return []",
        """
        from itertools import count, cycle
        assert first(cycle('ab'), 3) == ['a', 'b', 'a'] and first(count(), 2500) == list(range(2500))
        assert sum(first((n * n for n in count()), 4)) == 14
        """,
    ),
    Case(
        "files as arguments",
        "import csv\nclass Log:\n    def __init__(self, file): self.file = file\n"
        "    def say(self, word): print(word, file=self.file)\n"
        "def rows(file): return [list(row) for row in csv.reader(file)]\n"
        "def first(file):\n    with file as opened: return opened.readline()\n",
        "class Log:\n    def __init__(self, file): pass\n    def say(self, word): pass\n"
        "def rows(file): return []\ndef first(file): return ''\n",
        """
        from io import BytesIO, StringIO
        file = StringIO()
        log = Log(file)
        log.say('a')
        log.say(2)
        assert file.getvalue() == 'a\\n2\\n'
        assert rows(StringIO('1,2\\n3,4\\n')) == [['1', '2'], ['3', '4']]
        assert first(BytesIO(b'x\\ny')) == b'x\\n'
        """,
    ),
    Case(
        "a random generator as an argument",
        "def draw(random): return [random.randint(1, 6), random.choice('abc')]",
        "def draw(random): return [0, 'a']",
        "from random import Random\nknown = Random(3)\n"
        "assert draw(Random(3)) == [known.randint(1, 6), known.choice('abc')]",
    ),
    Case(
        "an iterator class",
        "class Down:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n"
        "    def __next__(self):\n        if not self.n: raise StopIteration\n        self.n -= 1; return self.n",
        "class Down:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n"
        "    def __next__(self): raise StopIteration",
        "assert list(Down(3)) == [2, 1, 0]",
    ),
    Case(
        "coroutines",
        "import asyncio\nasync def later(x):\n    await asyncio.sleep(0)\n    return x + 1\n",
        "async def later(x):\n    return x\n",
        """
        import asyncio
        async def both(): return await asyncio.gather(later(1), later(2))
        assert asyncio.run(later(1)) == 2 and asyncio.run(both()) == [2, 3]
        """,
    ),
    Case(
        "module state, recursion and floats",
        "count = 0\ndef tick():\n    global count\n    count += 1\n"
        "def fact(n): return 1 if n < 2 else n * fact(n - 1)\ndef third(): return 1 / 3",
        "count = 0\ndef tick(): pass\ndef fact(n): return 1\ndef third(): return 0.33",
        "tick(); tick()\nassert count == 2\nimport math\nassert fact(200) == math.factorial(200)\n"
        "assert abs(third() - 1 / 3) < 1e-12",
    ),
    Case(
        "candidates that print",
        "import sys\nprint('loading')\n"
        "def say(x):\n    print('a' * 5000, flush=True)\n    sys.stderr.write('err')\n    return x",
        "import sys\nprint('loading')\ndef say(x):\n    print(x)",
        "assert say(1) == 1 and say('b') == 'b'",
    ),
    Case(
        "candidates that close or replace their stdout",
        "import sys\nsys.stdin.close()\nsys.stdout.close()\nsys.stdout = None\ndef f(): return 1",
        "import sys\nsys.stdout = None\ndef f(): return 2",
        "assert f() == 1",
    ),
    Case(
        "a demonstration under __main__ stays out",
        "def f(): return 1\nif __name__ == '__main__':\n    raise SystemExit(f())",
        "def f(): return 2\nif __name__ == '__main__':\n    raise SystemExit(f())",
        "assert f() == 1",
    ),
    Case(
        "dataclasses, enums and named tuples by attribute",
        "from dataclasses import dataclass\nimport enum, collections\n@dataclass\nclass P:\n    x: int\n"
        "class C(enum.Enum):\n    RED = 1\nT = collections.namedtuple('T', 'a b')\n"
        "def p(): return P(3)\ndef c(): return C.RED\ndef t(): return T(1, 2)",
        "class P: x = 4\nclass C: RED = 1\ndef p(): return P()\ndef c(): return C.RED\ndef t(): return P()",
        "assert p().x == 3 and c() is C.RED and c().value == 1 and t().b == 2",
    ),
    Case(
        "names of the tests come first",
        "def helper(): return 'candidate'\ndef sorted(xs): return 'candidate'\ndef check(f): return None\n"
        "def isinstance(*a): return True\ndef work(xs): return [1, 2]\nAssertionError = ValueError",
        "def work(xs): return [2, 1]",
        """
        def helper(): return 'tests'
        def check(f):
            assert f([2, 1]) == sorted([2, 1])
            assert isinstance(f([]), list) and not isinstance(1, str)
            assert helper() == 'tests'
        check(work)
        """,
    ),
    Case(
        "threads of the tests",
        "def square(x): return x * x",
        "def square(x): return x",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n"
        "    assert list(pool.map(square, range(20))) == [x * x for x in range(20)]",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_honest_code_passes(local: ScriptedDriver, case: Case) -> None:
    """A correct candidate passes its tests."""
    result = judge(local, case.right, case.tests)
    assert result.passed, (result.message, result.metadata, result.stderr)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_its_broken_twin_fails(local: ScriptedDriver, case: Case) -> None:
    """A wrong candidate fails the same tests, with the reason ``tests_failed``."""
    assert judge(local, case.wrong, case.tests).reason is FailureReason.TESTS_FAILED


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_empty_module_fails(local: ScriptedDriver, case: Case) -> None:
    """A candidate that defines nothing fails."""
    assert judge(local, "pass", case.tests).reason in {FailureReason.TESTS_FAILED, FailureReason.NO_VERDICT}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_stand_ins_behave_as_the_objects_do(local: ScriptedDriver, case: Case) -> None:
    """With shared isolation, where the tests use the candidate's real objects, the same candidates pass and fail."""
    assert judge(local, case.right, case.tests, isolation="shared").passed
    assert not judge(local, case.wrong, case.tests, isolation="shared").passed
