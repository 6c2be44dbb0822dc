"""Runs on the ``oci`` driver: a killed supervisor, unusable tests, and no runtime, no image or no room for an image."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leftovers import family_of
from securebench.images.reference import canonical
from securebench.images.store.index import Catalogue
from securebench.images.store.places import DIRECTORY_VARIABLE, StorePaths, default_directory
from tester_run.real_run import RealRun, anonymous, small_disk, wait_for
from tester_run.running import records

if TYPE_CHECKING:
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.oci import OciDriver

pytestmark = [pytest.mark.sandboxes_alone, pytest.mark.oci]

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")

OF_A_SANDBOX = "agent.py", "runsc-sandbox"
"""Texts that identify processes of the agent's sandbox. gVisor's process does not show the commands that it runs."""

NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


def supervisor_of(pid: int) -> int:
    """Return the supervisor below a process: it has pid 1 in its namespace, unlike the processes that it forks."""
    [supervisor] = [
        child for child, command in family_of(pid).items() if "oci.supervisor" in command and _is_first(child)
    ]
    return supervisor


def _is_first(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1] == "1"


@pytest.fixture
def images(tmp_path: Path, oci_driver: OciDriver, base_image: ResolvedImage) -> Path:
    """Return a new store with the base image, not unpacked. Its blobs are linked or copied from this user's store."""
    theirs, own = StorePaths(default_directory()), StorePaths(tmp_path / "images")
    found = Catalogue(theirs).find(canonical(base_image.reference))
    assert found is not None
    image, manifest = found
    own.top.mkdir(mode=0o711)
    own.blobs.mkdir(mode=0o700, parents=True)
    Catalogue(own).write([image])
    for blob in (image.manifest, manifest.config, *manifest.layers):
        _link_or_copy(theirs.blob(blob.digest), own.blob(blob.digest))
    tmp_path.chmod(0o711)
    return own.top


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system, to which the kernel cannot link
        shutil.copy2(source, target)


def test_the_supervisor_is_killed(tmp_path: Path, oci_driver: OciDriver) -> None:
    """If the supervisor is killed, the run exits with 3, reports why, leaves nothing and can be resumed (L08)."""
    one = RealRun(tmp_path / "one", oci_driver, rounds=3, sleep=0.5)
    with one.begun("--workers", "2", after=2) as process:
        supervisor = supervisor_of(process.pid)
        os.kill(supervisor, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "the sandbox engine stopped" in err
    assert "--resume" in err
    statuses = [record["verification_status"] for record in records(one.root)]
    assert 2 <= len([status for status in statuses if status != "error"]) < 12
    assert 1 <= statuses.count("error") <= 2
    wait_for(lambda: not one.left(), 20)
    assert one.finish("--workers", "4", "--resume").returncode == 0
    clean = RealRun(tmp_path / "clean", oci_driver, rounds=3)
    assert clean.finish("--workers", "4").returncode == 0
    assert anonymous(one.root) == anonymous(clean.root)


def test_the_run_and_its_supervisor_are_killed(tmp_path: Path, oci_driver: OciDriver) -> None:
    """If a run and its supervisor are killed, all sandboxes end, and ``reap`` removes everything else (L10, I15)."""
    one = RealRun(tmp_path, oci_driver, sleep=20.0)
    with one.begun("--workers", "2", after=0) as process:
        wait_for(lambda: len([line for line in one.left() if any(map(line.count, OF_A_SANDBOX))]) >= 2)
        supervisor = supervisor_of(process.pid)
        process.kill()
        os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: not [line for line in one.left() if line.startswith("process")], 20)
    oci_driver.reap()
    assert not one.left()


