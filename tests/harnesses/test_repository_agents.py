"""Agents in real repositories: on every driver, the candidate contains their changes, even if they hide them."""

from __future__ import annotations

import grp
import os
import shlex
import shutil
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harnesses import repository
from harnesses.conftest import NEVER_OF_GVISOR, WORKSPACE_VIEW, Bench, with_assets
from securebench.errors import FailureReason, MaterializationError
from securebench.fs.rmtree import remove_tree
from securebench.harnesses.agent_directory import AGENT_TARGET
from securebench.patches.model import FileVersion
from securebench.resources import FileReference
from securebench.sandboxes.base import Limits
from securebench.sandboxes.docker.driver import DockerDriver
from securebench.testing.attacks import trees
from selected import small_trap, variants
from workspaces.users import as_ordinary_user, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.harnesses.base import AgentResult
    from securebench.patches.model import Delta
    from securebench.sandboxes.base import SandboxDriver
    from securebench.tasks import AgentView


@pytest.fixture
def real(driver: SandboxDriver, tmp_path: Path, host_canary: Path) -> Iterator[Bench]:
    """Yield a bench with real sandboxes, whose workspaces are in a hostile git repository.

    On the host, git would run the attacker's program there.
    """
    trees.TRAPS["git_fsmonitor"].build(tmp_path)
    bench = Bench(driver, tmp_path, limits=Limits())
    yield bench
    remove_tree(bench.workspace)


def _run(bench: Bench, view: AgentView, script: str, **config: object) -> AgentResult:
    return bench.produce(view, command=("/bin/sh", "-euc", script), **config)


def _delta(bench: Bench, agent_result: AgentResult) -> Delta:
    assert agent_result.candidate is not None, agent_result.failure
    return bench.store.read_patch(agent_result.candidate)


MAX_SECONDS = 60.0
FIX = f"printf %s {shlex.quote(repository.FIXED.decode())} >src/adder/core.py"


def test_every_kind_of_change(real: Bench, repository_view: AgentView) -> None:
    """The candidate contains each file that was added, changed, removed, replaced or made executable, and each link.

    Caches, bytecode, empty directories and changes of other permissions are left out.
    """
    agent_result = _run(
        real,
        repository_view,
        f"""
        test "$(pwd)" = {repository.WORKDIR}; test -f "$SECUREBENCH_TASK_FILE"; test "$(id -u)" = 0
        {FIX}
        mkdir new; echo new >new/file; ln -s ../elsewhere new/link; ln -s /etc/passwd absolute
        rm README link; rm -r old; echo file >old
        rm data.bin; mkdir data.bin; echo x >data.bin/inside
        chmod a+x .gitignore; chmod 600 tests/test_core.py; touch run.py
        mkdir -p src/adder/__pycache__ .pytest_cache/v; echo x >.pytest_cache/v/x
        echo x >src/adder/__pycache__/core.pyc; echo x >stray.pyc; mkdir empty
        echo changed >{repository.KEPT_CACHE}; echo ignored >it.log
        """,
    )
    assert agent_result.failure is None, agent_result.stderr
    assert dict(_delta(real, agent_result)) == {
        b"src/adder/core.py": FileVersion(repository.FIXED),
        b"new/file": FileVersion(b"new\n"),
        b"new/link": FileVersion(b"../elsewhere", link=True),
        b"absolute": FileVersion(b"/etc/passwd", link=True),
        b"README": None,
        b"link": None,
        b"old": FileVersion(b"file\n"),
        b"old/one.txt": None,
        b"old/deep/two.txt": None,
        b"data.bin": None,
        b"data.bin/inside": FileVersion(b"x\n"),
        b".gitignore": FileVersion(repository.FILES[".gitignore"], executable=True),
        b"it.log": FileVersion(b"ignored\n"),
    }
    assert agent_result.metadata["ignored"] == {"*.pyc": 1, ".git": 1, ".pytest_cache": 1, "__pycache__": 2}


def test_nothing_changed_is_an_empty_candidate(real: Bench, repository_view: AgentView) -> None:
    """C01: an agent that changed no content has failed, even if it touched every file and removed ``.git``."""
    agent_result = _run(real, repository_view, "find . -type f -exec touch {} +; mkdir empty; rm -rf .git")
    assert agent_result.failure is not None
    assert agent_result.failure.reason is FailureReason.CANDIDATE_EMPTY
    assert dict(_delta(real, agent_result)) == {}


