"""Complete and interrupted runs on Ray clusters whose nodes share no directory.

Starting Ray and copying the base image to each node takes most of the time, so only ``make test-all`` runs these tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from executors.ray_cluster import RayCluster
from securebench.results.run_directory.egress_log import EGRESS_LOG
from securebench.testing.conformance.executors import EXECUTOR_CHECKS
from securebench.testing.provider.scripts import solve
from securebench.testing.provider.server import ScriptedProvider
from securebench.testing.provider.steps import Say
from tester_run.real_run import RealRun, anonymous, wait_for
from tester_run.running import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from securebench.executors.base import Executor
    from securebench.sandboxes.base import SandboxDriver

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

pytestmark = [pytest.mark.long, pytest.mark.sandboxes_alone, pytest.mark.timeout(900)]

KEY = "sk-key-of-a-provider-that-no-disk-may-have-0123456789"


class RayRun(RealRun):
    """The same run as :class:`RealRun`, on a cluster."""

    main = "securebench"
    """The command line without a pinned framework digest, so that all processes compute the same digests."""

    def on(self, cluster: RayCluster) -> tuple[str, ...]:
        """Return the command-line options that select the cluster, and keep its environment variables."""
        self.variables: Mapping[str, str] = cluster.variables
        return ("--executor", "ray", "--address", cluster.address, "--workers", "4")


class LocalRun(RealRun):
    """The same run as :class:`RayRun`, on this machine without a cluster."""

    main = "securebench"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Yield a cluster of a head without slots and two nodes with two slots each."""
    root = tmp_path_factory.mktemp("cluster")
    root.chmod(0o711)
    with RayCluster(root) as made:
        made.add("one")
        made.add("two")
        yield made


@pytest.fixture(scope="module")
def clean_runs() -> dict[str, list[dict[str, Any]]]:
    """Return a cache for the records of an uninterrupted local run on each driver."""
    return {}


