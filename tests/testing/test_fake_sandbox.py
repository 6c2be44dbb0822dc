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
def fake() -> FakeDriver:
    """Give a driver with one program, which greets."""
    fake = FakeDriver()

    @fake.program("greet")
    def greet(context: FakeProcessContext) -> None:
        context.stdout.write(f"hello {context.argv[1]}")

    return fake


def spec_of(fake: FakeDriver) -> SandboxSpec:
    """Return the default spec on the default image."""
    return SandboxSpec(image=fake.resolve_image(DEFAULT_IMAGE))


def command(*argv: str) -> Command:
    """Return a command with a time limit that no passing test reaches."""
    return Command(argv=argv, timeout_seconds=10)


@pytest.mark.parametrize("name", ["greet", "/usr/bin/greet"])
def test_a_program_is_found_by_its_name(fake: FakeDriver, name: str) -> None:
    """A program registered by name runs for that name and for any path that ends in it."""
    result = fake.create(spec_of(fake)).run(command(name, "you"))
    assert (result.exit_code, result.stdout) == (0, b"hello you")


def test_a_program_is_found_by_a_predicate(fake: FakeDriver) -> None:
    """The latest registration whose predicate admits the argv runs."""
    fake.program(lambda argv: argv[1:] == ("special",))(lambda _context: 7)
    sandbox = fake.create(spec_of(fake))
    assert sandbox.run(command("greet", "special")).exit_code == 7
    assert sandbox.run(command("greet", "you")).exit_code == 0


def test_a_program_that_raises_ends_with_a_traceback(fake: FakeDriver) -> None:
    """An exception of a program is its exit code 1 and a traceback on its stderr."""

    @fake.program("crash")
    def crash(_context: FakeProcessContext) -> None:
        raise ZeroDivisionError("oh")

    result = fake.create(spec_of(fake)).run(command("crash"))
    assert result.exit_code == 1
    assert b"ZeroDivisionError: oh" in result.stderr


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), (None, 0), ("message", 1)])
def test_system_exit_is_honoured(fake: FakeDriver, code: object, expected: int) -> None:
    """``SystemExit`` means what it means to an interpreter."""

    @fake.program("leave")
    def leave(_context: FakeProcessContext) -> None:
        raise SystemExit(code)

    assert fake.create(spec_of(fake)).run(command("leave")).exit_code == expected


@pytest.mark.parametrize("operation", ["resolve_image", "create", "open", "wait"])
def test_one_failure_is_injected_once(fake: FakeDriver, operation: str) -> None:
    """``fail_next`` raises its error on the next such operation, and only there."""

    def whole_way() -> int:
        return fake.create(spec_of(fake)).run(command("greet", "you")).exit_code

    error = EngineError("gone")
    fake.fail_next(error, on=operation)
    with pytest.raises(EngineError) as raised:
        whole_way()
    assert raised.value is error
    assert whole_way() == 0


def test_what_was_run_is_recorded(fake: FakeDriver) -> None:
    """The fake lists each command with the spec that it ran in."""
    spec = spec_of(fake)
    fake.create(spec).run(command("greet", "you"))
    assert fake.commands == [(spec, command("greet", "you"))]


def test_an_unknown_image_is_missing(fake: FakeDriver) -> None:
    """An image that nobody added cannot be resolved."""
    with pytest.raises(ImageError):
        fake.resolve_image("nobody/nothing:1")


def test_open_sandboxes_are_known(fake: FakeDriver) -> None:
    """The fake knows its open sandboxes, so that a test can assert that none is left."""
    with fake.create(spec_of(fake)) as sandbox:
        assert fake.open == {sandbox}
    assert fake.open == set()


def test_a_program_that_never_looks_is_ended_all_the_same(fake: FakeDriver) -> None:
    """A program that calls nothing of its context cannot hold up whoever waits for it."""
    stuck = threading.Event()
    fake.program("stuck")(lambda _context: stuck.wait(30) and 0)
    result = fake.create(spec_of(fake)).run(Command(argv=("stuck",), timeout_seconds=0.05))
    stuck.set()
    assert (result.timed_out, result.exit_code) == (True, 124)


def test_an_ended_persistent_sandbox_runs_nothing_more(fake: FakeDriver) -> None:
    """After a time limit ended a persistent sandbox, opening a command fails."""
    fake.program("sleep")(lambda context: context.sleep(30))
    sandbox = fake.create(spec_of(fake), persistent=True)
    assert sandbox.run(Command(argv=("sleep",), timeout_seconds=0.05)).timed_out
    with pytest.raises(InfrastructureError):
        sandbox.run(command("greet", "you"))
