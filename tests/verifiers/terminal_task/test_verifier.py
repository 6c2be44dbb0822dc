"""The sandbox that the ``terminal_task`` verifier requests, and its verdict for each way in which a check can end."""

from __future__ import annotations

import io
import json
import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from bounds import processor_seconds
from run_fakes import Sink
from securebench.candidates.store import CandidateStore
from securebench.dangerous_commands import VerificationPolicy
from securebench.errors import FailurePhase, FailureReason, ImageError, InfrastructureError
from securebench.harnesses.pipeline import WorkPlace
from securebench.sandboxes.base import BASE_ENVIRONMENT, ROOT_USER, workspace_user
from securebench.tasks import DEFAULT_IMAGE, WORKSPACE_TARGET, CandidateKind, Environment
from securebench.testing.judging.workspace import CHECK, Tree, TreeLink, WorkspaceJob, sealed, state_of, write_tree
from securebench.testing.scripted_sandbox import ScriptedDriver
from securebench.verifiers.terminal_task.environment import checker_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.resources import JsonValue
    from securebench.sandboxes.base import Command, SandboxSpec
    from securebench.testing.scripted_sandbox import ProgramContext, ScriptedProgram

SECRET = "a-hidden-check-of-the-task"


def _driver(program: ScriptedProgram | None = None, name: str = "python3") -> ScriptedDriver:
    driver = ScriptedDriver()
    driver.program(name)(program or (lambda _: 0))
    return driver


def _ran(driver: ScriptedDriver) -> tuple[SandboxSpec, Command]:
    (run,) = driver.commands
    return run


def test_exit_code_zero_is_a_pass(tmp_path: Path) -> None:
    """A workspace passes if the checker exits with 0, and the metadata describe the check."""
    result = WorkspaceJob().judge(_driver(), tmp_path, {"out.txt": "done"})
    assert result.passed
    assert (result.score, result.message) == (1.0, "")
    details = dict(result.metadata)
    assert details.pop("duration_seconds") > 0  # type: ignore[operator]
    assert str(details.pop("image_id")).startswith("sha256:")
    assert details == {
        "verifier": "terminal_task",
        "version": "2",
        "phase": "verdict",
        "reason": None,
        "timeout_seconds": 300.0,
        "exit_code": 0,
    }


@pytest.mark.parametrize("code", [1, 2, 42, 126, 127, 137, 255])
def test_any_other_exit_code_is_a_failure(tmp_path: Path, code: int) -> None:
    """A workspace fails if the checker exits with another code than 0. Metadata and message contain the code."""
    result = WorkspaceJob(files={"check.py": ""}).judge(_driver(lambda _: code), tmp_path, {})
    assert result.reason is FailureReason.CHECK_FAILED
    assert result.metadata["exit_code"] == code
    assert str(code) in result.message


def test_what_the_checker_prints_decides_nothing_and_is_not_recorded(tmp_path: Path) -> None:
    """A10, F13: printed markers of success do not change the verdict, and the checker's output is not in the result."""

    def shouts(context: ProgramContext) -> int:
        context.stdout.write(f"PASSED\nok 1\n{SECRET}\n1\n")
        context.stderr.write(f"{SECRET}\n")
        return 3

    result = WorkspaceJob().judge(_driver(shouts), tmp_path, {})
    assert result.reason is FailureReason.CHECK_FAILED
    assert (result.stdout, result.stderr) == ("", "")
    assert SECRET not in repr(result)


def test_the_sandbox_is_hardened_and_its_environment_fixed(tmp_path: Path) -> None:
    """A06, A07, D01: the sandbox has no network, no capability, a read-only root and none of the image's variables."""
    driver = _driver()
    driver.add_image("task:1", environment={"LD_PRELOAD": "/evil.so", "PATH": "/evil", "BASH_ENV": "/evil.sh"})
    job = WorkspaceJob(environment=Environment(image="task:1", workdir="/app"))
    assert job.judge(driver, tmp_path, {}).passed
    spec, command = _ran(driver)
    assert spec.image.reference == "task:1"
    assert (spec.network, spec.cap_add, spec.read_only, spec.user) == ("none", (), True, workspace_user())
    assert dict(spec.environment) == checker_environment("/app")
    assert not spec.inherit_image_environment
    assert not command.environment
    assert not spec.environment["HOME"].startswith(spec.workdir)
    assert (spec.workdir, command.workdir) == ("/app", None)


