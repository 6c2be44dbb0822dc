"""Tests of the scripted driver: how its programs are defined, and which limits it enforces."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from securebench.errors import EngineError, ImageError, InfrastructureError
from securebench.sandboxes.base import Command, Limits, Mount, SandboxSpec, Stream
from securebench.sandboxes.collected import CollectedArchive, CollectedLayer
from securebench.testing.scripted_sandbox import DEFAULT_IMAGE, ScriptedDriver

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from securebench.testing.scripted_sandbox import ProgramContext


@pytest.fixture
def scripted() -> ScriptedDriver:
    """Return a driver with one program, ``greet``, which writes a greeting."""
    driver = ScriptedDriver()

    @driver.program("greet")
    def greet(context: ProgramContext) -> None:
        context.stdout.write(f"hello {context.argv[1]}")

    return driver


def spec_of(driver: ScriptedDriver, **options: Any) -> SandboxSpec:
    """Return a spec on the default image. ``options`` are fields of :class:`SandboxSpec`."""
    return SandboxSpec(image=driver.resolve_image(DEFAULT_IMAGE), **options)


def command(*argv: str, **options: Any) -> Command:
    """Return a command. Tests do not reach its default time limit."""
    return Command(argv=argv, **{"timeout_seconds": 10, **options})


@pytest.mark.parametrize("name", ["greet", "/usr/bin/greet"])
def test_a_program_is_found_by_its_name(scripted: ScriptedDriver, name: str) -> None:
    """A program registered by name runs for that name and for any path that ends in it."""
    result = scripted.create(spec_of(scripted)).run(command(name, "you"))
    assert (result.exit_code, result.stdout) == (0, b"hello you")


def test_a_program_is_found_by_a_predicate(scripted: ScriptedDriver) -> None:
    """Of the programs whose predicate accepts the argv, the one that was registered last runs."""
    scripted.program(lambda argv: argv[1:] == ("special",))(lambda _context: 7)
    sandbox = scripted.create(spec_of(scripted))
    assert sandbox.run(command("greet", "special")).exit_code == 7
    assert sandbox.run(command("greet", "you")).exit_code == 0


def test_an_unknown_program_is_not_found(scripted: ScriptedDriver) -> None:
    """A command whose program is not registered ends as in a shell: with exit code 127 and a message."""
    result = scripted.create(spec_of(scripted)).run(command("other"))
    assert (result.exit_code, result.stderr) == (127, b"other: command not found\n")


def test_a_program_that_raises_ends_with_a_traceback(scripted: ScriptedDriver) -> None:
    """A program that raises an exception ends with exit code 1 and a traceback on stderr."""

    @scripted.program("crash")
    def crash(_context: ProgramContext) -> None:
        raise ZeroDivisionError("oh")

    result = scripted.create(spec_of(scripted)).run(command("crash"))
    assert result.exit_code == 1
    assert b"ZeroDivisionError: oh" in result.stderr


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), (None, 0), ("message", 1)])
def test_system_exit_is_honoured(scripted: ScriptedDriver, code: object, expected: int) -> None:
    """``SystemExit`` sets the same exit code as in a Python interpreter."""

    @scripted.program("leave")
    def leave(_context: ProgramContext) -> None:
        raise SystemExit(code)

    assert scripted.create(spec_of(scripted)).run(command("leave")).exit_code == expected


def test_a_program_reads_its_stdin(scripted: ScriptedDriver) -> None:
    """Stdin is a binary file. It contains the command's ``stdin``, followed by the data that is sent."""

    @scripted.program("echo")
    def echo(context: ProgramContext) -> None:
        for line in context.stdin:
            context.stdout.write(b"> " + line)

    process = scripted.create(spec_of(scripted)).open(command("echo", stdin=b"one\nt"))
    assert process.receive(5) == (Stream.STDOUT, b"> one\n")
    process.send(b"wo\nthree")
    process.close_stdin()
    assert [process.receive(5) for _ in range(4)] == [
        *((Stream.STDOUT, line) for line in (b"> two\n", b"> three")),
        *(None, None),
    ]
    assert process.wait().exit_code == 0
    with pytest.raises(BrokenPipeError):
        process.send(b"more")


def test_waiting_for_output_has_a_time_limit(scripted: ScriptedDriver) -> None:
    """``receive`` raises ``TimeoutError`` while a program is silent, and killing the program ends its output."""
    scripted.program("sleep")(lambda context: context.sleep(30))
    process = scripted.create(spec_of(scripted)).open(command("sleep"))
    with pytest.raises(TimeoutError):
        process.receive(0.01)
    process.kill()
    assert process.receive(5) is None
    state = process.wait()
    assert (state.exit_code, state.timed_out) == (137, False)


def test_a_program_sees_what_is_mounted(scripted: ScriptedDriver, tmp_path: Path) -> None:
    """A path is looked up in the innermost mount that contains it. Outside all mounts, no path exists."""
    workspace, inputs = tmp_path.resolve() / "workspace", tmp_path.resolve() / "inputs"
    workspace.mkdir()
    inputs.mkdir()
    mounts = (Mount(workspace, "/work", read_only=False), Mount(inputs, "/work/inputs"))
    found: list[Path] = []

    @scripted.program("look")
    def look(context: ProgramContext) -> None:
        found.extend(context.path(name) for name in ("a/b", ".", "inputs/../c", "/work/inputs/d"))
        context.path("/etc/passwd")

    result = scripted.create(spec_of(scripted, mounts=mounts, workdir="/work")).run(command("look"))
    assert found == [workspace / "a/b", workspace, workspace / "c", inputs / "d"]
    assert b"FileNotFoundError: nothing is mounted at /etc/passwd" in result.stderr


