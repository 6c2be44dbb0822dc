"""What an image probe reports as missing, and what it caches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from securebench.sandboxes.base import SandboxSpec
from securebench.tasks import DEFAULT_IMAGE
from securebench.testing.scripted_sandbox import ScriptedDriver
from securebench.verifiers.probe import ImageProbe

if TYPE_CHECKING:
    from securebench.sandboxes.base import SandboxDriver
    from securebench.testing.scripted_sandbox import ProgramContext


def _spec(driver: SandboxDriver) -> SandboxSpec:
    return SandboxSpec(image=driver.resolve_image(DEFAULT_IMAGE))


@pytest.mark.every_driver
def test_a_real_image_is_asked(driver: SandboxDriver) -> None:
    """A probe reports the programs and modules that an image lacks, and whether its Python can compile a source."""
    probe, spec = ImageProbe(), _spec(driver)
    programs = [
        "python3",
        "/usr/bin/python3",
        "test",
        "cd",
        "/nowhere/x",
        "no-such-program",
        "/etc/passwd",
        "/usr",
        "a b",
    ]
    missing = ["/nowhere/x", "no-such-program", "/etc/passwd", "/usr", "a b"]
    assert probe.missing_programs(driver, spec, programs) == missing
    assert probe.missing_programs(driver, spec, ["test", "exec", "cd"], shell=False) == ["exec", "cd"]
    assert probe.missing_programs(driver, spec, ["/proc/self/cwd/app", "/bin/no-such"]) == ["/bin/no-such"]
    relative = replace(spec, environment={"PATH": ":here:/usr/bin"})
    assert probe.missing_programs(driver, relative, ["python3", "no-such"]) == ["no-such"]
    assert probe.missing_modules(driver, spec, ["json", "no_such_module", "sys"]) == ["no_such_module"]
    assert probe.compiles(driver, spec, "x = 1\n")
    assert not probe.compiles(driver, spec, "assert add( == 5\n")


def test_an_answer_is_remembered() -> None:
    """Repeated probes of one image for the same program run only one command."""
    driver, probe = ScriptedDriver(), ImageProbe()

    def say(context: ProgramContext) -> int:
        context.stdout.write("0\nend\n")
        return 0

    driver.program("sh")(say)
    for _ in range(3):
        assert probe.missing_programs(driver, _spec(driver), ["x"]) == ["x"]
    assert len(driver.commands) == 1
    assert probe.missing_programs(driver, _spec(driver), []) == []


@pytest.mark.parametrize(
    ("printed", "code"), [("0\n", 0), ("0\nend\n", 1), ("", 127), ("0\nend\nmore", 0), ("7\nend\n", 0)]
)
def test_what_did_not_run_to_its_end_says_nothing(printed: str, code: int) -> None:
    """A probe that fails, does not finish or prints an unknown number reports nothing as missing."""
    driver, probe = ScriptedDriver(), ImageProbe()

    def say(context: ProgramContext) -> int:
        context.stdout.write(printed)
        return code

    driver.program("sh")(say)
    assert probe.missing_programs(driver, _spec(driver), ["x"]) == []
