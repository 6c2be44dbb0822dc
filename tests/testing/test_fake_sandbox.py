"""The fake beyond the conformance suite: how tests script it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError, ImageError, InfrastructureError
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.testing.fake_sandbox import DEFAULT_IMAGE, FakeDriver

if TYPE_CHECKING:
    from securebench.testing.fake_process import FakeProcessContext


@pytest.fixture
def driver() -> FakeDriver:
    """Give a driver with one program, which greets."""
    fake = FakeDriver()

    @fake.program("greet")
    def greet(context: FakeProcessContext) -> None:
        context.stdout.write(f"hello {context.argv[1]}")

    return fake


def spec_of(driver: FakeDriver) -> SandboxSpec:
    """Return the default spec on the default image."""
    return SandboxSpec(image=driver.resolve_image(DEFAULT_IMAGE))


def command(*argv: str) -> Command:
    """Return a command with a time limit that no passing test reaches."""
    return Command(argv=argv, timeout_seconds=10)


@pytest.mark.parametrize("name", ["greet", "/usr/bin/greet"])
def test_a_program_is_found_by_its_name(driver: FakeDriver, name: str) -> None:
    """A program registered by name runs for that name and for any path that ends in it."""
    result = driver.create(spec_of(driver)).run(command(name, "you"))
    assert (result.exit_code, result.stdout) == (0, b"hello you")


def test_a_program_is_found_by_a_predicate(driver: FakeDriver) -> None:
    """The latest registration whose predicate admits the argv runs."""
    driver.program(lambda argv: argv[1:] == ("special",))(lambda _context: 7)
    sandbox = driver.create(spec_of(driver))
    assert sandbox.run(command("greet", "special")).exit_code == 7
    assert sandbox.run(command("greet", "you")).exit_code == 0


def test_a_program_that_raises_ends_with_a_traceback(driver: FakeDriver) -> None:
    """An exception of a program is its exit code 1 and a traceback on its stderr."""

    @driver.program("crash")
    def crash(_context: FakeProcessContext) -> None:
        raise ZeroDivisionError("oh")

    result = driver.create(spec_of(driver)).run(command("crash"))
    assert result.exit_code == 1
    assert b"ZeroDivisionError: oh" in result.stderr


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), (None, 0), ("message", 1)])
def test_system_exit_is_honoured(driver: FakeDriver, code: object, expected: int) -> None:
    """``SystemExit`` means what it means to an interpreter."""

    @driver.program("leave")
    def leave(_context: FakeProcessContext) -> None:
        raise SystemExit(code)

    assert driver.create(spec_of(driver)).run(command("leave")).exit_code == expected


@pytest.mark.parametrize("operation", ["resolve_image", "create", "open", "wait"])
def test_one_failure_is_injected_once(driver: FakeDriver, operation: str) -> None:
    """``fail_next`` raises its error on the next such operation, and only there."""

    def whole_way() -> int:
        return driver.create(spec_of(driver)).run(command("greet", "you")).exit_code

    error = EngineError("gone")
    driver.fail_next(error, on=operation)
    with pytest.raises(EngineError) as raised:
        whole_way()
    assert raised.value is error
    assert whole_way() == 0


def test_what_was_run_is_recorded(driver: FakeDriver) -> None:
    """The driver lists each command with the spec that it ran in."""
    spec = spec_of(driver)
    driver.create(spec).run(command("greet", "you"))
    assert driver.commands == [(spec, command("greet", "you"))]


def test_an_unknown_image_is_missing(driver: FakeDriver) -> None:
    """An image that nobody added cannot be resolved."""
    with pytest.raises(ImageError):
        driver.resolve_image("nobody/nothing:1")


def test_open_sandboxes_are_known(driver: FakeDriver) -> None:
    """The driver knows its open sandboxes, so that a test can assert that none is left."""
    with driver.create(spec_of(driver)) as sandbox:
        assert driver.open == {sandbox}
    assert driver.open == set()


def test_a_program_that_never_looks_is_ended_all_the_same(driver: FakeDriver) -> None:
    """A program that calls nothing of its context cannot hold up whoever waits for it."""
    stuck = threading.Event()
    driver.program("stuck")(lambda _context: stuck.wait(30) and 0)
    result = driver.create(spec_of(driver)).run(Command(argv=("stuck",), timeout_seconds=0.05))
    stuck.set()
    assert (result.timed_out, result.exit_code) == (True, 124)


def test_an_ended_persistent_sandbox_runs_nothing_more(driver: FakeDriver) -> None:
    """After a time limit ended a persistent sandbox, opening a command fails."""
    driver.program("sleep")(lambda context: context.sleep(30))
    sandbox = driver.create(spec_of(driver), persistent=True)
    assert sandbox.run(Command(argv=("sleep",), timeout_seconds=0.05)).timed_out
    with pytest.raises(InfrastructureError):
        sandbox.run(command("greet", "you"))
