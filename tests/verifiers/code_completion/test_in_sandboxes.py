"""Judging in real sandboxes: cheats fail with the expected reasons, the tests stay secret, and honest code passes."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from securebench.testing.attacks.code import CHEATS, TESTS, CodeCheat
from securebench.testing.judging.code import judge
from verifiers.code_completion.test_honest_code import CASES
from weaker import possible_reasons

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.base import SandboxDriver
    from securebench.verifiers.base import VerificationResult

_SORTS = "def solve(xs): return sorted(xs)"


def _assert_says_nothing_of(secret: str, result: VerificationResult) -> None:
    """Assert that a result does not contain ``secret`` as plain text, upper case, hex or Base64 (F13)."""
    text = repr(result)
    for form in (secret, secret.upper(), secret.encode().hex(), base64.b64encode(secret.encode()).decode()[:-4]):
        assert form not in text


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: f"{cheat.entry} {cheat.name}")
def test_no_cheat_passes(driver: SandboxDriver, host_canary: Path, cheat: CodeCheat) -> None:
    """A cheat fails with an expected reason, and the result does not contain the secret in the tests."""
    canary = f"canary{secrets.token_hex(16)}"
    tests = f"SECRET = {canary!r}  # {canary}\n{cheat.tests}" if cheat.tests else TESTS.format(canary=canary)
    plant = f"\ntry: open({str(host_canary)!r}, 'w').write('was here')\nexcept OSError: pass\n"
    code = cheat.code + plant if cheat.entry not in {"B20", "B01", "B02"} else cheat.code
    result = judge(driver, code, tests, timeout=cheat.timeout)
    assert result.reason in possible_reasons(driver, cheat.reasons), (result.reason, result.message, result.stderr)
    assert result.metadata["reason"] == result.reason
    assert result.message
    _assert_says_nothing_of(canary, result)


@pytest.mark.parametrize("isolation", ["split", "shared"])
def test_the_known_solution_passes(driver: SandboxDriver, isolation: str) -> None:
    """The correct solution passes the tests that the cheats fail."""
    assert judge(driver, _SORTS, TESTS.format(canary="x"), isolation=isolation).passed


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{_SORTS}\n```",
        f"Here it is:\n\n```\n{_SORTS}\n```\nIt sorts.",
        f"\ufeff{_SORTS}\r\n",
        f"{_SORTS}\n\nif __name__ == '__main__':\n    raise SystemExit(1)\n",
    ],
    ids=["fenced", "fenced in prose", "BOM and CRLF", "a main block"],
)
def test_one_program_in_other_clothes_passes(driver: SandboxDriver, text: str) -> None:
    """B20: A code fence, prose, a BOM, CRLF or a main block around a correct program does not matter."""
    assert judge(driver, text, TESTS.format(canary="x")).passed


@pytest.mark.parametrize(
    "name",
    ["nested containers changed in place", "closures, callbacks and decorators", "its own exceptions", "unittest"],
)
def test_honest_code_passes_in_real_sandboxes(driver: SandboxDriver, name: str) -> None:
    """Cases that pass and fail with local guests do the same in real sandboxes."""
    case = next(case for case in CASES if case.name == name)
    assert judge(driver, case.right, case.tests).passed
    assert not judge(driver, case.wrong, case.tests).passed


_DUMP = r"""
import gc, glob, os, re, sys
PATTERN = re.compile(rb"canary-[0-9a-f]{32}")
def everything():
    yield repr(sys.argv).encode() + repr(dict(os.environ)).encode()
    for found in gc.get_objects():
        try: yield repr(found).encode('utf-8', 'replace') if type(found) in (list, dict, tuple) else b''
        except Exception: pass
    frame = sys._getframe()
    while frame:
        yield repr(frame.f_locals).encode('utf-8', 'replace')
        frame = frame.f_back
    for name in [*glob.glob('/proc/[0-9]*/*'), *glob.glob('/proc/[0-9]*/fd/*'), *glob.glob('/tmp/*')]:
        if os.path.isfile(name) and not name.endswith(('/mem', '/kmsg', '/pagemap')):
            try:
                with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK), 'rb') as f: yield f.read(1 << 20)
            except OSError: pass
    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', buffering=0) as memory:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split('-'))
            if 'r' not in line.split()[1] or '[v' in line: continue
            try:
                memory.seek(start)
                yield memory.read(end - start)
            except (OSError, ValueError, OverflowError): pass
def dump(marker):
    found = set()
    for part in everything(): found.update(PATTERN.findall(part))
    return sorted(one.decode() for one in found)
