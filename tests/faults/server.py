"""A server process that has imported the command line, and forks a run for each line of its stdin.

Starting Python and importing everything takes longer than the rest of a small run. Each run writes the names of its
imported modules to a file, and the server then imports them for later runs. A line is JSON: ``hook`` (see
``install_from``), ``arguments``, ``output`` (the files for stdout and stderr) and ``environment``. The server answers
with the run's pid, then with its exit code.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from faults.hook import TESTS, install_from
from securebench.cli import process
from securebench.execution import retry
from tester_run.running import pin_framework

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODULES = "modules"


class ForkServer:
    """The client of the server. As a context manager, it starts and kills the server."""

    def __enter__(self) -> Self:
        paths = os.pathsep.join((str(TESTS), str(TESTS.parent), str(TESTS.parent / "src")))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.server"],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        # Closing its stdin may not end the server: another process, such as a fork of this one, may have the pipe open.
        self._process.kill()
        self._process.communicate()

    def run(
        self,
        hook: str,
        arguments: list[str],
        directory: Path,
        seconds: float,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line with ``arguments`` for at most ``seconds``, and write its output to ``directory``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        output = [str(directory / name) for name in ("stdout", "stderr")]
        order = {"hook": hook, "arguments": arguments, "output": output, "environment": dict(variables or {})}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        killer = threading.Timer(seconds, lambda: os.kill(pid, 9))
        killer.start()
        code = int(self._process.stdout.readline())
        is_late = not killer.is_alive()
        killer.cancel()
        out, err = (Path(path).read_text() for path in output)
        assert not is_late, f"it did not end within {seconds} s: {err}"
        return subprocess.CompletedProcess(arguments, code, out, err)


def _serve() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        modules = Path(order["output"][0]).with_name(_MODULES)
        pid = os.fork()
        if pid == 0:
            _run(order, modules)
        print(pid, flush=True)  # noqa: T201 - the answer
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for name in modules.read_text().split() if modules.exists() else ():
            with suppress(ImportError):
                importlib.import_module(name)
        print(code, flush=True)  # noqa: T201 - the answer


def _run(order: dict[str, Any], modules: Path) -> NoReturn:
    code: object = 70
    try:
        os.setsid()
        for number, path in enumerate((os.devnull, *order["output"])):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.update(order["environment"])
        pin_framework()
        retry.BACK_OFF = (0.0,)
        install_from(order["hook"])
        sys.argv = ["securebench", *order["arguments"]]
        process()
    except SystemExit as error:
        code = error.code
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        names = [name for name in sys.modules if name != "__main__" and not name.startswith("faults.")]
        modules.write_text("\n".join(sorted(names)))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve()
