"""Run tests with controls in this process, without a test runner: many cheats do not depend on the runner."""

from __future__ import annotations

import functools
import unittest
import warnings
from typing import TYPE_CHECKING, Any, Final

import pytest

from patches.trees import MemoryTree
from securebench.patches.model import FileVersion
from securebench.patches.policy import PathPolicy
from securebench.sandboxes.base import CommandResult
from securebench.verifiers.base import CandidateFailedError
from securebench.verifiers.repo_patch.evidence.adapters import recognise
from securebench.verifiers.repo_patch.evidence.channel import ReportedRun, ReportedTests
from securebench.verifiers.repo_patch.evidence.controls import plant
from securebench.verifiers.repo_patch.evidence.judge import Judge
from securebench.verifiers.repo_patch.request import RepoPatchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType

    from securebench.errors import FailureReason
    from securebench.verifiers.repo_patch.evidence.adapter import Adapter
    from securebench.verifiers.repo_patch.evidence.controls import Controls

PATH: Final = "tests/test_styles.py"


class Lying:
    """An object whose comparisons are all true."""

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True
    __hash__ = object.__hash__


def adapter_of(command: str | tuple[str, ...] = "pytest") -> Adapter:
    """Return the adapter of ``command``, which must have one."""
    adapter = recognise(command)
    assert adapter is not None
    return adapter


def request_of(
    fail_to_pass: Sequence[str] = (),
    pass_to_pass: Sequence[str] = (),
    *,
    command: str | tuple[str, ...] = "pytest",
    root: str = "/r",
    test_by_test: bool = False,
) -> RepoPatchRequest:
    """Return the request of a task without patches, whose repository is at ``root``."""
    return RepoPatchRequest(
        image="i",
        repository=root,
        workdir=root,
        base_commit="0",
        command=command,
        timeout_seconds=60,
        setup_patch=b"",
        test_patch=b"",
        policy=PathPolicy(),
        fail_to_pass=tuple(fail_to_pass),
        pass_to_pass=tuple(pass_to_pass),
        test_by_test=test_by_test,
    )


def planted(text: str, wanted: Sequence[str] = ()) -> tuple[Controls, str]:
    """Return controls for the tests in ``text``, and the text that contains these controls."""
    found = plant([PATH.encode()], MemoryTree({PATH.encode(): FileVersion(text.encode())}), wanted, adapter_of())
    return found, found.files[PATH.encode()].content.decode()


def outcomes(text: str, scope: dict[str, Any]) -> dict[str, str]:
    """Execute ``text`` in ``scope``, and run every test that it defines. Return the outcomes by test id."""
    exec(_compiled(text), scope)
    return dict(_each(scope))


@functools.lru_cache(1000)
def _compiled(text: str) -> CodeType:
    return compile(text, PATH, "exec", dont_inherit=True)


def reason(found: dict[str, str], controls: Controls, wanted: Sequence[str]) -> FailureReason | None:
    """Return why a run with these outcomes fails, or ``None`` if it passes. Its fingerprints are empty."""
    return judged(found, controls, wanted)[0]


def judged(
    found: dict[str, str], controls: Controls, wanted: Sequence[str]
) -> tuple[FailureReason | None, dict[str, Any]]:
    """Return why a run with these outcomes fails, or ``None`` if it passes, and the evidence."""
    reported = ReportedTests(found, before={}, after={}, exit=1, started=True)
    details: dict[str, Any] = {}
    judge = Judge(adapter_of(), controls, request_of(wanted), details)
    try:
        judge.judge(reported, CommandResult(exit_code=1), ReportedRun())
    except CandidateFailedError as fault:
        return fault.reason, details["evidence"]
    return None, details["evidence"]


def _each(scope: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in list(scope.items()):  # a copy, because assertWarns adds a registry of warnings to ``scope``
        if name.startswith("test_"):
            yield f"{PATH}::{name}", _outcome(value)
        elif name.startswith("Test") and issubclass(value, unittest.TestCase):
            for method in [method for method in dir(value) if method.startswith("test_")]:
                yield f"{PATH}::{name}::{method}", _outcome(getattr(value(method), method))


def _outcome(test: Callable[[], None]) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            test()
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a test may raise any exception
        return "failed"
    return "passed"