def test_a_patch_that_the_agent_writes(real: Bench, repository_view: AgentView) -> None:
    """With an artifact path the candidate contains only the changes in that patch, whatever else the agent did."""
    patch = """--- a/src/adder/core.py
+++ b/src/adder/core.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""
    script = f"umask 077; printf %s {shlex.quote(patch)} >/workspace/fix.patch; rm -rf src; echo x >other"
    agent_result = _run(real, repository_view, script, artifact_path="fix.patch")
    assert agent_result.failure is None, agent_result.failure
    assert dict(_delta(real, agent_result)) == {b"src/adder/core.py": FileVersion(repository.FIXED)}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("true", FailureReason.CANDIDATE_MISSING),
        (": >/workspace/fix.patch", FailureReason.CANDIDATE_EMPTY),
        ("echo no patch >/workspace/fix.patch", FailureReason.PATCH_INVALID),
        (
            r"printf '%s\n' '--- a/README' '+++ b/README' '@@ -1 +1 @@' '-Other.' '+New.' >/workspace/fix.patch",
            FailureReason.PATCH_DOES_NOT_APPLY,
        ),
        ("ln -s /etc/passwd /workspace/fix.patch", FailureReason.UNSAFE_WORKSPACE),
        ("mkfifo /workspace/fix.patch", FailureReason.UNSAFE_WORKSPACE),
        ("truncate -s 1G /workspace/fix.patch", FailureReason.CANDIDATE_TOO_LARGE),
    ],
)
def test_a_patch_that_is_none(real: Bench, repository_view: AgentView, make: str, reason: FailureReason) -> None:
    """C16, H01, H05: the agent has failed if its patch file is missing, empty or too large, or is a link or a FIFO.

    It has also failed if the file is not a patch, or if the patch does not apply.
    """
    if make.startswith("mkfifo") and real.is_gvisor:
        reason = FailureReason.CANDIDATE_MISSING  # gVisor's gofer creates no FIFO on the host
    agent_result = _run(real, repository_view, make, artifact_path="fix.patch")
    assert agent_result.failure is not None
    assert agent_result.failure.reason is reason


REASONS = {
    trees.SEALED: None,
    trees.UNSAFE: FailureReason.UNSAFE_WORKSPACE,
    trees.TOO_LARGE: FailureReason.CANDIDATE_TOO_LARGE,
}


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize("name", variants(trees.TRAPS, small_trap))
def test_hostile_repositories(real: Bench, repository_view: AgentView, name: str) -> None:
    """G, H: each trap in a repository is sealed or is a typed failure, in bounded time and without host tools."""
    trap = trees.TRAPS[name]
    _install(real.root / "agents")
    agent_result = real.produce(
        repository_view, command=("python3", f"{AGENT_TARGET}/trees.py", name), agent_dir=real.root / "agents"
    )
    expected = REASONS[trap.in_repository]
    socketless = isinstance(real.driver, DockerDriver)  # a Docker Engine's archives contain no sockets
    if (name in NEVER_OF_GVISOR and real.is_gvisor) or (name == "unix_socket" and socketless):
        expected = FailureReason.CANDIDATE_EMPTY
    assert (agent_result.failure and agent_result.failure.reason) is expected, (
        agent_result.failure,
        agent_result.stderr,
    )
    assert agent_result.metadata["exit_code"] == 0
    assert agent_result.duration_seconds < MAX_SECONDS


BESIDE = {"link_climbing_out", "locked_directory", "deep_tree", "attributes", "git_hooks", "git_fsmonitor"}
"""Traps that are always tried beside a repository. The others are tried there only with ``--long``."""


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize(
    "name",
    # An agent in a repository may not own its workspace; then it cannot lock the workspace.
    variants([name for name in trees.TRAPS if name != "locked_workspace"], BESIDE.__contains__),
)
def test_hostile_workspaces_beside_a_repository(real: Bench, repository_view: AgentView, name: str) -> None:
    """H: traps in the workspace beside the repository do not affect the candidate, and can be removed."""
    _install(real.root / "agents")
    build = f"{FIX}; cd /workspace; exec python3 {AGENT_TARGET}/trees.py {name}"
    agent_result = _run(real, repository_view, build, agent_dir=real.root / "agents")
    assert agent_result.failure is None, (agent_result.failure, agent_result.stderr)
    assert dict(_delta(real, agent_result)) == {b"src/adder/core.py": FileVersion(repository.FIXED)}
    assert agent_result.duration_seconds < MAX_SECONDS
    remove_tree(real.workspace)


def _install(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    assert trees.__file__ is not None
    shutil.copy(trees.__file__, directory)
    (directory / "trees.py").chmod(0o755)


@pytest.mark.parametrize("name", repository.VARIANTS)
def test_version_control_says_nothing(
    real: Bench, repository_view: AgentView, tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    """C23, C25: the candidate is the same, whatever an agent does to the repository's ``.git``."""
    honest = _run(real, repository_view, FIX)
    repository.make_variant(tmp_path / "variants" / name, name)
    request.getfixturevalue("no_tools")
    script = f"{FIX}; rm -rf .git; if test -e {AGENT_TARGET}/.git; then cp -r {AGENT_TARGET}/.git .git; fi"
    agent_result = _run(real, repository_view, script, agent_dir=tmp_path / "variants" / name)
    assert agent_result.failure is None, agent_result.stderr
    assert honest.candidate is not None
    assert agent_result.candidate == honest.candidate


