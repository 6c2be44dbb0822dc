"""Check that a repository task can be judged at all: its commit, patches and command, without a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import MaterializationError
from securebench.pack_paths import is_at_or_below
from securebench.runner_commands import interpreter_flags, read_command, words
from securebench.sandboxes.base import SandboxSpec
from securebench.verifiers.repo_patch.environment import check_environment
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.plan import Overlay, task_patch
from securebench.verifiers.repo_patch.pytest_options import added_options, refused_option
from securebench.verifiers.repo_patch.repository import require_commit
from securebench.verifiers.repo_patch.selection import configuration_directories, selects_method
from securebench.workspaces.image_tree import HostTree

if TYPE_CHECKING:
    from securebench.patches.model import FileTree
    from securebench.verifiers.base import VerifyContext
    from securebench.verifiers.repo_patch.request import RepoPatchRequest

_ROOT = (0, 0)


def require_judgeable(request: RepoPatchRequest, context: VerifyContext) -> None:
    """Raise :class:`MaterializationError` for a task that no candidate could pass.

    In such a task, the repository is missing or at another commit, a patch does not apply, a pytest option prevents
    tests from running or being reported, the command can only be judged by its exit code but the task requires more, or
    the image lacks a program or module that the test command needs.
    """
    image = context.driver.resolve_image(request.image)
    with (
        context.driver.image_tree(image) as lease,
        HostTree.of_image(lease.root, request.repository) as pristine,
    ):
        require_commit(pristine, request.base_commit)
        setup = Overlay(pristine, task_patch(request.setup_patch, pristine, "setup_patch"))
        tests = task_patch(request.test_patch, setup, "test_patch")
        judged = Overlay(setup, tests)
        _require_options(request, judged)
        _require_evidence(request, judged)
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
    """Raise :class:`MaterializationError` (``tests-not-run``) for pytest options that keep tests from being judged."""
    command = read_command(request.command)
    if command is None or command.runner != "pytest":
        return
    path, added = added_options(command.arguments, tree, configuration_directories(request))
    for place, arguments in (("the command", command.arguments), (path, added)):
        if option := refused_option(arguments):
            raise MaterializationError(
                f"not every test of the task would run and be reported: {place} has {option}",
                code="tests-not-run",
                hint=f"remove {option} from {place}"
                + ("" if place == "the command" else ", or add '-o addopts=' to the command"),
            )


def _require_evidence(request: RepoPatchRequest, tree: FileTree) -> None:
    """Refuse the command of a ``test_by_test`` task if it names a test method, because its exit code would then decide.

    Validation of the pack does not find every such command: without the repository's files, a class with a lower-case
    name looks like a module. Raises :class:`MaterializationError` (``command-not-test-by-test``).
    """
    adapter = recognise(request.command)
    if request.test_by_test and adapter is not None and selects_method(adapter, request, tree):
        raise MaterializationError(
            "tests.require is 'test_by_test', but the command names a test method, so its exit code decides",
            code="command-not-test-by-test",
            hint="name the method's class or module in the command, and the method in tests.expect",
        )


def _starts(request: RepoPatchRequest) -> tuple[list[str], list[str], list[str]]:
    """Return what the command needs: programs, Python modules, and the argv of the Python that must find the modules.

    A program inside the repository is left out, because the candidate's change may create it.
    """
    found = words(request.command)
    program = found[0] if found else ""
    own = "/" in program and (not program.startswith("/") or is_at_or_below(program, request.repository))
    if not program or own:
        return [], [], []
    rest = found[1 + len(interpreter_flags(found[1:])) :]
    return [program], ["pytest"] if rest[:2] == ["-m", "pytest"] else [], [program, "-I"]


def _unusable(problem: str) -> MaterializationError:
    return MaterializationError(
        f"the task's tests cannot start: {problem}",
        code="checker-missing",
        hint="install it in the image, or use another test command",
    )