@pytest.fixture
def clean(
    clean_runs: dict[str, list[dict[str, Any]]], driver: SandboxDriver, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """Return the comparable records of an uninterrupted local run, with three tasks of each tested family."""
    info = driver.info()
    key = f"{info.name} {info.runtime}"
    if key not in clean_runs:
        one = LocalRun(tmp_path_factory.mktemp("clean"), driver, rounds=3)
        done = one.finish("--workers", "2")
        assert done.returncode == 0, done.stderr
        clean_runs[key] = anonymous(one.root)
    return clean_runs[key]


@contextmanager
def begun(one: RayRun, cluster: RayCluster, *flags: str, after: int) -> Iterator[subprocess.Popen[str]]:
    """Yield the process of a run that has written at least ``after`` records and is still in progress."""
    with one.begun(*one.on(cluster), *flags, after=0, variables=cluster.variables) as process:
        wait_for(lambda: one.written() >= after or process.poll() is not None, 180)
        assert process.poll() is None, process.communicate()
        yield process


def finish(one: RayRun, cluster: RayCluster, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run to the end, check that the exit code is 0, and return the result."""
    done = one.finish(*one.on(cluster), *flags, seconds=300, variables=cluster.variables)
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def once_each(root: Path) -> bool:
    """Return whether no trial has two records."""
    return max(Counter((record["task_id"], record["trial"]) for record in records(root)).values()) == 1


def running(root: Path) -> int:
    """Return how many running tasks ``securebench status`` reports."""
    command = [sys.executable, "-m", "securebench", "status", str(root / "results"), "--json"]
    done = subprocess.run(command, env=RealRun.environment({}), capture_output=True, text=True, check=False)
    return len(json.loads(done.stdout)["running"]) if done.returncode == 0 else 0


def left_on(cluster: RayCluster, *nodes: str) -> list[str]:
    """Return the run directories that exist on ``nodes``."""
    return [str(path) for name in nodes for path in cluster.directory(name).iterdir() if len(path.name) == 32]


@pytest.mark.parametrize("check", EXECUTOR_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Callable[[Callable[[int], Executor]], None], cluster: RayCluster) -> None:
    """The Ray executor passes the conformance suite.

    Each check runs in a separate process, because the Ray library reads its token only once.
    """
    program = (
        f"from securebench.executors.ray import RayExecutor, RaySettings\n"
        f"from securebench.testing.conformance.executors import {check.__name__} as check\n"
        f"check(lambda workers: RayExecutor(workers, RaySettings(address={cluster.address!r})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=RealRun.environment(cluster.variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_run_on_two_nodes_is_a_local_run(
    tmp_path: Path, driver: SandboxDriver, cluster: RayCluster, clean: list[dict[str, Any]]
) -> None:
    """A run on nodes that did not have its pack has the records of a local run, and leaves nothing on the nodes."""
    one = RayRun(tmp_path, driver, rounds=3)
    done = finish(one, cluster, "--keep-verifier-output")
    assert anonymous(tmp_path) == clean
    assert done.stdout.startswith("pack, run")
    sealed = {record["candidate_digest"] for record in records(tmp_path)}
    assert {path.name for path in (tmp_path / "results" / "candidates").iterdir()} == sealed
    assert not left_on(cluster, "one", "two")
    checked = subprocess.run(
        [*one.command()[:3], "verify-run", str(tmp_path / "results"), "--pack", str(tmp_path / "pack")],
        env=one.environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_workers_that_are_being_opened_when_the_run_ends(tmp_path: Path, cluster: RayCluster) -> None:
    """They are closed, and have the time to clean up, as workers that have been opened."""
    program = Path(__file__).with_name("unfinished_opening.py")
    done = subprocess.run(
        [sys.executable, str(program), cluster.address, str(tmp_path)],
        env=RealRun.environment(cluster.variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_a_node_is_killed(
    tmp_path: Path, driver: SandboxDriver, cluster: RayCluster, clean: list[dict[str, Any]]
) -> None:
    """The tasks of a killed node run again on other nodes, and each has one record."""
    one = RayRun(tmp_path, driver, rounds=3, sleep=2.0)
    cluster.add("three", slots=4)
    try:
        with begun(one, cluster, "--workers", "8", after=4) as process:
            wait_for(lambda: bool(left_on(cluster, "three")), 60)
            cluster.kill("three")
            out, err = process.communicate(timeout=240)
    finally:
        cluster.kill("three")
        driver.reap()  # the next worker on that machine would do this
    assert process.returncode == 0, out + err
    assert once_each(tmp_path)
    assert anonymous(tmp_path) == clean


def test_the_coordinator_is_killed(
    tmp_path: Path, driver: SandboxDriver, cluster: RayCluster, clean: list[dict[str, Any]]
) -> None:
    """A killed run that is resumed has the records of an uninterrupted run, and leaves nothing on the nodes."""
    one = RayRun(tmp_path, driver, rounds=3, sleep=1.0)
    with begun(one, cluster, after=3) as process:
        process.kill()
    kept = one.written()
    done = finish(one, cluster, "--resume")
    assert f"resuming: {kept} of 12" in done.stderr
    assert once_each(tmp_path)
    assert anonymous(tmp_path) == clean
    assert not left_on(cluster, "one", "two")


def test_interrupted_once(tmp_path: Path, driver: SandboxDriver, cluster: RayCluster) -> None:
    """Ctrl-C ends the run within 45 seconds, and leaves no run directory on any node."""
    one = RayRun(tmp_path, driver, rounds=3, sleep=30.0)
    with begun(one, cluster, after=0) as process:
        wait_for(lambda: running(one.root) == 4, 120)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert time.monotonic() - start < 45
    assert process.returncode == 130, err
    assert not left_on(cluster, "one", "two")


@pytest.mark.parametrize("harness", ["model", pytest.param("codex", marks=pytest.mark.agents)])
def test_keys_are_on_no_disk(tmp_path: Path, driver: SandboxDriver, cluster: RayCluster, harness: str) -> None:
    """The gateways on the nodes use the provider's key, but no file of Ray, the nodes or the run contains it.

    The nodes cannot connect to a package registry, so they get the agent program from the coordinator.
    """
    one = RayRun(tmp_path, driver, rounds=3)
    path = tmp_path / "tester.yaml"
    before, _, after = path.read_text().partition("harness:\n")
    with ScriptedProvider(solve("short_answer", "B"), texts=lambda _: Say("Answer: B")) as provider:
        settings = {"base_url": f"{provider.url}/v1", "model": "scripted-model"}
        if harness == "model":
            settings |= {"dialect": "chat_completions", "api_key_env": "OPENAI_API_KEY"}
        lines = json.dumps({"type": harness, "config": settings})
        path.write_text(f"{before}harness: {lines}\n{after[after.index('sandbox:') :]}")
        done = one.finish(
            *one.on(cluster),
            "--keep-verifier-output",
            seconds=300,
            variables={**cluster.variables, "OPENAI_API_KEY": KEY},
        )
        assert done.returncode == 0, done.stderr + done.stdout
        assert provider.keys_seen == {KEY}
    assert {record["verification_status"] for record in records(tmp_path)} == {"passed", "failed"}
    logged = (tmp_path / "results" / EGRESS_LOG).read_text().splitlines()
    assert {json.loads(line)["task_id"] for line in logged} >= {record["task_id"] for record in records(tmp_path)}
    assert not holding(KEY, cluster.sessions, cluster.root, tmp_path)
    assert holding("scripted-model", tmp_path)


def holding(text: str, *places: Path) -> list[str]:
    """Return the files below ``places`` that contain ``text``."""
    command = ["grep", "--recursive", "--files-with-matches", "--text", "--devices=skip", text, *map(str, places)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def test_the_head_is_restarted(tmp_path: Path, driver: SandboxDriver, clean: list[dict[str, Any]]) -> None:
    """A run whose head is killed stops with an error. Resumed, it has the records of an uninterrupted run."""
    one = RayRun(tmp_path, driver, rounds=3, sleep=5.0)
    tmp_path.chmod(0o711)
    with RayCluster(tmp_path) as cluster:
        cluster.add("only")
        with begun(one, cluster, after=2) as process:
            cluster.kill("head")
            _, err = process.communicate(timeout=180)
        assert process.returncode == 3, err
        assert "the head of the Ray cluster" in err, err
        assert 2 <= one.written() < 12
        cluster.kill("only")
        cluster.start_head()
        cluster.add("only")
        finish(one, cluster, "--resume")
    assert once_each(tmp_path)
    assert anonymous(tmp_path) == clean


def test_a_cluster_without_a_token_is_refused(tmp_path: Path, driver: SandboxDriver) -> None:
    """A run is refused if this machine has no token, or if the cluster does not require one."""
    one = RayRun(tmp_path / "run", driver, rounds=1)
    home = {"HOME": str(tmp_path)}
    refused = one.finish("--executor", "ray", "--address", "127.0.0.1:1", variables=home)
    assert refused.returncode != 0
    assert "ray-token-missing" in refused.stderr
    with RayCluster(tmp_path / "run", token=False) as bare:
        bare.add("only", 1)
        variables = {**home, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
        done = one.finish("--executor", "ray", "--address", bare.address, variables=variables)
    assert done.returncode == 3, done.stderr
    assert "RAY_AUTH_MODE=token" in done.stderr
    assert not one.written()


def test_a_cluster_of_its_own(tmp_path: Path, driver: SandboxDriver, clean: list[dict[str, Any]]) -> None:
    """Without an address, a run starts a cluster on this machine and ends it afterwards."""
    one = RayRun(tmp_path, driver, rounds=3)
    variables = {"SECUREBENCH_NODE_DIR": str(tmp_path / "node"), "RAY_TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    done = one.finish("--executor", "ray", "--workers", "2", seconds=300, variables=variables)
    assert done.returncode == 0, done.stderr
    assert anonymous(tmp_path) == clean
    assert not one.left()