@pytest.mark.parametrize("operation", ["resolve_image", "self_test", "create", "open", "wait"])
def test_one_failure_is_injected_once(scripted: ScriptedDriver, operation: str) -> None:
    """``fail_next`` makes only the next operation of the given kind raise the error."""

    def every_operation() -> int:
        spec = spec_of(scripted)
        scripted.self_test(spec.image)
        return scripted.create(spec).run(command("greet", "you")).exit_code

    error = EngineError("gone")
    scripted.fail_next(error, on=operation)
    with pytest.raises(EngineError) as raised:
        every_operation()
    assert raised.value is error
    assert every_operation() == 0


def test_what_was_run_is_recorded(scripted: ScriptedDriver) -> None:
    """The driver records each command with the spec of its sandbox."""
    spec = spec_of(scripted)
    scripted.create(spec).run(command("greet", "you"))
    assert scripted.commands == [(spec, command("greet", "you"))]


def test_an_image_must_be_added(scripted: ScriptedDriver) -> None:
    """An image that was not added cannot be resolved. The files of an added image can be read."""
    with pytest.raises(ImageError):
        scripted.resolve_image("nobody/nothing:1")
    image = scripted.add_image("some:1", files={"/etc/hostname": b"sandbox\n"})
    with scripted.image_tree(image) as tree:
        assert (tree.root / "etc/hostname").read_bytes() == b"sandbox\n"


def test_open_sandboxes_are_known(scripted: ScriptedDriver) -> None:
    """``open_sandboxes`` contains a sandbox until it is closed. A closed sandbox runs no command."""
    with scripted.create(spec_of(scripted)) as sandbox:
        assert scripted.open_sandboxes == {sandbox}
    assert scripted.open_sandboxes == set()
    with pytest.raises(InfrastructureError, match="closed"):
        sandbox.open(command("greet", "you"))


def test_after_kill_all_nothing_starts(scripted: ScriptedDriver) -> None:
    """``kill_all`` ends running programs. Afterwards, ``create`` and ``open`` raise ``run-stopped``."""
    scripted.program("sleep")(lambda context: context.sleep(30))
    sandbox = scripted.create(spec_of(scripted))
    process = sandbox.open(command("sleep"))
    scripted.kill_all()
    assert process.wait().exit_code == 137
    for start in (lambda: sandbox.open(command("sleep")), lambda: scripted.create(spec_of(scripted))):
        with pytest.raises(EngineError) as stopped:
            start()
        assert stopped.value.code == "run-stopped"


def test_a_time_limit_ends_a_program_that_ignores_it(scripted: ScriptedDriver) -> None:
    """A command ends at its time limit, even if its program never uses its context."""
    stuck = threading.Event()
    scripted.program("stuck")(lambda _context: stuck.wait(30) and 0)
    result = scripted.create(spec_of(scripted)).run(command("stuck", timeout_seconds=0.05))
    stuck.set()
    assert (result.timed_out, result.exit_code) == (True, 124)


def test_the_output_limit_ends_a_flood(scripted: ScriptedDriver) -> None:
    """The output of both streams together is cut at the limit. The result says that the limit was exceeded."""

    @scripted.program("flood")
    def flood(context: ProgramContext) -> None:
        while True:
            context.stdout.write(b"o" * 60)
            context.stderr.write(b"e" * 60)

    result = scripted.create(spec_of(scripted, limits=Limits(output=100))).run(command("flood"))
    assert (result.exit_code, result.output_limit_exceeded) == (137, True)
    assert (result.stdout, result.stderr) == (b"o" * 60, b"e" * 40)


def test_a_program_runs_out_of_memory(scripted: ScriptedDriver) -> None:
    """A program can end as if it had exceeded the memory limit."""
    scripted.program("hog")(lambda context: context.run_out_of_memory())
    result = scripted.create(spec_of(scripted)).run(command("hog"))
    assert (result.exit_code, result.out_of_memory) == (137, True)


def test_collected_is_what_a_program_leaves(scripted: ScriptedDriver) -> None:
    """``collected`` returns what the ended program passed to ``leave``, or no changes if it passed nothing."""
    archive = CollectedArchive(iter([b"an archive"]))
    scripted.program("change")(lambda context: context.leave(archive))
    spec = spec_of(scripted, read_only=False, collect="/srv/app")
    with scripted.create(spec) as sandbox:
        with pytest.raises(InfrastructureError, match="nothing to collect"):
            sandbox.collected()
        sandbox.run(command("change"))
        assert sandbox.collected() is archive
        with pytest.raises(InfrastructureError, match="one command"):
            sandbox.open(command("greet", "you"))
    with scripted.create(spec) as sandbox:
        sandbox.run(command("greet", "you"))
        assert sandbox.collected() == CollectedLayer(-1)