def test_nothing_of_the_candidate_lies_on_the_path(tmp_path: Path) -> None:
    """D01: if a task's working directory is an entry of PATH, the checker's PATH does not contain it."""
    driver = _driver()
    WorkspaceJob(environment=Environment(workdir="/usr/local/bin")).judge(driver, tmp_path, {})
    entries = _ran(driver)[0].environment["PATH"].split(":")
    assert "/usr/local/bin" not in entries
    assert entries == [entry for entry in BASE_ENVIRONMENT["PATH"].split(":") if entry != "/usr/local/bin"]


def test_a_string_is_run_by_a_fixed_shell_and_an_array_as_it_is(tmp_path: Path) -> None:
    """D11: a command line is passed to ``/bin/sh -c`` as one argument, and an array is run without a shell."""
    line = "python3 check.py; touch '$(x)'"
    driver = _driver(name="sh")
    WorkspaceJob(checker={"command": line}).judge(driver, tmp_path / "line", {})
    assert _ran(driver)[1].argv == ("/bin/sh", "-c", line)
    driver = _driver()
    WorkspaceJob(checker={"command": ["python3", "-c", "$(x)"]}).judge(driver, tmp_path / "argv", {})
    assert _ran(driver)[1].argv == ("python3", "-c", "$(x)")


@pytest.mark.parametrize(
    ("checker", "environment", "expected"),
    [
        ({}, {}, (WORKSPACE_TARGET, 300.0)),
        ({}, {"timeout_seconds": 7.0}, (WORKSPACE_TARGET, 7.0)),
        ({"timeout_seconds": 5}, {"timeout_seconds": 7.0}, (WORKSPACE_TARGET, 5)),
        ({}, {"workdir": "/app"}, ("/app", 300.0)),
        ({"workdir": "/srv"}, {"workdir": "/app"}, ("/srv", 300.0)),
    ],
)
def test_workdir_and_time_limit_are_the_checkers_else_the_tasks(
    tmp_path: Path, checker: Mapping[str, JsonValue], environment: Mapping[str, str | float], expected: object
) -> None:
    """The checker's own working directory and time limit take precedence over the environment's and the default."""
    driver = _driver()
    job = WorkspaceJob(checker={"command": ["python3"], **checker}, environment=Environment(**environment))  # type: ignore[arg-type]
    job.judge(driver, tmp_path, {})
    spec, command = _ran(driver)
    assert (spec.workdir, command.timeout_seconds) == expected


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({}, None),
        ({"sub/dir/x": ""}, None),
        ({"there/x": "", "sub": TreeLink("there")}, None),
        ({"sub/dir": ""}, FailureReason.NO_VERDICT),
        ({"sub": ""}, FailureReason.NO_VERDICT),
        ({"sub": TreeLink("nowhere")}, None),
        ({"sub": TreeLink("sub")}, FailureReason.NO_VERDICT),
        ({"sub/dir": TreeLink("dir")}, FailureReason.NO_VERDICT),
        ({"there/x": "", "sub": TreeLink("/app/there")}, None),
        ({"sub": TreeLink("/usr")}, FailureReason.NO_VERDICT),
        ({"sub": TreeLink("../../usr")}, FailureReason.NO_VERDICT),
        ({"sub/dir": TreeLink("/")}, FailureReason.NO_VERDICT),
        ({"sub": TreeLink("n" * 300)}, FailureReason.NO_VERDICT),
        ({"sub": TreeLink("d/" * 1500)}, FailureReason.NO_VERDICT),
        ({"sub": TreeLink("/proc/self/cwd")}, FailureReason.UNSAFE_WORKSPACE),
    ],
    ids=str,
)
def test_what_stands_where_the_checker_starts_is_the_candidates_doing(
    tmp_path: Path, tree: Tree, reason: FailureReason | None
) -> None:
    """If a file or link of the candidate keeps the checker from starting, the candidate fails. No error is raised."""
    driver = _driver()
    job = WorkspaceJob(
        checker={"command": ["python3"], "workdir": "/app/sub/dir"}, environment=Environment(workdir="/app")
    )
    assert job.judge(driver, tmp_path, tree).reason is reason
    assert bool(driver.commands) is (reason is None)