def test_a_survivor_in_a_repository(real: Bench, repository_view: AgentView) -> None:
    """A05: a daemon that keeps rewriting a file is killed before the file is read, so one of its states is sealed."""
    flip = "while :; do echo good >flipping; echo bad >flipping; done"
    agent_result = _run(real, repository_view, f"{FIX}; setsid sh -c '{flip}' >/dev/null 2>&1 & sleep 0.3")
    delta = _delta(real, agent_result)
    assert delta[b"src/adder/core.py"] == FileVersion(repository.FIXED)
    assert delta[b"flipping"] in {FileVersion(b"good\n"), FileVersion(b"bad\n"), FileVersion(b"")}
    assert agent_result.candidate is not None
    assert real.store.read_patch(real.store.load(agent_result.candidate.kind, agent_result.candidate.digest)) == delta


@pytest.mark.parametrize(
    "how", ["rm -rf {0}", "cd /; mv {0} /srv/away; ln -s away {0}", "cd /; mv {0} /srv/x; echo >{0}"]
)
def test_a_repository_that_was_replaced(real: Bench, repository_view: AgentView, how: str) -> None:
    """H12: if the repository's directory was removed or replaced, the agent has failed, and nothing is sealed."""
    agent_result = _run(real, repository_view, how.format(repository.WORKDIR))
    assert agent_result.failure is not None
    assert agent_result.failure.reason is FailureReason.UNSAFE_WORKSPACE
    assert agent_result.candidate is None


def test_a_failed_agent_is_scored_and_its_work_kept(real: Bench, repository_view: AgentView) -> None:
    """L13, L14: an agent that crashed, or ran out of time, has failed; its changes are sealed as evidence."""
    for script, timeout, reason in (
        (f"{FIX}; exit 3", 30.0, FailureReason.AGENT_EXIT),
        (f"{FIX}; sleep 600", 1.5, FailureReason.AGENT_TIMEOUT),
    ):
        agent_result = _run(real, repository_view, script, timeout_seconds=timeout)
        assert agent_result.failure is not None
        assert agent_result.failure.reason is reason
        assert dict(_delta(real, agent_result)) == {b"src/adder/core.py": FileVersion(repository.FIXED)}


@pytest.mark.every_driver
def test_the_diff_is_one_that_git_applies(real: Bench, repository_view: AgentView, tmp_path: Path) -> None:
    """``git apply`` with the candidate's text makes the same changes as the candidate."""
    agent_result = _run(
        real, repository_view, f"{FIX}; chmod +x README; rm -r old; head -c 300 /dev/zero >zeros; ln -s x y"
    )
    assert agent_result.candidate is not None
    assert agent_result.candidate.text is not None
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    repository.make_repository(checkout)
    (tmp_path / "shown.patch").write_text(agent_result.candidate.text)
    repository.run_git(checkout, "apply", str(tmp_path / "shown.patch"))
    for path, version in _delta(real, agent_result).items():
        at = checkout / path.decode()
        assert at.is_symlink() == bool(version and version.link)
        if version is None:
            assert not at.exists()
        elif version.link:
            assert os.fsencode(at.readlink()) == version.content
        else:
            assert (at.read_bytes(), os.access(at, os.X_OK)) == (version.content, version.executable)


@pytest.mark.every_driver
def test_what_root_leaves_on_docker_is_taken_back(real: Bench, repository_view: AgentView) -> None:
    """H06: a file that the agent left does not belong to the host's root. Docker's driver removes its set-id bits."""
    agent_result = _run(real, repository_view, f"{FIX}; cp /bin/sh /workspace/shell; chmod 4755 /workspace/shell")
    assert agent_result.failure is None
    status = (real.workspace / "shell").stat()
    assert status.st_uid != 0
    if isinstance(real.driver, DockerDriver):
        assert (status.st_uid, status.st_mode & 0o6000) == (real.workspace.stat().st_uid, 0)


