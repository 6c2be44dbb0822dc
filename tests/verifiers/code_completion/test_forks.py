"""The tests of several tasks in one sandbox: the tests of one task cannot affect the next task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason
from securebench.sandboxes.kept import KeptSandboxes
from securebench.testing.judging.code import artifact, context, view_of
from securebench.verifiers.code_completion import CodeCompletionVerifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.base import SandboxDriver
    from securebench.sandboxes.oci import OciDriver
    from securebench.verifiers.base import VerificationResult
    from securebench.verifiers.code_completion.sides import JudgingGuest

pytestmark = pytest.mark.oci

RIGHT = "def f(x): return x * x"
INNOCENT = """
import gc, os, signal, sys, tempfile
assert f(2) == 4
assert os.listdir('/tmp') == [] == os.listdir('/dev/shm') == os.listdir('/dev/mqueue')
assert sorted(os.listdir('/proc/self/fd')) == ['0', '1', '2', '3', '4', '5']
assert set(os.environ) <= {'PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'HOSTNAME'} and os.getcwd() == '/'
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and os.getpgid(0) == os.getpid()
assert len([p for p in os.listdir('/proc') if p.isdigit()]) <= 3 and not hasattr(sys, 'attacked')
assert os.access('/proc/self/mem', os.W_OK) and tempfile.gettempdir() == '/tmp' and os.umask(0o22) == 0o22
assert not os.path.exists('/proc/self/autogroup') or ' nice 0' in open('/proc/self/autogroup').read()
with tempfile.TemporaryFile() as file:
    file.write(b'x')
"""
"""Tests that pass only in a process that no other task has changed."""
CHANGED = """
assert sys.attacked == builtins.hash == os.listdir == 1 and os.environ['A'] == 'b'
assert os.getcwd() == '/tmp' and os.umask(0) == 0 and resource.getrlimit(resource.RLIMIT_NOFILE) == (9, 9)
"""


class Judge:
    """A callable that judges code, and reuses its sandboxes as a run does."""

    def __init__(self, driver: SandboxDriver) -> None:
        self.kept: KeptSandboxes[JudgingGuest] = KeptSandboxes(driver)
        self._context = replace(context(driver), kept=self.kept)
        self._kills = oom_kills()

    def __call__(self, tests: str, code: str = RIGHT, timeout: float | None = None) -> VerificationResult:
        """Run ``tests`` on ``code``, and return the result."""
        view = view_of({"source": "inline", "code": tests}, timeout=timeout)
        return CodeCompletionVerifier().verify(view, artifact(code), self._context)

    @property
    def guest(self) -> JudgingGuest | None:
        """The guest that is kept for the next task, or ``None``."""
        return next((guest for _, guest in self.kept._idle), None)

    def has_kept(self, guest: JudgingGuest | None) -> bool:
        """Return whether the next task gets ``guest``.

        Return ``True``, too, if the machine has killed any process to free memory: this ends kept sandboxes.
        """
        return self.guest is guest or oom_kills() != self._kills


def oom_kills() -> int:
    """Return how many processes this machine has killed to free memory, including those of other tests."""
    counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counters["oom_kill"])


@pytest.fixture
def judge(oci_driver: OciDriver) -> Iterator[Judge]:
    """Return a :class:`Judge` whose sandboxes are closed after the test."""
    made = Judge(oci_driver)
    yield made
    made.kept.close()


def test_tasks_share_a_sandbox_and_nothing_in_it(judge: Judge) -> None:
    """Tasks that fail, patch modules or change process settings do not affect the next one."""
    assert judge(INNOCENT).passed
    guest = judge.guest
    patches = "import builtins, os, sys\nsys.attacked = builtins.hash = os.listdir = 1\nos.environ['A'] = 'b'\n"
    dropped = "import resource\nos.chdir('/tmp'); os.umask(0); resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))\n"
    assert judge(f"{patches}{dropped}{CHANGED}assert f(2) == 4").passed
    assert judge(INNOCENT).passed
    assert judge(f"{patches}{dropped}assert f(2) == 5").reason is FailureReason.TESTS_FAILED
    assert judge(INNOCENT).passed
    assert judge.has_kept(guest)


C = """
import ctypes, fcntl, os, resource, signal, socket, struct, sys, time
libc = ctypes.CDLL(None)
boss = os.getppid()
"""
"""Code that runs before each attack. ``boss`` is the process that forks a process for each task."""
PASS = "assert f(2) == 4\n"
FORGED = """
def frame(kind, body): return kind + len(body).to_bytes(4, 'big') + body
verdict = frame(b'V', b'{"outcome": "passed", "answered": 1}')
"""
LEFT = {
    "a daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(99)",
    "a child": "if os.fork() == 0: time.sleep(99)",
    "a file": "open('/tmp/notes', 'w').write('x')",
    "a shared file": "os.mkfifo('/dev/shm/notes')",
    "a directory without a mode": "os.makedirs('/tmp/a/b'); os.chmod('/tmp/a', 0)",
    "System V shared memory": "assert libc.shmget(1, 4096, 0o1666) >= 0",
    "a System V semaphore": "assert libc.semget(1, 1, 0o1666) >= 0",
    "a System V queue": "assert libc.msgget(1, 0o1666) >= 0",
    "a POSIX queue": "assert libc.mq_open(b'/notes', os.O_CREAT | os.O_RDWR, 0o666, None) >= 0",
    "a connection": "s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())",
    "a pending signal": "os.kill(boss, signal.SIGTERM); os.kill(boss, signal.SIGUSR1)",
    "a signal through the init": "os.kill(1, signal.SIGTERM); time.sleep(0.2)",
    "a limit": "resource.prlimit(boss, resource.RLIMIT_CPU, (9, 9))",
    "a lower priority": "os.setpriority(os.PRIO_PROCESS, boss, 5)",
    "a lower priority of the init": "os.setpriority(os.PRIO_PROCESS, 1, 5)",
    "a scheduling policy": "os.sched_setscheduler(boss, os.SCHED_IDLE, os.sched_param(0))",
    "a processor": "os.sched_setaffinity(boss, {max(os.sched_getaffinity(0))} if os.cpu_count() > 1 else ())",
    "a pipe that does not block": "fcntl.fcntl(3, fcntl.F_SETFL, os.O_NONBLOCK)",
    "a lock of a pipe": "fcntl.flock(3, fcntl.LOCK_EX)",
    "a locked range of a pipe": "fcntl.fcntl(3, 37, struct.pack('hhqqi4x', 0, 0, 9, 1, 0))",
    "a low priority for files": "assert not libc.syscall(251 if os.uname()[4] == 'x86_64' else 30, 1, boss, 3 << 13)",
    "an out-of-memory kill": "if os.fork() == 0: x = bytearray(1 << 30)\nassert os.wait()[1] == signal.SIGKILL",
    "a process that runs on": FORGED + "os.write(4, verdict); time.sleep(99)",
    "a small pipe": "fcntl.fcntl(4, 1031, 4096)",
    "a forged verdict": FORGED + "os.write(4, verdict + frame(b'E', b'') + frame(b'H', b'x' * 17) + verdict)",
    "half a frame": "os.write(4, b'V')",
    "a forged request": FORGED + "os.write(os.open('/proc/self/fd/3', os.O_WRONLY), frame(b'T', b'x' * 19 + b'9'))",
    "a kill": "os.kill(boss, signal.SIGKILL)",
    "a stop": "os.kill(boss, signal.SIGSTOP)",
    "a full pipe": "os.set_blocking(4, False)\ntry:\n    while True: os.write(4, bytes(4096))\nexcept OSError: pass",
}
ENDS = {
    "a timeout": ("time.sleep(9)", "did not answer in time"),
    "an exit": ("os._exit(0)", "exited"),
    "an exit with a daemon": ("os.fork() and os._exit(0); time.sleep(9)", "exited"),
    "a crash": ("os.abort()", "exited"),
    "a killed group": ("os.kill(0, signal.SIGKILL)", "exited"),
    "memory": ("x = bytearray(1 << 30); x[::4096] = x[::4096]", "ran out of memory"),
    "memory of a child": ("if not os.fork(): x = bytearray(1 << 30)\nos.wait(); os._exit(0)", "exited"),
    "output": ("while True: f(b'x' * 100_000)", "exceeded the output limit"),
}
IMPOSSIBLE = {
    "tracing": "assert libc.ptrace(16, boss, 0, 0) == -1 == libc.ptrace(16, 1, 0, 0)",
    "memory": "assert not any(os.access(f'/proc/{pid}/mem', os.R_OK) for pid in (1, boss))",
    "descriptors": "for pid in (1, boss):\n    try: assert not os.listdir(f'/proc/{pid}/fd')\n    except OSError: pass",
    "copies of descriptors": "assert libc.syscall(438, libc.syscall(434, boss, 0), 2, 0) == -1",
    "files of the process": "assert not os.access(f'/proc/{boss}/oom_score_adj', os.W_OK)",
    "niceness of the session": "try: open('/proc/self/autogroup', 'w').write('5')\nexcept OSError: pass",
    "limits of the init": "assert libc.prlimit(1, 0, 0, 0) == -1",
}
"""Attempts of a task to affect the processes that outlive it: the init and the process that forks."""
QUICK = {"a daemon", "a file", "a forged verdict"}


def cases(attacks: dict[str, str]) -> list[object]:
    """Return the attacks as test parameters. Those that are not in ``QUICK`` run only with ``make test-all``."""
    return [pytest.param(attacks[name], id=name, marks=() if name in QUICK else pytest.mark.long) for name in attacks]


@pytest.mark.parametrize("attack", cases(LEFT))
def test_what_is_left_ends_the_sandbox(judge: Judge, attack: str) -> None:
    """A task that leaves something behind passes or has no verdict, and its sandbox is not used again."""
    assert judge(PASS).passed
    first = judge.guest
    # A forged verdict is read instead of the real one, so it may change the result of this task, but of no other.
    assert judge(f"{C}{PASS}{attack}").reason in {None, FailureReason.NO_VERDICT}
    assert judge(INNOCENT).passed
    assert judge.guest is None or (judge.guest is not first and judge.guest._tasks == 1)


@pytest.mark.long
@pytest.mark.parametrize(("attack", "end"), ENDS.values(), ids=ENDS)
def test_an_end_without_a_verdict_is_that_of_a_sandbox_of_its_own(
    judge: Judge, oci_driver: OciDriver, attack: str, end: str
) -> None:
    """If a task ends without a verdict, its reason and message are the same as in a sandbox that is used only once.

    The next task is not affected.
    """
    attack, code = f"{C}{PASS}{attack}", "def f(x): return x * x if x == 2 else None"
    assert judge(PASS).passed
    shared = judge(attack, code, timeout=2)
    judge._context = replace(judge._context, kept=None)
    alone = judge(attack, code, timeout=2)
    assert (shared.reason, shared.message) == (alone.reason, alone.message)
    assert end in shared.message, shared.message
    judge._context = replace(judge._context, kept=judge.kept)
    assert judge(INNOCENT).passed


@pytest.mark.long
@pytest.mark.parametrize("attempt", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_the_process_that_forks_cannot_be_taken_over(judge: Judge, attempt: str) -> None:
    """A task cannot take over the forking process or the init, and the attempt does not end the shared sandbox."""
    assert judge(PASS).passed
    first = judge.guest
    assert judge(f"{C}{PASS}{attempt}").passed
    assert judge(INNOCENT).passed
    assert judge.has_kept(first)
