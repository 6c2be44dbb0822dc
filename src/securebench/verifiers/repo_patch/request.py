"""Read the parameters of a verification from the task's view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import MaterializationError
from securebench.patches.policy import PathPolicy
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from securebench.tasks import VerifierView

DEFAULT_TIMEOUT_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoPatchRequest:
    """The parameters of a verification.

    ``repository`` and ``workdir`` are paths in the image. A ``command`` string is run by a shell.
    """

    image: str
    repository: str
    workdir: str
    base_commit: str
    command: str | tuple[str, ...]
    timeout_seconds: float
    setup_patch: bytes
    test_patch: bytes
    policy: PathPolicy
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    test_by_test: bool = False
    """Whether the task rejects verdicts based only on an exit code."""

    @property
    def expected(self) -> tuple[str, ...]:
        """The ids of all tests that must pass according to the task; empty if it names none."""
        return (*self.fail_to_pass, *self.pass_to_pass)


def read_request(view: VerifierView) -> RepoPatchRequest:
    """Read the parameters. Raises :class:`MaterializationError` for a task that cannot be judged."""
    resources = view.test_sandbox
    tests: Any = resources["tests"].value if "tests" in resources else None
    base_commit = resources["base_commit"].value if "base_commit" in resources else None
    repository = view.environment.workdir
    if not isinstance(tests, dict) or tests.get("source") != "command" or not isinstance(base_commit, str):
        raise _unusable("the task needs a valid test command and a valid base commit")
    if repository is None:
        raise _unusable("the repository's path in the image is unknown", "set 'environment.workdir'")
    command = tests["command"]
    policy, expect = tests.get("candidate_policy") or {}, tests.get("expect") or {}
    return RepoPatchRequest(
        image=view.environment.image or DEFAULT_IMAGE,
        repository=repository,
        workdir=tests.get("workdir") or repository,
        base_commit=base_commit.lower(),
        command=command if isinstance(command, str) else tuple(command),
        timeout_seconds=float(tests.get("timeout_seconds") or DEFAULT_TIMEOUT_SECONDS),
        setup_patch=_patch(tests.get("setup_patch")),
        test_patch=_patch(tests.get("test_patch")),
        policy=PathPolicy(**{name: tuple(patterns) for name, patterns in policy.items()}),
        fail_to_pass=tuple(expect.get("fail_to_pass") or ()),
        pass_to_pass=tuple(expect.get("pass_to_pass") or ()),
        test_by_test=tests.get("require") == "test_by_test",
    )


def _patch(value: Any) -> bytes:
    """Return the patch of a row's field, or an empty one if the field is missing or blank."""
    text = value["patch"] if isinstance(value, dict) else ""
    return text.encode("utf-8") if text.strip() else b""


def _unusable(message: str, hint: str = "") -> MaterializationError:
    return MaterializationError(message, hint=hint)