@pytest.mark.parametrize("form", ["assets", "task file"])
def test_what_the_task_gives_can_be_changed(real: Bench, repository_view: AgentView, tmp_path: Path, form: str) -> None:
    """The agent can write to the task file and to writable assets, whichever host user its root is mapped to."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/data.csv").write_text("1")
    asset = FileReference("data.csv", "in/data.csv", read_only=False)
    path = "/workspace/in/data.csv" if form == "assets" else "$SECUREBENCH_TASK_FILE"
    agent_result = _run(real, with_assets(repository_view, tmp_path / "pack", asset), f"{FIX}; echo x >>{path}")
    assert agent_result.failure is None, agent_result.stderr


class TestAWorkspaceThatBeginsAsItsImage:
    """Tasks with ``materialize_workdir_from_image``: the workspace starts with the files of an image's directory."""

    @pytest.fixture
    def view(self, repository_view: AgentView) -> AgentView:
        """Return a terminal task whose workspace starts as a copy of the repository."""
        environment = replace(repository_view.environment, materialize_workdir_from_image=True)
        return replace(WORKSPACE_VIEW, environment=environment)

    def test_its_files_are_the_agents(self, real: Bench, view: AgentView) -> None:
        """The agent may change all files that came from the image, and the whole workspace is its candidate."""
        script = (
            "test -f task.json; echo x >>README; rm -r old; test -x run.py; chmod a-x run.py; rm -rf .git; mv src lib"
        )
        agent_result = _run(real, view, script)
        assert agent_result.failure is None, agent_result.stderr
        assert agent_result.candidate is not None
        with tarfile.open(agent_result.candidate.path) as archive:
            members = set(archive.getnames())
        assert {"README", "run.py", "link", "lib/adder/core.py", "task.json"} <= members
        assert not {"old", "src", ".git"} & members
        found = agent_result.metadata["from_image"]
        assert isinstance(found, dict)
        assert found["bytes"] == sum(
            path.stat().st_size
            for path in self._pristine(real, view).rglob("*")
            if path.is_file() and not path.is_symlink()
        )

    def test_each_begins_with_the_image(self, real: Bench, view: AgentView) -> None:
        """F11: an agent's changes to files from the image are not visible to the next agent."""
        first = _run(real, view, "cat README; echo changed >README")
        second = _run(real, view, "cat README")
        assert first.stdout == second.stdout == "Adds.\n"

    def test_an_asset_over_a_file_of_the_image(self, real: Bench, view: AgentView, tmp_path: Path) -> None:
        """A13: an asset with the path of a file from the image is an error of the pack, and no agent runs."""
        (tmp_path / "pack").mkdir()
        (tmp_path / "pack/a").write_text("1")
        colliding = with_assets(view, tmp_path / "pack", FileReference("a", "README"))
        with pytest.raises(MaterializationError) as refused:
            _run(real, colliding, "true")
        assert refused.value.code == "target-exists"

    @staticmethod
    def _pristine(bench: Bench, view: AgentView) -> Path:
        image = bench.driver.resolve_image(view.environment.image or "")
        with bench.driver.image_tree(image) as lease:
            return lease.root / repository.WORKDIR.strip("/")


@pytest.mark.engine
def test_an_ordinary_user_of_the_docker_group_runs_agents_in_repositories(
    monkeypatch: pytest.MonkeyPatch, docker_driver: DockerDriver, repository_in_engine: AgentView, tmp_path: Path
) -> None:
    """H06, H11: an ordinary user owns all that the container's root left in the workspace, and can remove it."""
    trap = "mkdir -p locked/inner sticky; echo x >locked/inner/file; chmod 000 locked/inner locked; chmod 1755 sticky"
    patch = (
        "printf '%s\\n' '--- a/README' '+++ b/README' '@@ -1 +1 @@' '-Adds.' '+New.' >fix.patch; chmod 600 fix.patch"
    )
    script = f"cd /workspace; {trap}; echo x >sticky/x; {patch}"
    expected = {b"README": FileVersion(b"New.\n")}

    def run(bench: Bench) -> None:
        for _ in range(2):  # the second run finds the files that the first one left
            agent_result = _run(bench, repository_in_engine, script, artifact_path="fix.patch")
            assert agent_result.failure is None, (agent_result.failure, agent_result.stderr)
            assert dict(_delta(bench, agent_result)) == expected
        assert {path.stat().st_uid for path in bench.workspace.iterdir()} == {bench.workspace.stat().st_uid}
        remove_tree(bench.workspace)

    run(Bench(docker_driver, tmp_path, limits=Limits()))  # imports all modules, which the user may be unable to read
    with open_directory() as root:
        monkeypatch.setenv("HOME", str(root))

        def run_as_user() -> None:
            driver = DockerDriver(run_id="tests-user")
            run(Bench(driver, root, limits=Limits()))
            driver.close()

        as_ordinary_user(run_as_user, grp.getgrnam("docker").gr_gid)
