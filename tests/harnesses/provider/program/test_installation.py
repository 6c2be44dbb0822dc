"""One version of an agent program is installed for all images of a run, and is started to test it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from elf_files import I386
from harnesses.provider_fakes import NEWEST, FakeStore, image_files, run_context
from securebench.agents.catalogue import MUSL, PROGRAMS, machine_platform
from securebench.errors import ConfigError
from securebench.harnesses.provider.program.installation import install

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.testing.scripted_sandbox import ProgramContext, ScriptedDriver

TARGET = "/opt/securebench/programs"
PINNED = PROGRAMS["claude_code"].pinned
MUSL_PLATFORM = machine_platform() + MUSL


@pytest.fixture
def store(tmp_path: Path) -> FakeStore:
    """Return an empty, fake store of agent programs."""
    return FakeStore(tmp_path / "agents")


@pytest.fixture(autouse=True)
def images(scripted: ScriptedDriver) -> None:
    """Add three images to the driver, two with glibc and one with musl."""
    for reference in ("debian", "ubuntu"):
        scripted.add_image(reference, files=image_files("claude_code"))
    scripted.add_image("alpine", files=image_files("claude_code", MUSL_PLATFORM))


def answers(scripted: ScriptedDriver, version: str, code: int = 0) -> None:
    """Make the program print ``version`` and exit with ``code``."""

    @scripted.program("claude")
    def program(context: ProgramContext) -> int:
        context.stdout.write(f"{version} (Claude Code)\n")
        return code


def test_each_image_has_the_program_that_fits(scripted: ScriptedDriver, store: FakeStore) -> None:
    """Each image gets the variant for its C library, in one version. Each variant is tried once, without a network."""
    answers(scripted, PINNED)
    found = install(store, "claude_code", None, run_context(scripted, "debian", "alpine", "ubuntu"), TARGET)
    platforms = {reference: program.platform for reference, program in found.programs.items()}
    assert platforms == {"debian": machine_platform(), "alpine": MUSL_PLATFORM, "ubuntu": machine_platform()}
    assert [command.argv for _, command in scripted.commands] == [(f"{TARGET}/claude", "--version")] * 2
    assert all(spec.network == "none" and spec.read_only for spec, _ in scripted.commands)
    assert found.identity() == {
        "version": PINNED,
        "integrity": {name: f"sha512-{name}" for name in (machine_platform(), MUSL_PLATFORM)},
    }


def test_the_order_of_images_does_not_change_who_an_agent_is(scripted: ScriptedDriver, store: FakeStore) -> None:
    """The identity, which decides whether a run may be resumed, does not depend on the order of the images."""
    answers(scripted, PINNED)
    one = install(store, "claude_code", None, run_context(scripted, "debian", "alpine"), TARGET)
    other = install(store, "claude_code", None, run_context(scripted, "alpine", "debian"), TARGET)
    assert list(one.identity().items()) == list(other.identity().items())


def test_latest_is_one_version_a_run(scripted: ScriptedDriver, store: FakeStore) -> None:
    """``latest`` is resolved for the first image only; the other images get the same version."""
    answers(scripted, NEWEST)
    found = install(store, "claude_code", "latest", run_context(scripted, "debian", "alpine"), TARGET)
    assert store.requested == ["latest", NEWEST]
    assert found.identity()["version"] == NEWEST


def test_a_resumed_run_keeps_its_latest(scripted: ScriptedDriver, store: FakeStore) -> None:
    """A resumed run with ``latest`` keeps the version of its start. Without ``latest``, it ignores that version."""
    answers(scripted, "1.0.0")
    before = {"program": "claude_code", "version": "1.0.0"}
    install(store, "claude_code", "latest", run_context(scripted, "debian", agent=before), TARGET)
    assert store.requested == ["1.0.0"]
    answers(scripted, PINNED)
    install(store, "claude_code", None, run_context(scripted, "debian", agent=before), TARGET)
    assert store.requested == ["1.0.0", None]


def test_another_programs_version_is_not_taken(scripted: ScriptedDriver, store: FakeStore) -> None:
    """If the run had another agent program before, ``latest`` is resolved again."""
    answers(scripted, NEWEST)
    before = {"program": "codex", "version": "1.0.0"}
    install(store, "claude_code", "latest", run_context(scripted, "debian", agent=before), TARGET)
    assert store.requested == ["latest"]


@pytest.mark.parametrize(("version", "code"), [("0.0.1", 0), (PINNED, 1)])
def test_a_program_that_does_not_start_is_refused(
    scripted: ScriptedDriver, store: FakeStore, version: str, code: int
) -> None:
    """A program that fails or prints another version is a configuration error that names the image."""
    answers(scripted, version, code)
    with pytest.raises(ConfigError, match="the image debian") as raised:
        install(store, "claude_code", None, run_context(scripted, "debian"), TARGET)
    assert raised.value.code == "agent-unfit"


def test_an_image_without_its_c_library_is_refused(scripted: ScriptedDriver, store: FakeStore) -> None:
    """An image without a C library is refused before anything is started in it. The error names the image."""
    scripted.add_image("empty", files={"/etc/passwd": b""})
    with pytest.raises(ConfigError, match="the image empty") as raised:
        install(store, "claude_code", None, run_context(scripted, "empty"), TARGET)
    assert raised.value.code == "agent-unfit"
    assert not scripted.commands


def test_a_program_that_is_made_for_something_else_is_refused(
    scripted: ScriptedDriver, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program whose ELF header names another machine type is refused and never started."""
    monkeypatch.setattr("harnesses.provider_fakes.MACHINE", I386)
    with pytest.raises(ConfigError, match="the image debian") as raised:
        install(store, "claude_code", None, run_context(scripted, "debian"), TARGET)
    assert raised.value.code == "agent-unfit"
    assert not scripted.commands