def test_an_unpacked_image_that_is_gone_is_unpacked_again(tmp_path: Path, oci_driver: OciDriver, images: Path) -> None:
    """If the unpacked tree of an image is removed, the next run unpacks the image again."""
    own = {DIRECTORY_VARIABLE: str(images), **NO_ENGINE}
    one = RealRun(tmp_path / "one", oci_driver, rounds=1)
    assert one.finish("--limit", "1", variables=own).returncode == 0
    [tree] = (images / "trees").iterdir()
    shutil.rmtree(tree)
    done = one.finish("--resume", variables=own)
    assert done.returncode == 0, done.stderr
    assert len(records(one.root)) == 4


def test_an_image_that_is_gone_is_told_before_any_task(tmp_path: Path, oci_driver: OciDriver) -> None:
    """If neither the store nor an engine has the image, the run ends before any task, with advice (I07, L08)."""
    one = RealRun(tmp_path / "one", oci_driver)
    done = one.finish(variables={DIRECTORY_VARIABLE: str(tmp_path / "empty"), **NO_ENGINE})
    assert done.returncode == 1
    assert "image-unavailable" in done.stderr
    assert "securebench images build" in done.stderr
    assert one.written() == 0


def test_tests_that_do_not_compile_stop_the_run_before_any_task(tmp_path: Path, oci_driver: OciDriver) -> None:
    """D97: tests that the host's Python cannot compile stop the run before any agent runs."""
    one = RealRun(tmp_path, oci_driver, rounds=1)
    _give_code_tests(tmp_path, "assert double(21) ==")
    done = one.finish("--workers", "2")
    assert (done.returncode, one.written()) == (1, 0)
    assert "[tests-unusable]" in done.stderr


def test_tests_that_cannot_import_are_an_error_and_cost_no_agent(tmp_path: Path, oci_driver: OciDriver) -> None:
    """D97: a task whose tests need a module that the image lacks is a ``task_unusable`` error of the preflight."""
    one = RealRun(tmp_path, oci_driver, rounds=1)
    _give_code_tests(tmp_path, "import no_such_module\nassert double(21) == 42")
    done = one.finish("--workers", "2")
    assert done.returncode == 3, done.stderr
    record = next(record for record in records(tmp_path) if record["task_type"] == "code_completion")
    assert (record["verification_status"], record["failure_reason"]) == ("error", "task_unusable")
    assert record["failure_phase"] == "preflight"
    assert "score" not in record
    assert len(records(tmp_path)) == 4


def _give_code_tests(root: Path, tests: str) -> None:
    path = root / "pack" / "tasks.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1]["eval"]["tests"]["code"] = tests
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@needs_root
def test_no_room_to_unpack_an_image(tmp_path: Path, oci_driver: OciDriver, images: Path) -> None:
    """If the store's disk is full, the run ends before any task. The next run uses no half-unpacked image (L07)."""
    one = RealRun(tmp_path / "one", oci_driver, rounds=1)
    own = {DIRECTORY_VARIABLE: str(images), **NO_ENGINE}
    (images / "trees").mkdir(mode=0o710)
    with small_disk(images / "work", 8 << 20), small_disk(images / "trees", 8 << 20):
        done = one.finish(variables=own)
    assert done.returncode == 1, done.stderr
    assert "out-of-disk" in done.stderr
    assert one.written() == 0
    done = one.finish(variables=own)
    assert done.returncode == 0, done.stderr


@needs_root
def test_neither_a_runtime_nor_an_engine(tmp_path: Path, oci_driver: OciDriver) -> None:
    """Without crun, runc and Docker, a run ends before any task, and the error says how to install a runtime (L08)."""
    one = RealRun(tmp_path, oci_driver)
    config = tmp_path / "tester.yaml"
    config.write_text(config.read_text().partition("sandbox:")[0])
    hide = 'for f in crun runc; do p=$(command -v $f) && mount --bind /dev/null $p; done; exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", hide, "sh", *one.command()]
    environment = {**one.environment(NO_ENGINE), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "driver-unavailable" in done.stderr
    assert "apt-get install crun tini" in done.stderr
    assert "unix:///nowhere/docker.sock" in done.stderr
    assert one.written() == 0
