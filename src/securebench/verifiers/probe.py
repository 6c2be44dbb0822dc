"""What an image has, found out in sandboxes without a candidate: whether a task can be judged in it at all."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Final

from securebench.limits import MIB
from securebench.sandboxes.base import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.sandboxes.base import SandboxDriver, SandboxSpec

_SECONDS: Final = 60.0
_END: Final = b"end\n"
"""What a probe prints last: without it, it did not run to its end, and nothing is known."""

_PROGRAMS: Final = r"""
# A link may lead to where only a candidate has something, as /usr/local/bin/app -> /workspace/app: it counts as there.
may_be() {
  [ -f "$1" ] && [ -x "$1" ] && return 0
  path=$1
  while [ -n "$path" ]; do
    case $path in /bin | /sbin | /lib | /lib64) ;; *) [ -L "$path" ] && return 0 ;; esac
    case $path in */*) path=${path%/*} ;; *) path= ;; esac
  done
  return 1
}
on_path() {
  IFS=:
  for directory in $PATH; do may_be "$directory/$1" && return 0; done
  return 1
}
number=0
for program do
  case $program in
  */*) may_be "$program" || echo $number ;;
  *) { [ "$0" = sh ] && command -v "$program" >/dev/null; } || on_path "$program" || echo $number ;;
  esac
  number=$((number + 1))
done
echo end
"""

_MODULES: Final = """
import os, sys
from importlib.util import find_spec
def may_come_from_elsewhere(name):
    if len(sys.meta_path) > 3:
        return True
    for entry in sys.path:
        if any(os.path.islink(os.path.join(entry, file)) for file in (name, name + ".py")):
            return True
        try:
            files = os.listdir(entry)
        except Exception:
            continue
        if any(file.endswith(".pth") and not file.startswith("distutils-") for file in files):
            return True
    return False
for number, name in enumerate(sys.argv[1:]):
    try:
        found = find_spec(name) is not None or may_come_from_elsewhere(name)
    except Exception:
        found = True
    if not found:
        print(number)
print("end")
"""

_COMPILES: Final = """
import sys
try:
    compile(sys.stdin.buffer.read(), "<tests>", "exec", dont_inherit=True)
except (SyntaxError, ValueError):
    print(0)
print("end")
"""


class ImageProbe:
    """Asks images, and remembers the answers for a run. Its threads share it.

    Each question is put in a fresh sandbox of the given spec, which holds nothing of a candidate. "Missing" is what
    the image was seen not to have; where an image cannot be asked, nothing counts as missing. Methods raise
    :class:`InfrastructureError` as the driver does.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def missing_programs(
        self, driver: SandboxDriver, spec: SandboxSpec, programs: Sequence[str], *, shell: bool = True
    ) -> list[str]:
        """Return those of ``programs`` (names on PATH, or paths) that a shell could not start there.

        Without ``shell``, what only a shell knows is missing, too.
        """
        return self._missing(driver, spec, ("/bin/sh", "-c", _PROGRAMS, "sh" if shell else "exec"), programs)

    def missing_modules(
        self, driver: SandboxDriver, spec: SandboxSpec, modules: Sequence[str], python: Sequence[str] = ("python3",)
    ) -> list[str]:
        """Return those of the top-level ``modules`` that ``python``, a program and its options, does not find."""
        return self._missing(driver, spec, (*python, "-c", _MODULES), modules)

    def compiles(
        self,
        driver: SandboxDriver,
        spec: SandboxSpec,
        source: str | bytes,
        python: Sequence[str] = ("python3", "-I", "-B"),
    ) -> bool:
        """Return whether ``python``, a program of the image and its options, compiles ``source``."""
        data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
        return not self._ask(driver, spec, (*python, "-c", _COMPILES), data)

    def _missing(
        self, driver: SandboxDriver, spec: SandboxSpec, argv: tuple[str, ...], names: Sequence[str]
    ) -> list[str]:
        if not names:
            return []
        return [names[number] for number in self._ask(driver, spec, (*argv, *names)) if number < len(names)]

    def _ask(
        self, driver: SandboxDriver, spec: SandboxSpec, argv: tuple[str, ...], stdin: bytes = b""
    ) -> tuple[int, ...]:
        """Return the numbers that ``argv`` prints, one a line, if it runs to its end; otherwise none."""
        # Mounts are a task's own: an answer that may depend on them holds for this task alone.
        place = "".join(f"{mount.target}\0{mount.source}\0" for mount in spec.mounts)
        who = f"{spec.user} {spec.cap_add} {sorted(spec.environment.items())}"
        key = (spec.image.id, place, spec.workdir, who, hashlib.sha256(stdin).hexdigest(), *argv)
        with self._lock:
            known = self._known.get(key)
        if known is None:
            with driver.create(spec) as sandbox:
                command = Command(argv=argv, timeout_seconds=_SECONDS, stdin=stdin, capture=MIB)
                result = sandbox.run(command)
            *lines, end = result.stdout.splitlines(keepends=True) or [b""]
            is_whole = result.exit_code == 0 and end == _END
            known = tuple(int(line) for line in lines if line.strip().isdigit()) if is_whole else ()
            with self._lock:
                self._known[key] = known
        return known
