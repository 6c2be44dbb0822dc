"""In sandboxes without a candidate, check whether an image has what a task needs to be judged."""

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
"""The last line that a probe prints. If it is missing, the probe did not finish, and its result is unknown."""

_PROGRAMS: Final = r"""
# A link may point to a file that only a candidate creates, as /usr/local/bin/app -> /workspace/app: count it as found.
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
    """Probes images and caches the results for a run. Thread-safe.

    Each probe runs in a fresh sandbox of the given spec, without anything from a candidate. A result lists only what
    the image certainly lacks: nothing if the image cannot be probed. Methods raise the driver's
    :class:`InfrastructureError`.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def missing_programs(
        self, driver: SandboxDriver, spec: SandboxSpec, programs: Sequence[str], *, shell: bool = True
    ) -> list[str]:
        """Return those of ``programs`` (names on PATH, or paths) that a shell could not start in the image.

        If ``shell`` is ``False``, a builtin of the shell is also returned, unless there is a program with its name.
        """
        return self._missing(driver, spec, ("/bin/sh", "-c", _PROGRAMS, "sh" if shell else "exec"), programs)

    def missing_modules(
        self, driver: SandboxDriver, spec: SandboxSpec, modules: Sequence[str], python: Sequence[str] = ("python3",)
    ) -> list[str]:
        """Return those of the top-level ``modules`` that ``python``, a program with its options, cannot find."""
        return self._missing(driver, spec, (*python, "-c", _MODULES), modules)

    def compiles(
        self,
        driver: SandboxDriver,
        spec: SandboxSpec,
        source: str | bytes,
        python: Sequence[str] = ("python3", "-I", "-B"),
    ) -> bool:
        """Return whether ``python``, a program of the image with its options, can compile ``source``.

        Returns ``True`` if this cannot be found out.
        """
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
        """Return the numbers that ``argv`` prints, one per line.

        Returns an empty tuple if the command fails or does not finish.
        """
        # Mounts belong to one task: a result that may depend on them is cached for that task only.
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
