"""Convert a terminal task to a row of a pack and the row's files, and report what was kept, changed and lost."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import SourceLocation
from securebench.families.fields import identifier_fault
from securebench.importers.row import ImportedRow
from securebench.importers.terminal.dockerfile import is_ignored, lacking, read_dockerfile
from securebench.importers.terminal.files import TaskFile, refused, tree_digest
from securebench.importers.terminal.script import UnreadableScriptError, needed_system_packages, read_script
from securebench.importers.terminal.tests import absolute_paths, expected_names, moved
from securebench.importers.terminal.wheels import PYTEST_VERSION
from securebench.pack_paths import LANE_ROOTS, container_directory_fault
from securebench.plurals import counted
from securebench.resources import Visibility

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.importers.terminal.dockerfile import Dockerfile
    from securebench.importers.terminal.script import VerifierScript
    from securebench.importers.terminal.task import TerminalTask

_INPUTS: Final = LANE_ROOTS[Visibility.EVALUATION_INPUTS]
_GUEST: Final = Path(__file__).parent / "guest" / "run_tests.py"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MIN_DISTINCTIVE_BYTES: Final = 64
"""Two equal files of at least this many bytes are treated as copies. Smaller files may be equal by coincidence."""

MANIFEST_DEFAULTS: Final[dict[str, Any]] = {"family": "terminal_task"}


@dataclass(frozen=True, slots=True)
class TerminalChoices:
    """The user's choices: replacements for base images, and the working directory if a Dockerfile sets none.

    If ``registry`` is set, a task that names a prebuilt image uses that image from its registry.
    """

    base_images: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    registry: bool = False


@dataclass(frozen=True, slots=True)
class ImportedTask:
    """A row, and its files in the pack: ``trees`` maps each directory to its files by their relative paths.

    ``packages`` maps the Python packages that the tests need, besides pytest, to their versions. A version is empty if
    the task's script does not pin it. ``plan`` is the content of ``plan.json``, which the test runner reads.
    """

    row: ImportedRow
    task: TerminalTask
    trees: dict[str, dict[str, TaskFile]]
    packages: Mapping[str, str]
    plan: dict[str, Any]


def imported(task: TerminalTask, choices: TerminalChoices) -> ImportedTask:
    """Convert a task to a row. Raises :class:`ConfigError` (``import-task-refused``, ``dockerfile-invalid``)."""
    if not _NAME.fullmatch(task.name) or identifier_fault(task.id):
        raise refused(task.directory, f"its name {task.name!r} is not a valid task id")
    facts = read_dockerfile(task.dockerfile)
    task = _without_hidden(task, facts)
    workdir = _workdir(task, facts, choices)
    script = _script(task)
    tests, changed = moved(task.tests, f"{workdir}/{_INPUTS}/tests")
    plan = _plan(task, script, tests)
    trees = {f"hidden/{_directory(task)}/tests": tests, f"hidden/{_directory(task)}/solution": {**task.solution}}
    image = task.image if choices.registry and task.image else _image_name(task)
    checker = _checker_packages(task, script, facts, choices)
    if image != task.image:
        trees[f"images/{task.name}"] = _recipe(task, facts, choices)
    if checker:
        trees[f"images/{task.name}-checker"] = _checker_recipe(task, image, checker, facts)
    _report(task, script, workdir, changed, checker)
    if f"images/{task.name}" in trees:
        task.report.lost += lacking(task, facts, choices.base_images)
    row = _row(task, image, workdir, _checker_name(task) if checker else "")
    return ImportedTask(row, task, {root: files for root, files in trees.items() if files}, script.packages, plan)


def finished(one: ImportedTask, site: str, site_digest: str) -> tuple[ImportedRow, dict[str, dict[str, TaskFile]]]:
    """Return the row and its files by directory.

    ``site`` is the path of the test packages below the pack's ``hidden/``, and ``site_digest`` is their digest.
    """
    runner = {
        "run_tests.py": TaskFile(_GUEST.read_bytes()),
        "empty.ini": TaskFile(b"[pytest]\n"),
        "plan.json": TaskFile(json.dumps(one.plan, indent=2, sort_keys=True).encode() + b"\n"),
    }
    place = f"hidden/{_directory(one.task)}/runner"
    row = dict(one.row.task)
    row["eval"] = {
        **row["eval"],
        "run_tests": [_file(f"{_directory(one.task)}/runner/{name}", name) for name in runner],
        "test_files": [_file(f"{_directory(one.task)}/tests", "tests"), _file(site, "site")],
    }
    row["metadata"] = {
        **row["metadata"],
        "changed": [*one.task.report.changed],
        "lost": [*one.task.report.lost],
        "runner": site_digest,
    }
    return ImportedRow(row, one.row.record, one.row.location), {**one.trees, place: runner}


def _file(path: str, name: str) -> dict[str, Any]:
    return {"path": path, "mount": f"{_INPUTS}/{name}", "read_only": True}


def _row(task: TerminalTask, image: str, workdir: str, checker_image: str) -> ImportedRow:
    checker: dict[str, Any] = {"command": _command(task, workdir), "workdir": workdir}
    if task.verifier_seconds:
        checker["timeout_seconds"] = task.verifier_seconds
    if checker_image:
        checker["image"] = checker_image
    environment = {"image": image, "workdir": workdir, "materialize_workdir_from_image": True}
    if task.agent_seconds:
        environment["timeout_seconds"] = task.agent_seconds
    row = {
        "id": task.id,
        "family": "terminal_task",
        "input": {"instructions": task.instruction},
        "eval": {"checker": checker},
        "environment": environment,
        "metadata": {"benchmark": task.benchmark, "limits": dict(task.limits), **task.metadata},
    }
    return ImportedRow(row, task.record, SourceLocation(str(task.directory)))


def _command(task: TerminalTask, workdir: str) -> list[str]:
    """Return the checker's command.

    ``-I`` makes Python ignore modules in the workspace. If the task's verifier script used uv, ``-S`` makes Python
    ignore the image's packages, too.
    """
    isolation = ["-I", "-S"] if read_script(task.script).own_environment else ["-I"]
    return ["python3", *isolation, f"{workdir}/{_INPUTS}/run_tests.py"]


def _script(task: TerminalTask) -> VerifierScript:
    try:
        return read_script(task.script)
    except UnreadableScriptError as error:
        raise refused(
            task.directory / task.script_name,
            f"its verifier script cannot be converted: {error}",
            "write this task as a row by hand: docs/how-to/write-a-pack.md",
        ) from None


def _plan(task: TerminalTask, script: VerifierScript, tests: Mapping[str, TaskFile]) -> dict[str, Any]:
    paths = [path.partition("::")[0] for path in script.tests]
    missing = [path for path in paths if path != "." and not _is_there(path, tests)]
    if missing:
        raise refused(task.directory, f"its script runs tests that do not exist: {', '.join(missing)}")
    try:
        names = expected_names(tests, paths)
    except ValueError as error:
        raise refused(task.directory, f"cannot parse a test module: {error}") from None
    if not names:
        raise refused(task.directory, "no test function found in its test modules")
    chosen = [f"tests/{path}" if path != "." else "tests" for path in script.tests]
    expected = [] if any("::" in path for path in script.tests) else names
    return {"site": "site", "root": "tests", "tests": chosen, "expected": expected}


def _is_there(path: str, tests: Mapping[str, TaskFile]) -> bool:
    return path in tests or any(name.startswith(f"{path}/") for name in tests)


def _workdir(task: TerminalTask, facts: Dockerfile, choices: TerminalChoices) -> str:
    workdir = facts.workdir or choices.workdir
    if not workdir:
        hint = "pass the working directory of its base image with --workdir"
        raise refused(task.directory, "its Dockerfile sets no WORKDIR", hint)
    if fault := container_directory_fault(workdir):
        raise refused(task.directory, f"its WORKDIR {workdir!r} {fault}")
    return workdir


def _without_hidden(task: TerminalTask, facts: Dockerfile) -> TerminalTask:
    """Return the task without copies of its tests and solution in its build context.

    Only copies of ``.py``, ``.sh`` and ``.yaml`` files of at least 64 bytes are recognized. Raises
    :class:`ConfigError` if the Dockerfile puts such a copy into the image.
    """
    private = {
        file.data: path
        for path, file in (*task.tests.items(), *task.solution.items())
        if len(file.data) >= _MIN_DISTINCTIVE_BYTES and path.endswith((".py", ".sh", ".yaml"))
    }
    hidden = [path for path, file in task.context.items() if file.data in private]
    for path in hidden:
        if facts.copies(path) and not is_ignored(path, task.context):
            message = f"the Dockerfile copies {path}, a copy of the hidden file {private[task.context[path].data]}"
            raise refused(task.directory, message)
    if hidden:
        task.report.changed.append(
            f"hidden files removed from the build context (they are not copied into the image): {', '.join(hidden)}"
        )
    return replace(task, context={path: file for path, file in task.context.items() if path not in hidden})


def _checker_packages(
    task: TerminalTask, script: VerifierScript, facts: Dockerfile, choices: TerminalChoices
) -> list[str]:
    """Return the system packages that the checker needs and the task's image may lack."""
    text = "\n".join(file.data.decode("utf-8", "replace") for file in task.tests.values())
    stand_ins = [choices.base_images.get(base, base) for base in facts.bases]
    has_python = facts.has_python or any("python" in base for base in stand_ins[-1:])
    return [*([] if has_python else ["python3"]), *needed_system_packages(script, text)]


