"""Whole runs on the real engine: finished, killed, interrupted, with a full disk, with the engine gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from securebench.results.journal import JOURNAL
from securebench.sandboxes.docker_owner import RUN_LABEL
from tester_run.cut_socket import CuttableSocket
from tester_run.running import comparables, records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.images.engine import Engine
    from securebench.images.model import ResolvedImage

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("base_image")]

TESTS = Path(__file__).parents[1]

AGENT = """\
import json, os, time
task = json.load(open(os.environ["SECUREBENCH_TASK_FILE"]))
time.sleep({sleep})
if "choices" in task:
    print("Answer: B")
elif "starter_code" in task:
    print("def double(n):\\n    return n * 2")
elif "prompt" in task:
    print("Plants take in carbon dioxide.")
else:
    print("Answer: 212")
"""

ROWS: list[dict[str, Any]] = [
    {
        "family": "multiple_choice",
        "input": {"question": "Closest to the sun?", "choices": ["Venus", "Mercury"]},
        "eval": {"answer": "B"},
    },
    {
        "family": "short_answer",
        "input": {"question": "Water boils at how many degrees?"},
        "eval": {"accepted_answers": ["100"]},
    },
    {
        "family": "free_response",
        "input": {"prompt": "Which gas do plants take from the air?"},
        "eval": {"rubric": {"type": "contains_any", "accepted_answers": ["carbon dioxide"]}},
    },
    {
        "family": "code_completion",
        "input": {"prompt": "Write double(n).", "starter_code": "def double(n):\n"},
        "eval": {"tests": {"source": "inline", "code": "assert double(21) == 42\n"}},
    },
]
"""One task of each family; the agent above gets three of the four right."""


class EngineRun:
    """A pack of ``rounds`` times four tasks, a tester YAML with a run id of its own, and the command line."""

    def __init__(self, root: Path, rounds: int = 2, sleep: float = 0.0) -> None:
        self.root = root
        self.run_id = f"test-{uuid.uuid4().hex[:12]}"
        for name in ("pack", "agent"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "agent" / "agent.py").write_text(AGENT.format(sleep=sleep))
        (root / "pack" / "manifest.yaml").write_text("id: pack\nversion: 1\n")
        rows = [{"id": f"pack/{n}-{row['family']}", **row} for n in range(rounds) for row in ROWS]
        (root / "pack" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (root / "tester.yaml").write_text(
            f'schema_version: "0.2"\nrun: {{id: {self.run_id}, output_dir: results}}\n'
            "benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}\n"
            "harness:\n  type: command\n  config:\n"
            "    command: [python3, /opt/securebench/agent/agent.py]\n    agent_dir: agent\n"
        )

    def command(self, *flags: str) -> list[str]:
        """Return the command that runs this."""
        return [sys.executable, "-m", "tester_run.pinned_main", "run", str(self.root / "tester.yaml"), *flags]

    def finish(self, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return subprocess.run(
            self.command(*flags), env=_environment(environment), capture_output=True, text=True, check=False, timeout=90
        )

    @contextmanager
    def begun(self, *flags: str, after: int, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Give a run in progress that has written ``after`` records."""
        with subprocess.Popen(
            self.command(*flags),
            env=_environment(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                wait_for(lambda: self.written() >= after or process.poll() is not None)
                assert process.poll() is None, process.communicate()
                yield process
            finally:
                process.kill()

    def written(self) -> int:
        """Return how many records there are."""
        path = self.root / "results" / JOURNAL
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def containers(self, engine: Engine) -> list[str]:
        """Return the containers of this run."""
        found = engine.client.containers(all=True, filters={"label": f"{RUN_LABEL}={self.run_id}"})
        return [entry["Id"] for entry in found]


def _environment(extra: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(TESTS), **extra}


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, base_image: ResolvedImage) -> list[dict[str, Any]]:
    """Give the comparable records of a run that nothing happened to, but for its id."""
    one = EngineRun(tmp_path_factory.mktemp("clean"))
    done = one.finish("--workers", "2")
    assert done.returncode == 0, done.stderr
    return _anonymous(one.root)


def _anonymous(root: Path) -> list[dict[str, Any]]:
    """Return comparable records without what tells these tests' runs apart: their ids, and the agent's sleep."""
    found = comparables(root)
    for record in found:
        record["run_id"] = ""
        record["provenance"]["harness"] = ""
    return found


def test_four_families(tmp_path: Path, engine: Engine) -> None:
    """A task of each family is run and judged, the records say how, and no container is left."""
    one = EngineRun(tmp_path, rounds=1)
    done = one.finish("--workers", "4")
    assert done.returncode == 0, done.stderr
    assert "75.0% of 4" in done.stdout
    verdicts = {record["task_type"]: record["verification_status"] for record in records(tmp_path)}
    assert verdicts == {
        "multiple_choice": "passed",
        "short_answer": "failed",
        "free_response": "passed",
        "code_completion": "passed",
    }
    assert not one.containers(engine)
    for record in records(tmp_path):
        assert record["provenance"]["image"]["id"].startswith("sha256:")
        assert record["provenance"]["driver"]["name"] == "docker"


@pytest.mark.parametrize("after", [1, 3])
def test_killed_and_resumed(tmp_path: Path, engine: Engine, clean: list[dict[str, Any]], after: int) -> None:
    """A run that is killed half-way and resumed has a clean run's records, and its containers are reaped (L01, L10)."""
    one = EngineRun(tmp_path, sleep=0.3)
    with one.begun("--workers", "4", after=after) as process:
        process.kill()
    kept = one.written()
    done = one.finish("--workers", "4", "--resume")
    assert done.returncode == 0, done.stderr
    assert f"resumed: {kept} records kept" in done.stderr
    assert _anonymous(tmp_path) == clean
    assert not one.containers(engine)


def test_interrupted_once(tmp_path: Path, engine: Engine, clean: list[dict[str, Any]]) -> None:
    """The first Ctrl-C ends at once and cleanly: 130, finished tasks kept, how to go on, no container left (L12)."""
    one = EngineRun(tmp_path, sleep=1.0)
    with one.begun("--workers", "2", after=2) as process:
        time.sleep(0.4)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - start < 8
    assert process.returncode == 130
    assert "--resume" in err
    assert "not run" in out
    assert not one.containers(engine)
    assert all(record["verification_status"] in {"passed", "failed"} for record in records(tmp_path))
    assert all(record.get("failure_reason") in {None, "wrong_answer"} for record in records(tmp_path))
    assert one.finish("--workers", "4", "--resume").returncode == 0
    assert _anonymous(tmp_path) == clean


def test_interrupted_twice(tmp_path: Path, engine: Engine, clean: list[dict[str, Any]]) -> None:
    """The second Ctrl-C ends at once; what it could not remove, the next run does (L12)."""
    one = EngineRun(tmp_path, sleep=1.0)
    with one.begun("--workers", "2", after=1) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert time.monotonic() - start < 5
    assert process.returncode == 130
    running = engine.client.containers(filters={"label": f"{RUN_LABEL}={one.run_id}"})
    assert not running
    assert one.finish("--workers", "4", "--resume").returncode == 0
    assert _anonymous(tmp_path) == clean
    assert not one.containers(engine)


def test_the_engine_goes_away(tmp_path: Path, engine: Engine, clean: list[dict[str, Any]]) -> None:
    """An engine that stops half-way costs no verdict: the run ends with 3, says why, and resumes (L08)."""
    one = EngineRun(tmp_path, rounds=2, sleep=0.5)
    with CuttableSocket(tmp_path / "engine.sock", _engine_socket()) as cuttable:
        flags = ("--workers", "2")
        with one.begun(*flags, after=2, DOCKER_HOST=f"unix://{cuttable.path}") as process:
            cuttable.cut()
            _, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "the sandbox engine is gone" in err
    assert "--resume" in err
    statuses = [record["verification_status"] for record in records(tmp_path)]
    assert 2 <= len([status for status in statuses if status != "error"]) < 8
    assert 1 <= statuses.count("error") <= 2
    assert {r["failure_reason"] for r in records(tmp_path) if r["verification_status"] == "error"} == {
        "engine_unavailable"
    }
    assert one.finish("--workers", "4", "--resume").returncode == 0
    assert _anonymous(tmp_path) == clean
    assert not one.containers(engine)


def _engine_socket() -> str:
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """Mount so small a disk. Only root may."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root may mount a small disk; RLIMIT_FSIZE is tested anyway"
)


@needs_root
def test_a_disk_that_is_too_small(tmp_path: Path, engine: Engine) -> None:
    """A run does not begin on a disk that is nearly full, and says what to do (L07)."""
    one = EngineRun(tmp_path)
    with small_disk(tmp_path / "results", 1 << 20):
        done = one.finish()
        assert done.returncode == 1
        assert "KiB free" in done.stderr
        assert "--output-dir" in done.stderr
    assert not one.containers(engine)


@needs_root
def test_a_disk_that_fills_up(tmp_path: Path, engine: Engine, clean: list[dict[str, Any]]) -> None:
    """A disk that fills up half-way ends the run with 3; no record is half written, and it resumes (L07)."""
    one = EngineRun(tmp_path, sleep=0.3)
    filler = tmp_path / "results" / "workspaces" / "filler"
    with small_disk(tmp_path / "results", 40 << 20):
        with one.begun("--workers", "2", after=2) as process:
            _fill(filler)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 3, err
        assert "No space left on device" in err
        assert "--resume" in err
        assert (tmp_path / "results" / JOURNAL).read_bytes().endswith(b"\n")
        assert 2 <= len(records(tmp_path)) < 8
        filler.unlink()
        done = one.finish("--workers", "2", "--resume")
        assert done.returncode == 0, done.stderr
        assert _anonymous(tmp_path) == clean
    assert not one.containers(engine)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            return


def test_a_missing_image(tmp_path: Path) -> None:
    """An image that is nowhere is told before any task, with what to do; the directory stays usable (L08)."""
    one = EngineRun(tmp_path, rounds=1)
    manifest = tmp_path / "pack" / "manifest.yaml"
    manifest.write_text("id: pack\nversion: 1\ndefaults: {environment: {image: 'localhost:1/nowhere:1'}}\n")
    done = one.finish()
    assert done.returncode == 1
    assert "localhost:1/nowhere:1" in done.stderr
    assert "Traceback" not in done.stderr
    assert one.written() == 0
    manifest.write_text("id: pack\nversion: 1\n")
    assert one.finish("--workers", "2").returncode == 0
