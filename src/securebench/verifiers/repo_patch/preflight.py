"""Check that a repository task can be judged at all: its commit, patches and command, without a candidate."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from securebench.errors import MaterializationError
from securebench.pack_paths import is_at_or_below
from securebench.runner_commands import read_command, words
from securebench.sandboxes.base import SandboxSpec
from securebench.verifiers.repo_patch.environment import check_environment
from securebench.verifiers.repo_patch.plan import Overlay, task_patch
from securebench.verifiers.repo_patch.pytest_options import added_options, refused_option
from securebench.verifiers.repo_patch.repository import require_commit
from securebench.workspaces.image_tree import HostTree

if TYPE_CHECKING:
    from securebench.patches.model import FileTree
    from securebench.verifiers.base import VerifyContext
    from securebench.verifiers.repo_patch.request import RepoPatchRequest

_ROOT = (0, 0)


def require_judgeable(request: RepoPatchRequest, context: VerifyContext) -> None:
    """Raise :class:`MaterializationError` for a task that no candidate could pass.

    In such a task, the repository is missing or at another commit, a patch does not apply, a pytest option prevents
    tests from running, or the image lacks a program or module that the test command needs.
    """
    image = context.driver.resolve_image(request.image)
    with (
        context.driver.image_tree(image) as lease,
        HostTree.of_image(lease.root, request.repository) as pristine,
    ):
        require_commit(pristine, request.base_commit)
        setup = Overlay(pristine, task_patch(request.setup_patch, pristine, "setup_patch"))
        tests = task_patch(request.test_patch, setup, "test_patch")
        _require_options(request, Overlay(setup, tests))
    program, modules, python = _starts(request)
    spec = SandboxSpec(
        image=image,
        limits=context.limits,
        environment=check_environment(image.environment, request.repository),
        workdir=request.repository,
        user=_ROOT,
        labels=context.labels,
    )
    if missing := context.probe.missing_programs(context.driver, spec, program):
        raise _unusable(f"the image has no program {missing[0]}")
    if missing := context.probe.missing_modules(context.driver, spec, modules, python):
        raise _unusable(f"the image has no Python module {missing[0]}")


def _require_options(request: RepoPatchRequest, tree: FileTree) -> None:
    """Raise :class:`MaterializationError` (``tests-not-run``) for pytest options with which no test would run."""
    command = read_command(request.command)
    if command is None or command.runner != "pytest":
        return
    here = PurePosixPath(request.workdir).relative_to(request.repository).as_posix()
    path, added = added_options(command.arguments, tree, [here, "."])
    for place, arguments in (("the command", command.arguments), (path, added)):
        if option := refused_option(arguments):
            raise MaterializationError(
                f"the task's tests would not run: {place} has {option}",
                code="tests-not-run",
                hint=f"remove {option} from {place}"
                + ("" if place == "the command" else ", or add '-o addopts=' to the command"),
            )


def _starts(request: RepoPatchRequest) -> tuple[list[str], list[str], list[str]]:
    """Return what the command needs: programs, Python modules, and the argv of the Python that must find the modules.

    A program inside the repository is not included because the candidate's change may create it.
    """
    found = words(request.command)
    program = found[0] if found else ""
    own = "/" in program and (not program.startswith("/") or is_at_or_below(program, request.repository))
    if not program or own:
        return [], [], []
    return [program], ["pytest"] if found[1:3] == ["-m", "pytest"] else [], [program, "-I"]


def _unusable(problem: str) -> MaterializationError:
    return MaterializationError(
        f"the task's tests cannot start: {problem}",
        code="checker-missing",
        hint="install it in the image, or use another test command",
    )