def _recipe(task: TerminalTask, facts: Dockerfile, choices: TerminalChoices) -> dict[str, TaskFile]:
    context = {f"context/{path}": file for path, file in task.context.items()}
    stand_ins = {base: choices.base_images[base] for base in facts.bases if base in choices.base_images}
    recipe = {
        "reference": _image_name(task),
        "summary": f"The imported image of {task.id}.",
        "dockerfile": "Dockerfile",
        "context": "context",
        "base_images": stand_ins,
    }
    # The context is a separate directory, even if it is empty, so that it does not contain the recipe.
    files = context or {"context/.keep": TaskFile(b"")}
    return {**files, "Dockerfile": TaskFile(task.dockerfile.encode()), "recipe.yaml": _as_json(recipe)}


def _checker_recipe(task: TerminalTask, image: str, packages: list[str], facts: Dockerfile) -> dict[str, TaskFile]:
    user = f"USER {facts.user}\n" if facts.user else ""
    text = (
        f"FROM {image}\nUSER root\nRUN apt-get update \\\n"
        f" && apt-get install --yes --no-install-recommends {' '.join(packages)} \\\n"
        f" && rm -rf /var/lib/apt/lists/*\n{user}"
    )
    recipe = {
        "reference": _checker_name(task),
        "summary": f"The image of {task.id} with the packages that its checker needs.",
        "dockerfile": "Dockerfile",
        "checks": [["python3", "--version"]],
    }
    return {"Dockerfile": TaskFile(text.encode()), "recipe.yaml": _as_json(recipe)}


