"""The oci driver for an ordinary user without subordinate ids or cgroups: only what it reports as weaker is weaker.

If root runs the tests, a child process changes to an ordinary user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import securebench
from securebench.errors import EngineError
from securebench.images.store.archive import import_path
from securebench.images.store.image_store import ImageStore
from securebench.sandboxes.base import MIB, Limits, SandboxSpec
from securebench.sandboxes.kept import KeptSandboxes
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci.connection import _has_subordinate_ids
from securebench.sandboxes.oci.runtime import find_runtime
from securebench.testing.conformance import CHECKS, expected_failure
from securebench.testing.conformance.bench import probe_command, run_checks
from securebench.testing.judging.code import artifact, context, view_of
from securebench.verifiers.code_completion import CodeCompletionVerifier
from workspaces.users import ORDINARY_USER, as_ordinary_user, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.images.model import ResolvedImage
    from securebench.verifiers.code_completion.sides import JudgingGuest

pytestmark = pytest.mark.oci

WEAKER = {"memory", "pids", "cpu", "file-owners", "groups"}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the home of an ordinary user. Skip the test if that user cannot use user namespaces or run this code."""
    user: dict[str, Any] = (
        {"user": ORDINARY_USER, "group": ORDINARY_USER, "extra_groups": ()} if os.geteuid() == 0 else {}
    )
    python = _python_of_everybody()
    for argv in (["unshare", "--user", "--map-root-user", "true"], [python, "-c", ""], ["ls", _source()]):
        if subprocess.run(argv, capture_output=True, check=False, cwd="/", **user).returncode:
            pytest.skip(f"an ordinary user of this machine may not: {' '.join(argv)}")
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with open_directory() as directory:
        monkeypatch.setenv("HOME", str(directory))
        monkeypatch.setenv("SECUREBENCH_IMAGES", str(directory / "images"))
        monkeypatch.setenv("TMPDIR", str(directory))
        monkeypatch.setattr("tempfile.tempdir", None)
        yield directory


def _python_of_everybody() -> str:
    """Return an interpreter that all users can run: that of a virtual environment may be in root's home."""
    return shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable


def _source() -> str:
    return str(Path(securebench.__file__).parent)


def test_isolation_is_proved_without_root(home: Path) -> None:
    """For an ordinary user, everything is enforced except what the driver reports: limits, file owners and groups."""

    def prove() -> None:
        with closing(OciDriver(runtime="crun")) as driver:
            isolation = driver.prove()
            assert set(isolation.weaker) - _where_ids_are_given() == WEAKER - _where_ids_are_given(), isolation
            assert {"network", "capabilities", "seccomp", "user-namespace"} <= set(isolation.enforced)
            assert driver.info().weaker == isolation.weaker

    as_ordinary_user(prove)


def _where_ids_are_given() -> set[str]:
    """Return what may be enforced for a real user, but not for ``ORDINARY_USER``: groups and limits."""
    return set() if os.geteuid() == ORDINARY_USER else {"groups", "memory", "pids", "cpu"}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("runtime", ["crun", "runc", "runsc"])
def test_an_ordinary_user_conforms(
    oci_driver: OciDriver, store: ImageStore, base_image: ResolvedImage, home: Path, runtime: str
) -> None:
    """Without root, all conformance checks pass except those that need what the driver reports as weaker.

    Even if memory is not limited, the files in a root file system are bounded by the memory limit.

    The fixtures take the image from the store of the user who runs the tests, before ``home`` changes the default.
    """
    if reason := _why_not(runtime):
        pytest.skip(reason)
    archive = _saved(store, base_image, home)

    def conform() -> None:
        import_path(ImageStore(), archive, base_image.reference, lambda _text: None)
        with closing(OciDriver(runtime=runtime)) as driver:
            image = driver.resolve_image(base_image.reference)
            driver.self_test(image)
            assert image.id == base_image.id
            outcomes = run_checks(CHECKS, driver, image)
            spec = SandboxSpec(image=image, read_only=False, user=(0, 0), limits=Limits(memory=64 * MIB))
            with driver.create(spec) as sandbox:
                filled = sandbox.run(probe_command("fill", "/big", str(128 * MIB))).stdout.split()
            assert 60 * MIB < int(filled[0]) <= 65 * MIB
            assert filled[1] == b"ENOSPC"
            info = driver.info()
        failed = {outcome.check.name: outcome.problem for outcome in outcomes if outcome.problem}
        expected = {check.name for check in CHECKS if expected_failure(check, info)}
        assert {name: problem for name, problem in failed.items() if name not in expected} == {}
        assert "memory_is_limited" in failed

    as_ordinary_user(conform)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_tests_leave_is_noticed_where_they_own_more_files(
    oci_driver: OciDriver, store: ImageStore, base_image: ResolvedImage, home: Path
) -> None:
    """A sandbox with a single user, who owns ``/dev`` and ``/tmp``, is not reused after tests have changed these.

    The same is true if tests have changed the priority of their parent process.
    """
    archive = _saved(store, base_image, home)
    left = {
        "": 3,
        "open('/dev/x', 'w')": 1,
        "os.chmod('/tmp', 0o700)": 1,
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 5)": 1,
    }

    def judge_all() -> None:
        import_path(ImageStore(), archive, base_image.reference, lambda _text: None)
        with closing(OciDriver(runtime="crun")) as driver:
            kept: KeptSandboxes[JudgingGuest] = KeptSandboxes(driver)
            verify_context = replace(context(driver), kept=kept)
            for change, tasks in left.items():
                for tests in ("f()", f"import os; f(); {change}", "f()"):
                    view = view_of({"source": "inline", "code": tests})
                    assert CodeCompletionVerifier().verify(view, artifact("def f(): pass"), verify_context).passed
                ((_, guest),) = kept._idle
                assert guest._tasks == tasks, change

    as_ordinary_user(judge_all)


def _saved(store: ImageStore, image: ResolvedImage, home: Path) -> Path:
    archive = home / "image.tar"
    with archive.open("wb") as file:
        for chunk in store.saved(image.reference):
            file.write(chunk)
    archive.chmod(0o644)
    return archive


def _why_not(runtime: str) -> str:
    """Return why an ordinary user cannot use ``runtime``, or an empty string. Only crun needs no subordinate ids."""
    try:
        found = find_runtime(runtime)
    except EngineError as error:
        return error.message
    given = os.geteuid() != 0 and _has_subordinate_ids()  # ``ORDINARY_USER``, used by root, has none
    return "" if given or not found.needs_root_id else f"{runtime} needs subordinate ids, and this user has none"
