"""Harbor's format, used by Terminal-Bench 2: ``task.toml``, ``instruction.md``, ``environment/``,
``tests/``, ``solution/``.
"""  # noqa: D205 - a list of names

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final

from securebench.importers.report import TaskReport
from securebench.importers.terminal.files import below, digest_record, read_tree, refused, text_of
from securebench.importers.terminal.limits import gigabytes, number, seconds
from securebench.importers.terminal.task import TerminalTask

if TYPE_CHECKING:
    from pathlib import Path

BENCHMARK: Final = "harbor"
MARK: Final = "task.toml"
_READ: Final = {
    "verifier": {"timeout_sec"},
    "agent": {"timeout_sec"},
    "environment": {
        "build_timeout_sec", "docker_image", "cpus", "memory", "memory_mb", "storage", "storage_mb", "allow_internet"
    },
}  # fmt: skip
_METADATA: Final = ("difficulty", "category", "tags", "author_name")
_REFUSED: Final = {
    ("verifier", "env"): "its tests need environment variables",
    ("environment", "mcp_servers"): "it needs MCP servers",
    ("environment", "gpus"): "it needs a GPU",
}


def read_harbor(directory: Path) -> TerminalTask:
    """Return the task of a directory. Raises :class:`ConfigError` (``import-task-refused``) with the reason."""
    files = read_tree(directory)
    settings = _settings(text_of(files, MARK, directory), directory)
    report = TaskReport(directory.name)
    for (table, key), reason in _REFUSED.items():
        if settings.get(table, {}).get(key):
            raise refused(directory / MARK, f"{reason} ({table}.{key})")
    _report_unread(settings, report)
    environment = settings.get("environment", {})
    context = below(files, "environment")
    if "docker-compose.yaml" in context:
        raise refused(directory, "it needs several containers (environment/docker-compose.yaml)")
    place = directory / MARK
    return TerminalTask(
        benchmark=BENCHMARK,
        name=directory.name,
        directory=directory,
        instruction=text_of(files, "instruction.md", directory),
        dockerfile=text_of(files, "environment/Dockerfile", directory),
        context=context,
        tests={path: file for path, file in below(files, "tests").items() if path != "test.sh"},
        solution=below(files, "solution"),
        script=text_of(files, "tests/test.sh", directory),
        script_name="tests/test.sh",
        record=digest_record(files),
        report=report,
        image=str(environment.get("docker_image") or ""),
        agent_seconds=seconds(settings.get("agent", {}).get("timeout_sec"), place),
        verifier_seconds=seconds(settings.get("verifier", {}).get("timeout_sec"), place),
        limits=_limits(environment, place),
        metadata={key: value for key, value in settings.get("metadata", {}).items() if key in _METADATA},
    )


def _settings(text: str, directory: Path) -> dict[str, Any]:
    try:
        settings = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise refused(directory / MARK, f"{MARK} is not valid TOML: {error}") from None
    for table in (*_READ, "metadata"):
        if not isinstance(settings.get(table, {}), dict):
            raise refused(directory / MARK, f"{table!r} in {MARK} is not a table")
    return settings


def _limits(environment: dict[str, Any], place: Path) -> dict[str, Any]:
    megabytes = number(environment.get("memory_mb"), place)
    memory = megabytes / 1024 if megabytes else gigabytes(environment.get("memory"), place)
    found = {"memory_gib": memory, "cpus": number(environment.get("cpus"), place)}
    storage = number(environment.get("storage_mb"), place)
    found["storage_gib"] = storage / 1024 if storage else gigabytes(environment.get("storage"), place)
    return {name: value for name, value in found.items() if value}


def _report_unread(settings: dict[str, Any], report: TaskReport) -> None:
    """Report each setting that SecureBench does not support."""
    for table, keys in _READ.items():
        report.lost += [f"{table}.{key} of {MARK}" for key in settings.get(table, {}) if key not in keys]
    known = {*_READ, "metadata", "version", "schema_version"}
    report.lost += [f"{key} of {MARK}" for key in settings if key not in known]
    report.lost += [f"metadata.{key}" for key in settings.get("metadata", {}) if key not in _METADATA]
    if settings.get("environment", {}).get("build_timeout_sec"):
        report.lost.append("environment.build_timeout_sec: SecureBench has its own build time limit")
    if settings.get("environment", {}).get("allow_internet", False):
        report.lost.append("environment.allow_internet: the tester YAML decides about network access")