def test_a_workspace_lies_where_the_agent_found_it(tmp_path: Path) -> None:
    """The default path of the agent's workspace is :data:`WORKSPACE_TARGET`, which the verifier uses as well."""
    driver = _driver()
    assert WorkspaceJob(checker={"command": ["python3"]}).judge(driver, tmp_path, {"out.txt": ""}).passed
    spec = _ran(driver)[0]
    assert (spec.mounts[0].target, spec.workdir) == (WORKSPACE_TARGET, WORKSPACE_TARGET)
    assert (
        WorkPlace(image=_driver().resolve_image(DEFAULT_IMAGE), user=ROOT_USER).workspace
        == WORKSPACE_TARGET
        == "/workspace"
    )


def test_a_checker_may_have_an_image_of_its_own(tmp_path: Path) -> None:
    """The checker runs in ``checker.image`` and not in the task's image."""
    driver = ScriptedDriver((DEFAULT_IMAGE, "checker:1"))
    driver.program("python3")(lambda _: 0)
    assert WorkspaceJob(checker={"command": ["python3"], "image": "checker:1"}).judge(driver, tmp_path, {}).passed
    assert _ran(driver)[0].image.reference == "checker:1"


def test_the_checker_sees_the_sealed_workspace_and_its_inputs(tmp_path: Path) -> None:
    """The checker gets a writable copy of the workspace, with modes and links. Inputs are read-only mounts over it."""
    tree: Tree = {"bin/run": "#!/bin/sh\n", "data.txt": "left", "link": TreeLink("data.txt"), "empty": None, "-rf": "x"}
    seen: dict[str, bytes] = {}

    def look(context: ProgramContext) -> int:
        workspace, inputs = (mount.source for mount in context.spec.mounts)
        seen.update(state_of(workspace))
        assert os.access(workspace / "bin/run", os.X_OK)
        assert not os.access(workspace / "data.txt", os.X_OK) or not (workspace / "data.txt").stat().st_mode & 0o111
        assert (workspace / "link").is_symlink()
        assert (workspace / "empty").is_dir()
        assert sorted(state_of(inputs)) == [
            "evaluation_inputs/check.py",
            "evaluation_inputs/checker.json",
            "public/instructions.json",
        ]
        assert not inputs.is_relative_to(workspace)
        return 0

    job = WorkspaceJob(
        files={"check.py": SECRET}, hidden={"expected_note": SECRET}, environment=Environment(workdir="/app")
    )
    driver = _driver(look)
    assert job.judge(driver, tmp_path, tree).passed
    assert seen == {"bin/run": b"#!/bin/sh\n", "data.txt": b"left", "link": b"left", "-rf": b"x"}
    first, second = _ran(driver)[0].mounts
    assert (first.target, first.read_only) == ("/app", False)
    assert (second.target, second.read_only) == ("/app/securebench", True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs checkers as another user")
def test_the_workspace_is_the_sandbox_users_and_the_inputs_are_not(tmp_path: Path) -> None:
    """The workspace belongs to the user that the checker runs as, and the evaluation inputs belong to root."""
    owners: list[tuple[int, int]] = []

    def look(context: ProgramContext) -> int:
        workspace, inputs = (mount.source for mount in context.spec.mounts)
        paths = [workspace, workspace / "a", workspace / "a/b", workspace / "link"]
        owners.extend((path.lstat().st_uid, path.lstat().st_gid) for path in paths)
        assert {path.lstat().st_uid for path in (inputs, *inputs.rglob("*"))} == {0}
        return 0

    assert (
        WorkspaceJob(files={"check.py": ""}).judge(_driver(look), tmp_path, {"a/b": "", "link": TreeLink("a")}).passed
    )
    assert set(owners) == {workspace_user()}


def test_expected_state_is_in_no_sandbox(tmp_path: Path) -> None:
    """The expected state is not in the sandbox's files, environment or arguments: it is compared on the host."""

    def look(context: ProgramContext) -> int:
        for mount in context.spec.mounts:
            assert SECRET.encode() not in b"".join(state_of(mount.source).values())
        assert SECRET not in repr((context.environment, context.argv, context.spec))
        context.stdout.write(json.dumps({"secret": SECRET}))
        return 0

    assert WorkspaceJob(hidden={"expected_state": {"secret": SECRET}}).judge(_driver(look), tmp_path, {}).passed


@pytest.mark.parametrize(
    ("printed", "code", "reason"),
    [
        ('{"n": 1}', 0, None),
        ('{"n": true}', 0, FailureReason.STATE_MISMATCH),
        ('{"n": 2}', 0, FailureReason.STATE_MISMATCH),
        ("[]", 0, FailureReason.STATE_MISMATCH),
        ("PASSED", 0, FailureReason.NO_VERDICT),
        ('{"n": NaN}', 0, FailureReason.NO_VERDICT),
        ("", 0, FailureReason.NO_VERDICT),
        ('{"n": 1}', 1, FailureReason.CHECK_FAILED),
    ],
)
def test_a_printed_state_is_compared(tmp_path: Path, printed: str, code: int, reason: FailureReason | None) -> None:
    """If a task has an expected state, exit code 0 is not enough: the last line of output must be that state."""

    def check(context: ProgramContext) -> int:
        context.stdout.write(printed)
        return code

    result = WorkspaceJob(hidden={"expected_state": {"n": 1}}).judge(_driver(check), tmp_path, {})
    assert result.reason is reason
    assert printed not in repr(result) or not printed


def test_null_is_a_state(tmp_path: Path) -> None:
    """If the expected state is null, the checker must print a state."""
    result = WorkspaceJob(hidden={"expected_state": None}).judge(_driver(), tmp_path, {})
    assert result.reason is FailureReason.NO_VERDICT


def test_a_check_that_takes_too_long_is_a_timeout(tmp_path: Path) -> None:
    """A check that is still running at its time limit fails as a timeout."""

    def hang(context: ProgramContext) -> int:
        context.sleep(60)
        return 0

    job = WorkspaceJob(checker={"command": ["python3"], "timeout_seconds": 0.2})
    result = job.judge(_driver(hang), tmp_path, {})
    assert result.reason is FailureReason.CANDIDATE_TIMEOUT
    assert "0.2" in result.message


def test_a_check_that_floods_is_ended(tmp_path: Path) -> None:
    """A18: a check that exceeds the output limit of its sandbox fails, even if it would exit with 0."""

    def flood(context: ProgramContext) -> int:
        for _ in range(64):
            context.stdout.write(b"x" * 65536)
        return 0

    assert WorkspaceJob().judge(_driver(flood), tmp_path, {}).reason is FailureReason.CANDIDATE_OUTPUT_LIMIT


_PLACES: dict[str, Tree] = {
    "a checker of its own": {CHECK: "raise SystemExit(0)"},
    "an empty directory": {"securebench/evaluation_inputs": None},
    "a file in the directory's place": {"securebench/evaluation_inputs": "x"},
    "a link in the directory's place": {"here/check.py": "", "securebench/evaluation_inputs": TreeLink("../here")},
    "a file above": {"securebench": "x"},
    "a link above": {"here/evaluation_inputs/check.py": "", "securebench": TreeLink("here")},
    "another case": {"SecureBench/EVALUATION_INPUTS/check.py": ""},
    "another case above": {"SECUREBENCH": "x"},
    "another spelling": {"\N{LATIN SMALL LETTER LONG S}ecurebench/evaluation_inputs/x": ""},
    "full width": {"\N{FULLWIDTH LATIN SMALL LETTER S}ecurebench/evaluation_inputs": ""},
    "the evaluator's place": {"securebench/evaluator/expected_state.json": "{}"},
}


@pytest.mark.parametrize("name", _PLACES)
def test_a_candidate_where_evaluation_inputs_go_is_tampering(tmp_path: Path, name: str) -> None:
    """A13: a candidate with a path where evaluation inputs go, in any case or spelling, fails before the check."""
    driver = _driver()
    result = WorkspaceJob(files={"check.py": ""}).judge(driver, tmp_path, {"out.txt": "done", **_PLACES[name]})
    assert result.reason is FailureReason.TAMPERED
    assert result.metadata["phase"] == "workspace"
    assert not driver.commands


_INPUTS = "securebench/evaluation_inputs"
_LINKS: dict[str, Tree] = {
    "straight": {"out.txt": TreeLink(CHECK)},
    "to the directory": {"out": TreeLink(_INPUTS)},
    "absolute": {"out.txt": TreeLink(f"/workspace/{CHECK}")},
    "odd spelling": {"out.txt": TreeLink(f"/./workspace//../workspace/./{CHECK}")},
    "through a link": {
        "a": TreeLink("securebench"),
        "b": TreeLink("a/evaluation_inputs"),
        "out.txt": TreeLink("b/check.py"),
    },
    "through the root": {"sub/top": TreeLink(".."), "out.txt": TreeLink(f"sub/top/{CHECK}")},
    "to what is missing": {"out.txt": TreeLink(f"{_INPUTS}/nothing")},
    "to the evaluator's place": {"out.txt": TreeLink("securebench/evaluator")},
    "another case": {"out.txt": TreeLink("SecureBench/Evaluation_Inputs/check.py")},
}


@pytest.mark.parametrize("name", _LINKS)
def test_a_link_to_evaluation_inputs_is_tampering(tmp_path: Path, name: str) -> None:
    """A13, C12: a link to evaluation inputs is tampering, because a checker could compare an input with itself."""
    driver = _driver()
    result = WorkspaceJob(files={"check.py": ""}).judge(driver, tmp_path, _LINKS[name])
    assert result.reason is FailureReason.TAMPERED
    assert not driver.commands


_UNKNOWN = (
    f"/proc/self/cwd/{CHECK}",
    f"/proc/1/root/workspace/{CHECK}",
    f"/proc/self/task/1/cwd/{CHECK}",
    f"/dev/fd/../cwd/{CHECK}",
    f"/proc/net/../cwd/{CHECK}",
    f"/proc/thread-self/../../cwd/{CHECK}",
    f"/dev/fd/../root/workspace/{CHECK}",
    f"/proc/net/../root/workspace/{CHECK}",
    f"/dev/stdin/../../cwd/{CHECK}",
    "/proc/self/fd/3",
    "/proc/self/fd/0",
    "/proc/self/exe",
    "/proc/self/map_files/0-1",
    "/proc",
    "../proc/self/fd/3",
    "/dev/fd/3",
    "/dev/stdin",
    "/dev",
    "/dev/shm/x",
    "/dev/pts/../fd/3",
    "/dev/stdout/x",
    "/dev/null/..",
    "/bin/../../proc/self/fd/3",
    f"/bin/../workspace/{CHECK}",
    f"/sys/kernel/../../workspace/{CHECK}",
    f"/code/{CHECK}",
    "/code/a/Evaluation_Inputs/check.py",
    "/host/proc/self/fd/3",
    "/host/dev/fd/3",
)


@pytest.mark.parametrize("target", _UNKNOWN)
@pytest.mark.parametrize("way", ["straight", "in two parts", "chain"])
def test_a_link_that_may_lead_to_evaluation_inputs_is_refused(tmp_path: Path, target: str, way: str) -> None:
    """A13: a link is refused if it may lead to an evaluation input or an open file by way of another link.

    The other link may be one of the kernel, such as ``/proc/self/cwd``, or one of the image.
    """
    first, _, rest = target.rpartition("/")
    tree: dict[str, Tree] = {
        "straight": {"out.txt": TreeLink(target)},
        "in two parts": {"a": TreeLink(first or "/"), "out.txt": TreeLink(f"a/{rest}")},
        "chain": {"l38": TreeLink(target), **{f"l{number}": TreeLink(f"l{number + 1}") for number in range(38)}},
    }
    driver = _driver()
    result = WorkspaceJob(files={"check.py": ""}).judge(driver, tmp_path, tree[way])
    assert result.reason is FailureReason.UNSAFE_WORKSPACE
    assert not driver.commands


def test_parts_of_a_way_to_evaluation_inputs_are_refused(tmp_path: Path) -> None:
    """A13: links that may lead to evaluation inputs only in combination are refused, too."""
    for number, tree in enumerate(
        (
            {"q": TreeLink("/dev/fd/.."), "out.txt": TreeLink(f"q/cwd/{CHECK}")},
            {"d/a": TreeLink("/dev/fd"), "b": TreeLink("d/a/../cwd"), "out.txt": TreeLink(f"b/{CHECK}")},
            {"bin": TreeLink("/bin"), "out.txt": TreeLink(f"bin/../../workspace/{CHECK}")},
            {"top": TreeLink("/"), "out.txt": TreeLink("top/proc/self/fd/3")},
            {"top": TreeLink(".."), "out.txt": TreeLink("top/dev/fd/3")},
            {"missing": TreeLink("/nowhere"), "out.txt": TreeLink("missing/../x")},
        )
    ):
        result = WorkspaceJob(files={"check.py": ""}).judge(_driver(), tmp_path / str(number), dict(tree))
        assert result.reason is FailureReason.UNSAFE_WORKSPACE, tree


@pytest.mark.parametrize(
    "target",
    [
        "/usr/bin/python3", "lib", "/opt/venv/bin/tool", "../..", "/", "../../../../etc/passwd", "sub/../sub/x",
        "missing/../x", "/workspace/../etc/hosts", "/workspace/sub/../data", "../workspace/data", "/sys/kernel",
        "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/stdout",
        "/dev/stderr", "../dev/null", "/usr/share/dev/x", "/opt/securebench/x", "loop", "/opt/procedures",
    ],
)  # fmt: skip
def test_usual_links_are_kept(tmp_path: Path, target: str) -> None:
    """A workspace with links to files of the image or the workspace, or to plain devices, is accepted."""
    tree: Tree = {"sub/x": "", "data": "", "link": TreeLink(target), "loop": TreeLink("loop")}
    assert WorkspaceJob(files={"check.py": ""}).judge(_driver(), tmp_path, tree).passed


def test_links_that_cannot_be_followed_in_bounded_time_fail(tmp_path: Path) -> None:
    """H08: a workspace with 3,000 links of over 1,000 components is refused within 30 seconds of processor time."""
    tree: Tree = {f"l{number}": TreeLink("a/../" * 600 + f"l{number + 1}") for number in range(3000)}
    with processor_seconds(30):
        assert WorkspaceJob().judge(_driver(), tmp_path, tree).reason is FailureReason.UNSAFE_WORKSPACE


def test_modes_and_links_reach_the_checker(tmp_path: Path) -> None:
    """The checker sees modes and links as the agent left them, except set-id bits, which are removed."""
    left = tmp_path / "left"
    links = {
        "venv": "/opt/venv",
        "python": "/usr/bin/python3",
        "up": "../..",
        "no": "where",
        "loop": "loop",
        "a\nb": "/",
    }
    write_tree(left, {"ssl/key": "secret", "ssl/closed/x": "", "set-id": "#!/bin/sh\n"})
    for name, target in links.items():
        (left / name).symlink_to(target)
    modes = {"ssl/key": 0o600, "ssl/closed": 0o500, "ssl": 0o1710, "set-id": 0o755}
    for name, mode in modes.items():
        (left / name).chmod(mode | (0o6000 if name == "set-id" else 0))
    store = CandidateStore(tmp_path / "candidates")
    candidate = store.seal_tree(CandidateKind.WORKSPACE, left)
    seen: dict[str, object] = {}

    def look(context: ProgramContext) -> int:
        workspace = context.spec.mounts[0].source
        seen.update({name: (workspace / name).stat().st_mode & 0o7777 for name in modes})
        seen.update({name: str((workspace / name).readlink()) for name in links})
        return 0

    assert WorkspaceJob().judge_sealed(_driver(look), tmp_path, candidate).passed
    assert seen == {**modes, **links}


def test_an_archive_of_an_earlier_version_can_still_be_judged(tmp_path: Path) -> None:
    """A workspace that an earlier version sealed, with only the modes 644 and 755, is judged like any other."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, mode in (("run", 0o755), ("data", 0o644)):
            member = tarfile.TarInfo(name)
            member.mode = mode
            archive.addfile(member)
    candidate = CandidateStore(tmp_path / "store").seal_bytes(CandidateKind.WORKSPACE, data.getvalue(), None)
    assert WorkspaceJob().judge_sealed(_driver(), tmp_path, candidate).passed


def test_what_the_agent_was_given_is_no_tampering(tmp_path: Path) -> None:
    """An agent may change or remove task.json and public values. The checker sees the original public values."""
    seen: list[bytes] = []

    def look(context: ProgramContext) -> int:
        seen.append((context.spec.mounts[1].source / "public/instructions.json").read_bytes())
        return 0

    edited: Tree = {"task.json": "{}", "securebench/public/instructions.json": "edited", "securebenchmark": "x"}
    assert WorkspaceJob().judge(_driver(look), tmp_path / "edited", edited).passed
    assert WorkspaceJob().judge(_driver(look), tmp_path / "gone", {}).passed
    assert seen == [b'"Do it."\n'] * 2


def test_read_only_assets_are_the_tasks_own(tmp_path: Path) -> None:
    """A12, D10: the task's read-only asset is mounted, read-only, over the candidate's copy of it."""
    driver = _driver()
    job = WorkspaceJob(public={"data/in.csv": "1,2\n"}, environment=Environment(workdir="/app"))
    assert job.judge(driver, tmp_path, {"data/in.csv": "1,2\n", "data/mine": ""}).passed
    mount = _ran(driver)[0].mounts[2]
    assert (mount.target, mount.read_only, mount.source.read_text()) == ("/app/data/in.csv", True, "1,2\n")
    assert "workspace" not in mount.source.parts


@pytest.mark.parametrize(
    "left",
    [{"data/in.csv": "9,9\n"}, {"data": None}, {}, {"x": "1,2\n", "data/in.csv": TreeLink("../x")}],
    ids=["edited", "removed", "with its directory", "a link"],
)
def test_a_replaced_read_only_asset_is_tampering(tmp_path: Path, left: Tree) -> None:
    """D10: a candidate that changed or removed a read-only asset fails before the checker runs."""
    driver = _driver()
    result = WorkspaceJob(public={"data/in.csv": "1,2\n"}).judge(driver, tmp_path, left)
    assert result.reason is FailureReason.TAMPERED
    assert "data/in.csv" in result.message
    assert not driver.commands


def test_inputs_that_changed_while_the_checker_ran_are_tampering(tmp_path: Path) -> None:
    """A13: inputs are hashed again after the check. A candidate fails if they changed, even with exit code 0."""

    def rewrite(context: ProgramContext) -> int:
        check = context.spec.mounts[1].source / "evaluation_inputs/check.py"
        check.chmod(0o644)
        check.write_text("pass")
        return 0

    result = WorkspaceJob(files={"check.py": "original"}).judge(_driver(rewrite), tmp_path, {})
    assert result.reason is FailureReason.TAMPERED


@pytest.mark.parametrize(
    "policy",
    [VerificationPolicy(), VerificationPolicy(disallow_dangerous_commands=False, deny_commands=("chroot",))],
    ids=["by default", "by the deny list"],
)
def test_a_denied_command_fails_before_the_checker_runs(tmp_path: Path, policy: VerificationPolicy) -> None:
    """If the policy denies a needed command, the candidate fails with a specific reason, and an event is emitted."""
    sink, driver = Sink(), _driver()
    job = WorkspaceJob(evals={"needed_commands": ["chroot"]}, policy=policy, sinks=[sink])
    result = job.judge(driver, tmp_path, {})
    assert (result.reason, result.phase) == (FailureReason.DANGEROUS_COMMAND_DENIED, FailurePhase.POLICY)
    assert result.metadata["phase"] == "policy"
    assert "chroot" in result.message
    assert not driver.commands
    assert not list((tmp_path / "scratch").iterdir())
    assert [(event.kind.value, event.data) for event in sink.events] == [
        ("verifier_policy_denied", {"commands": ["chroot"]})
    ]


def test_an_allowed_command_gives_its_capability_and_nothing_else(tmp_path: Path) -> None:
    """A22: if a row needs chroot and the tester allows it, the checker runs as root with only ``SYS_CHROOT``."""
    modes: list[int] = []

    def look(context: ProgramContext) -> int:
        workspace = context.spec.mounts[0].source
        modes.extend(path.stat().st_mode & 0o777 for path in (workspace, workspace / "a", workspace / "a/b"))
        return 0

    driver = _driver(look)
    job = WorkspaceJob(
        evals={"needed_commands": ["chroot"]}, policy=VerificationPolicy(disallow_dangerous_commands=False)
    )
    result = job.judge(driver, tmp_path, {"a/b": "", "run": "#!/bin/sh\n"})
    assert result.passed
    assert result.metadata["capabilities"] == ["SYS_CHROOT"]
    spec = _ran(driver)[0]
    assert (spec.cap_add, spec.cap_drop, spec.user) == (("SYS_CHROOT",), ("ALL",), (0, 0))
    assert modes == [0o777, 0o777, 0o666]


@pytest.mark.parametrize("checker", [None, "python3", {}, {"command": []}, {"command": ""}])
def test_a_task_without_a_checker_is_never_passed(tmp_path: Path, checker: JsonValue) -> None:
    """A17: a task without a valid checker command never passes, and nothing is run."""
    driver = _driver()
    assert WorkspaceJob(checker=checker).judge(driver, tmp_path, {}).reason is FailureReason.NO_VERDICT
    assert not driver.commands


@pytest.mark.parametrize("point", ["create", "open", "wait"])
def test_trouble_of_the_machine_is_no_verdict(tmp_path: Path, point: str) -> None:
    """An error of the sandbox engine is raised and is not a verdict."""
    driver = _driver()
    driver.fail_next(InfrastructureError("gone"), on=point)
    with pytest.raises(InfrastructureError, match="gone"):
        WorkspaceJob().judge(driver, tmp_path, {})


def test_a_missing_checker_image_is_no_verdict(tmp_path: Path) -> None:
    """A missing checker image raises :class:`ImageError` and is not a verdict."""
    with pytest.raises(ImageError):
        WorkspaceJob(checker={"command": ["python3"], "image": "missing:1"}).judge(_driver(), tmp_path, {})


def test_a_sealed_workspace_that_is_no_archive_is_no_verdict(tmp_path: Path) -> None:
    """A15: a damaged file of a sealed workspace is an infrastructure error and not a verdict."""
    driver, candidate = _driver(), sealed(tmp_path, {"a": "b"})
    candidate.path.chmod(0o644)
    candidate.path.write_bytes(b"x" * 1024)
    with pytest.raises(InfrastructureError):
        WorkspaceJob().judge_sealed(driver, tmp_path, candidate)
    assert not driver.commands
