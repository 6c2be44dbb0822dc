"""Convert an instance to a row of a pack, and report what was kept, changed and lost."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from securebench.importers.report import TaskReport
from securebench.importers.row import ImportedRow, bad_record
from securebench.importers.swe_bench.commands import RUNNERS, changed_paths, command, test_files
from securebench.importers.swe_bench.images import WORKDIR, built_image, registry_image
from securebench.importers.swe_bench.pins import Pins
from securebench.pack_paths import relative_path_fault
from securebench.patches.policy import is_sensitive
from securebench.plurals import counted
from securebench.runner_commands import read_command

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.importers.swe_bench.commands import Runner
    from securebench.importers.swe_bench.images import Image
    from securebench.importers.swe_bench.records import Instance

BENCHMARK: Final = "swe-bench"
TEST_SECONDS: Final = 1800
"""The time limit of a test run in the authors' harness, in seconds."""

MANIFEST: Final[dict[str, Any]] = {
    "id": BENCHMARK,
    "version": 1,
    "defaults": {"family": "repo_patch", "environment": {"workdir": WORKDIR}},
}
"""The manifest written if the output directory has none."""

_PRINTED = re.compile(r"\w+ \([\w.]+\).*")
"""A test id as unittest prints it, ``test_x (module.Class)``, and not the test's description."""


@dataclass(frozen=True, slots=True)
class SweBenchChoices:
    """The user's choices: the source of images, and whether the agent sees the hints."""

    build: bool = False
    repositories: Path | None = None
    pins: Pins = field(default_factory=Pins)
    hints: bool = False


@dataclass(frozen=True, slots=True)
class ImportedInstance:
    """A row, its image, and the report of its import."""

    row: ImportedRow
    image: Image
    report: TaskReport

    def at(self, commit: str) -> ImportedInstance:
        """Return a copy with the base commit ``commit``, the commit of the repository in the built image."""
        task = {**self.row.task, "input": {**self.row.task["input"], "base_commit": commit}}
        return replace(self, row=replace(self.row, task=task))


def imported(instance: Instance, choices: SweBenchChoices) -> ImportedInstance:
    """Convert an instance to a row. Raises :class:`ConfigError` (``import-row-invalid``) if that is impossible."""
    runner = _runner(instance)
    image = built_image(instance, choices.repositories, choices.pins) if choices.build else registry_image(instance)
    files = _files(instance)
    report = TaskReport(instance.id)
    argv = command(runner, image.python, files)
    evals: dict[str, Any] = {
        "tests": {
            "source": "command",
            "command": argv,
            "workdir": WORKDIR,
            "timeout_seconds": TEST_SECONDS,
            "test_patch": {"source": "inline", "patch": instance.test_patch},
            **_policy(instance, argv, report),
            "expect": _expected(instance, runner, image, report),
        },
        "gold_patch": {"source": "inline", "patch": instance.patch},
    }
    _report(instance, runner, image, choices, report)
    kept = evals["tests"]["expect"]
    counts = (len(kept["fail_to_pass"]), len(instance.fail_to_pass), len(kept.get("pass_to_pass", ())))
    report.carried.append(
        "tests in FAIL_TO_PASS: {} of {}, in PASS_TO_PASS: {} of {}".format(*counts, len(instance.pass_to_pass))
    )
    row = ImportedRow(_task(instance, image, choices, evals, report), instance.record, instance.location)
    return ImportedInstance(row, image, report)


def _task(
    instance: Instance, image: Image, choices: SweBenchChoices, evals: dict[str, Any], report: TaskReport
) -> dict[str, Any]:
    hints = {"hints": instance.hints} if choices.hints and instance.hints else {}
    return {
        "id": instance.id,
        "family": "repo_patch",
        "input": {
            "repo": instance.repository,
            "base_commit": image.base_commit or instance.base_commit,
            "instructions": instance.problem,
            **hints,
        },
        "eval": evals,
        "environment": {"image": image.name, "workdir": WORKDIR},
        "metadata": {
            "benchmark": BENCHMARK,
            "version": instance.version,
            "upstream_commit": instance.base_commit,
            "changed": [*report.changed],
            "lost": [*report.lost],
        },
    }


def _runner(instance: Instance) -> Runner:
    runner = RUNNERS.get(instance.repository)
    if runner is None:
        hint = f"supported repositories: {', '.join(RUNNERS)}"
        raise bad_record(instance.location, f"no test command is known for {instance.repository}", hint)
    return runner


def _files(instance: Instance) -> tuple[str, ...]:
    files = test_files(instance.test_patch, (*instance.fail_to_pass, *instance.pass_to_pass))
    if not files:
        raise bad_record(instance.location, "neither the test patch nor a test id names a test module")
    if wrong := next((path for path in files if path.startswith("-") or relative_path_fault(path)), ""):
        raise bad_record(instance.location, f"the test patch or a test id contains the unsafe path {wrong!r}")
    return files


def _policy(instance: Instance, argv: list[str], report: TaskReport) -> dict[str, Any]:
    """Return a policy that allows changes to the sensitive paths and test runner files that the gold patch changes.

    Returns an empty dict if the gold patch changes no such file.
    """
    runner = read_command(argv)
    owned = runner.owns if runner is not None else is_sensitive
    paths = [path for path in changed_paths(instance.patch) if is_sensitive(path) or owned(path)]
    if not paths:
        return {}
    report.changed.append(f"sensitive paths allowed because the gold patch changes them: {', '.join(paths)}")
    return {"candidate_policy": {"allow_sensitive_paths": paths}}


def _expected(instance: Instance, runner: Runner, image: Image, report: TaskReport) -> dict[str, list[str]]:
    unfit = image.absent | runner.unfit.keys()
    kept = {
        name: [test for test in tests if test not in unfit and not (runner.is_pytest and _is_cut(test))]
        for name, tests in (("fail_to_pass", instance.fail_to_pass), ("pass_to_pass", instance.pass_to_pass))
    }
    if not kept["fail_to_pass"]:
        raise bad_record(instance.location, "no usable test remains in 'FAIL_TO_PASS'")
    tests = (*instance.fail_to_pass, *instance.pass_to_pass)
    cut = [test for test in tests if runner.is_pytest and _is_cut(test)]
    report.lost += [f"expected test {test}: {runner.unfit[test]}" for test in tests if test in runner.unfit]
    report.lost += [f"expected test whose id the authors' log parser truncated at a space: {test}" for test in cut]
    if runner.is_unittest and (described := [test for test in tests if not _PRINTED.fullmatch(test)]):
        report.changed.append(
            f"{counted(len(described), 'expected test')} identified by the first line of a docstring, as in the "
            "authors' logs: if several tests share that line, all must pass"
        )
    return {name: tests for name, tests in kept.items() if tests}


def _is_cut(test: str) -> bool:
    """Whether a pytest id was truncated: the authors' harness reads an id only up to its first space."""
    return "[" in test and not test.endswith("]")


def _report(instance: Instance, runner: Runner, image: Image, choices: SweBenchChoices, report: TaskReport) -> None:
    report.carried += ["problem statement, gold patch (hidden), test patch", f"image {image.name}"]
    report.changed += [*filter(None, [runner.note]), *image.differs]
    if instance.hints and not choices.hints:
        report.lost.append("hints_text, which may reveal the solution; --hints includes it")
    if instance.repository == "sympy/sympy":
        report.changed.append(
            "SecureBench's runner replaces bin/test, which candidates can change; it runs the same tests, by the rules "
            "of bin/test"
        )
