"""A runtime that sometimes fails: a command gets its true result or an infrastructure error, never a wrong result."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from leftovers import family_of
from sandboxes.oci.faulty_runtime import MODES, SYSTEM_PATH, compile_faulty_runtime, needs_faulty_runtime
from securebench.errors import InfrastructureError
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci import sandbox as sandbox_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import CommandResult

SLOW = "printf hi; sleep 0.1; exit 7"

pytestmark = [
    pytest.mark.oci,
    pytest.mark.usefixtures("oci_driver"),  # the shared driver stays open, and is not reported as left behind
    *needs_faulty_runtime,
]


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts a faulty runtime in front of the real one. Its ``mode`` is the way of failing."""

    def install(mode: int, *, seed: int, percent: int = 20, runtime: str = "crun") -> None:
        monkeypatch.setattr(sandbox_module, "_START_SECONDS", 2.0)
        directory = tmp_path / f"{mode}-{seed}"
        program = compile_faulty_runtime(directory, mode, seed=seed, percent=percent, runtime=runtime)
        monkeypatch.setenv("PATH", f"{program.parent}:{SYSTEM_PATH}")

    return install


def attempts(image: ResolvedImage, count: int, seconds: float) -> list[CommandResult | str]:
    """Run commands in ``count`` sandboxes. Return the result or the error message of each command.

    Every second sandbox is persistent and runs two commands. The others run one.
    """
    found: list[CommandResult | str] = []
    spec, command = SandboxSpec(image=image), Command(argv=("sh", "-c", SLOW), timeout_seconds=seconds)
    with closing(OciDriver(runtime="crun")) as driver:
        for number in range(count):
            try:
                with driver.create(spec, persistent=bool(number % 2)) as sandbox:
                    found += [sandbox.run(command) for _ in range(1 + number % 2)]
            except InfrastructureError as error:
                found.append(error.message)
    return found


@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
def test_a_failing_runtime_is_never_the_commands_fault(
    mode: int, faulty: Callable[..., None], base_image: ResolvedImage
) -> None:
    """Every reported result is the same as with a working runtime. At least one command has an error instead."""
    faulty(mode, seed=3)
    _require_true_or_nothing(attempts(base_image, *((3, 1) if mode == 7 else (14, 2 if mode == 11 else 60))))


@pytest.mark.long
@pytest.mark.timeout(1200)  # the modes that hang wait for five minutes
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
def test_a_failing_runtime_is_never_the_commands_fault_whichever_calls_fail(
    mode: int, seed: int, faulty: Callable[..., None], base_image: ResolvedImage
) -> None:
    """With many more calls and other seeds, every reported result is the same as with a working runtime."""
    faulty(mode, seed=100 + seed)
    _require_true_or_nothing(attempts(base_image, 60, 2 if mode in {7, 11} else 60))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("runtime", ["crun", "runc"])
@pytest.mark.parametrize("mode", [12, 13])
def test_a_sandbox_whose_runtime_fails_does_not_stay(
    *, mode: int, runtime: str, persistent: bool, faulty: Callable[..., None], base_image: ResolvedImage
) -> None:
    """L10: if a runtime fails after it started a command, the command is killed and has an infrastructure error."""
    faulty(mode, seed=1, percent=100, runtime=runtime)
    reason = "runtime failed to start|exited with code 1 before it started|was killed from outside"
    with (
        closing(OciDriver(runtime=runtime)) as driver,
        driver.create(SandboxSpec(image=base_image), persistent=persistent) as sandbox,
    ):
        with pytest.raises(InfrastructureError, match=reason):
            sandbox.run(Command(argv=("sleep", "98765"), timeout_seconds=60))
        assert not [command for command in family_of(os.getpid()).values() if "sleep 98765" in command]


def _require_true_or_nothing(found: list[CommandResult | str]) -> None:
    errors = [result for result in found if isinstance(result, str)]
    results = [result for result in found if not isinstance(result, str)]
    assert {(result.exit_code, result.stdout, result.timed_out) for result in results} == {(7, b"hi", False)}
    assert errors, "no call failed: choose another seed"