def everything_else():
    return [sorted(os.listdir('/proc/self/fd')), dict(os.environ), open('/proc/mounts').read(), os.getuid(),
            sorted(p for p in os.listdir('/proc') if p.isdigit()), open('/proc/net/dev').read()]
"""


def test_nothing_of_the_tests_is_in_the_candidates_sandbox(driver: SandboxDriver) -> None:
    """B05, B06, B07: A search of memory, heap, files, argv and environment finds a call's argument, but no secret.

    Finding the argument shows that the search works.
    """
    canary, marker = f"canary-{secrets.token_hex(16)}", f"canary-{secrets.token_hex(16)}"
    tests = f"""
    SECRET = {canary!r}  # {canary}
    def callback(x): return {canary!r} and x
    found = dump({marker!r})
    assert {marker!r} in found, 'the search finds what is there'
    assert {canary!r} not in found
    """
    result = judge(driver, _DUMP, tests)
    assert result.passed, result.message
    _assert_says_nothing_of(canary, result)
    _assert_says_nothing_of(marker, result)


def test_the_candidates_sandbox_holds_nothing_else(driver: SandboxDriver) -> None:
    """B07, B22: The candidate's sandbox has an unprivileged user, at most two processes, and only a loopback network.

    It has a read-only root, no mounts of SecureBench and no variables of the host.
    """
    tests = """
    fds, environment, mounts, uid, processes, network = everything_else()
    assert uid == 65534 and set(environment) <= {'PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'HOSTNAME'}, environment
    assert len(processes) <= 2 and len(fds) <= 6
    assert [line.split(':')[0].strip() for line in network.splitlines()[2:]] == ['lo']
    root = [line.split() for line in mounts.splitlines() if line.split()[1] == '/']
    assert 'securebench' not in mounts and root[-1][3].split(',')[0] == 'ro', mounts
    """
    assert judge(driver, _DUMP, tests).passed


def test_what_a_candidate_prints_of_its_arguments_is_not_recorded(driver: SandboxDriver) -> None:
    """F13: A candidate's output is recorded while the candidate is loaded, but not during calls."""
    code = "import sys\nprint('loading', file=sys.stderr, flush=True)\ndef solve(xs): print(xs, flush=True); 1 / 0"
    result = judge(driver, code, "solve('canary-argument')")
    assert result.stderr == "loading\n"
    assert "canary-argument" not in repr(result)
    assert result.metadata["error"] == "ZeroDivisionError"


def test_a_name_made_of_an_argument_is_not_recorded(driver: SandboxDriver) -> None:
    """F13: The record names the builtin base of an exception class, because the class's name may be an argument."""
    code = "def solve(xs): raise type(xs, (ValueError,), {})(xs)"
    result = judge(driver, code, "solve('canary_argument')")
    assert "canary_argument" not in repr(result)
    assert result.metadata["error"] == "ValueError"


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "raise SystemExit(0)",
        "print('passed')\ndef solve(xs): return xs",
        "def solve(xs): exit(0)",
    ],
)
def test_in_one_process_simple_cheats_fail_too(driver: SandboxDriver, code: str) -> None:
    """B01, B02, B12: Simple cheats fail with ``isolation: shared``, too, and the metadata names the isolation."""
    result = judge(driver, code, TESTS.format(canary="x"), isolation="shared")
    assert not result.passed
    assert result.metadata["isolation"] == "shared"


MANY_CALLS = "for number in range({}):\n    assert solve(number) == number\n"


@pytest.mark.every_driver
@pytest.mark.parametrize(
    ("seconds", "body"),
    [(2, "return n"), pytest.param(30, "time.sleep(0.001); return n", marks=pytest.mark.long)],
    ids=["2 s", "30 s"],
)
def test_more_calls_than_fit_end_for_one_reason(driver: SandboxDriver, seconds: float, body: str) -> None:
    """A.4: If all calls together take too long, each driver gives the same reason, whichever side was running."""
    code = f"import time\ndef solve(n): {body}"
    result = judge(driver, code, MANY_CALLS.format(60_000), timeout=seconds)
    assert result.reason is FailureReason.CANDIDATE_TIMEOUT, result
    assert "all calls together took too long" in result.message


@pytest.mark.long
@pytest.mark.every_driver
def test_twenty_thousand_calls_fit_into_a_minute(driver: SandboxDriver) -> None:
    """20,000 calls fit into the default time limit of 60 s, as the documentation says."""
    assert judge(driver, "def solve(n): return n", MANY_CALLS.format(20_000)).passed