def _as_json(value: Any) -> TaskFile:
    """Return a value as JSON, which is also YAML."""
    return TaskFile(json.dumps(value, indent=2).encode() + b"\n")


def _report(task: TerminalTask, script: VerifierScript, workdir: str, changed: list[str], checker: list[str]) -> None:
    report = task.report
    solution = ", solution (hidden)" if task.solution else ""
    report.carried += [
        f"instruction, {counted(len(task.tests), 'test file')} (hidden){solution}",
        f"WORKDIR {workdir}",
    ]
    times = {"agent": task.agent_seconds, "verifier": task.verifier_seconds}
    report.carried += [f"time limit of the {who}: {seconds:g} s" for who, seconds in times.items() if seconds]
    report.changed.append(
        f"{task.script_name}: SecureBench's runner (pytest {PYTEST_VERSION}) replaces "
        f"{counted(script.replaced, 'command')}"
    )
    if script.pytest_version not in ("", PYTEST_VERSION):
        report.changed.append(f"pytest {PYTEST_VERSION} instead of {script.pytest_version}")
    if script.writes_reward:
        report.changed.append("the verdict is the runner's exit code; no reward file is read")
    report.changed += [f"/tests in {path} replaced by the tests' path in the checker's sandbox" for path in changed]
    report.changed += [f"separate checker image with {', '.join(checker)}"] if checker else []
    report.lost += [f"{name} {value:g}: the tester's limits apply instead" for name, value in task.limits.items()]
    outside = absolute_paths(task.tests, (workdir, "/tests", "/tmp", "/usr", "/bin", "/dev"))  # noqa: S108 - a container
    if outside:
        report.lost.append(f"files that an agent writes outside {workdir}; the tests name these: {', '.join(outside)}")


def _directory(task: TerminalTask) -> str:
    # A test and a solution file may have the same path.
    solution = {f"solution/{path}" if path in task.tests else path: file for path, file in task.solution.items()}
    return f"{task.name}-{tree_digest({**task.tests, **solution})}"


def _image_name(task: TerminalTask) -> str:
    return f"securebench/{task.benchmark}/{_plain(task.name)}:{_version(task)}"


def _checker_name(task: TerminalTask) -> str:
    return f"securebench/{task.benchmark}/{_plain(task.name)}-checker:{_version(task)}"


def _version(task: TerminalTask) -> str:
    return tree_digest({**task.context, "Dockerfile": TaskFile(task.dockerfile.encode())})


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "task"
