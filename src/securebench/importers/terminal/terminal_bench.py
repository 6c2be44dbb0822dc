"""Terminal-Bench's first format: ``task.yaml``, ``Dockerfile``, ``run-tests.sh``, ``tests/``, ``solution.sh``."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, Final

from securebench.importers.report import TaskReport
from securebench.importers.terminal.dockerfile import read_dockerfile
from securebench.importers.terminal.files import below, digest_record, read_tree, refused, text_of
from securebench.importers.terminal.limits import gigabytes, number, seconds
from securebench.importers.terminal.task import TerminalTask
from securebench.strict_input.yaml_text import parse_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.importers.terminal.files import TaskFile

BENCHMARK: Final = "terminal-bench"
MARK: Final = "task.yaml"
_COMPOSE: Final = "docker-compose.yaml"
_PRIVATE: Final = ("tests", "run-tests.sh", "solution.sh", "solution.yaml", MARK, _COMPOSE, "solution")
_METADATA: Final = ("difficulty", "category", "tags", "author_name")
_READ: Final = {"instruction", "parser_name", "max_agent_timeout_sec", "max_test_timeout_sec", *_METADATA}
_HARNESS_KEYS: Final = {"build", "image", "container_name", "command", "environment", "volumes", "deploy"}
"""Compose keys that are not reported as lost: they tell the authors' harness how to start the service.

Of ``deploy``, the resource limits are read.
"""


def read_terminal_bench(directory: Path) -> TerminalTask:
    """Return the task of a directory. Raises :class:`ConfigError` (``import-task-refused``, ``dockerfile-invalid``)."""
    files = read_tree(directory)
    settings = _yaml(files, MARK, directory)
    instruction = settings.get("instruction")
    if not isinstance(instruction, str):
        raise refused(directory / MARK, f"{MARK} must have the key 'instruction' with a string")
    if settings.get("parser_name", "pytest") != "pytest":
        raise refused(directory / MARK, f"unsupported parser {settings['parser_name']!r}: only 'pytest' is supported")
    report = TaskReport(directory.name)
    report.lost += [f"{key} of {MARK}" for key in settings if key not in _READ]
    dockerfile = text_of(files, "Dockerfile", directory)
    _check_copies(dockerfile, directory, report)
    place = directory / MARK
    return TerminalTask(
        benchmark=BENCHMARK,
        name=directory.name,
        directory=directory,
        instruction=instruction,
        dockerfile=dockerfile,
        context={path: file for path, file in files.items() if path.split("/")[0] not in _PRIVATE},
        tests=below(files, "tests"),
        solution={path: file for path, file in files.items() if path.startswith("solution")},
        script=text_of(files, "run-tests.sh", directory),
        script_name="run-tests.sh",
        record=digest_record(files),
        report=report,
        agent_seconds=seconds(settings.get("max_agent_timeout_sec"), place),
        verifier_seconds=seconds(settings.get("max_test_timeout_sec"), place),
        limits=_limits(files, directory, report),
        metadata={key: settings[key] for key in _METADATA if key in settings},
    )


def _yaml(files: dict[str, TaskFile], path: str, directory: Path) -> dict[str, Any]:
    value, source, faults = parse_yaml(text_of(files, path, directory), str(directory / path))
    if faults:
        raise refused(source.locate(faults[0]).file, f"{source.locate(faults[0])}: {faults[0].message}")
    if not isinstance(value, dict):
        raise refused(directory / path, f"{path} is not a mapping")
    return value


def _check_copies(dockerfile: str, directory: Path, report: TaskReport) -> None:
    """Reject a Dockerfile that copies the tests, the solution or another private file by name.

    If it copies everything, or names such a file only by a pattern, report that tests and solution are left out.
    """
    for source in read_dockerfile(dockerfile).copied:
        first = source.split("/")[0]
        if first in _PRIVATE:
            message = f"the Dockerfile copies {source} into the agent's image, where the agent could read it"
            raise refused(directory / "Dockerfile", message)
        if first == "." or any(fnmatch.fnmatchcase(name, first) for name in _PRIVATE):
            report.changed.append(
                "the Dockerfile copies its whole directory, or files by a pattern; tests and solution were removed "
                "from the build context"
            )


def _limits(files: dict[str, TaskFile], directory: Path, report: TaskReport) -> dict[str, Any]:
    """Return the resource limits of the only service in the Compose file. They are empty if there is no such file.

    Raises :class:`ConfigError` unless the file has exactly one service.
    """
    if _COMPOSE not in files:
        return {}
    services = _yaml(files, _COMPOSE, directory).get("services")
    if not isinstance(services, dict) or len(services) != 1:
        raise refused(directory / _COMPOSE, "its 'services' must be one service: several containers are not supported")
    service = next(iter(services.values()))
    if not isinstance(service, dict):
        raise refused(directory / _COMPOSE, f"the service in {_COMPOSE} is not a mapping")
    limits = {"memory_gib": "mem_limit", "cpus": "cpus"}
    report.lost += [f"{key} of {_COMPOSE}" for key in service if key not in {*_HARNESS_KEYS, *limits.values()}]
    given = _deployed(service)
    place = directory / _COMPOSE
    found = {
        "memory_gib": gigabytes(service.get("mem_limit", given.get("memory")), place),
        "cpus": number(service.get("cpus", given.get("cpus")), place),
    }
    return {name: value for name, value in found.items() if value}


def _deployed(service: dict[str, Any]) -> dict[str, Any]:
    found: Any = service
    for key in ("deploy", "resources", "limits"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
