"""Tests of ``securebench agents`` with a fake npm registry."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from fake_npm import FakeNpm, fake_npm, package
from pseudo_terminals import shown_on
from securebench import plugins
from securebench.agents import catalogue
from securebench.agents.catalogue import PROGRAMS
from securebench.agents.store import AgentStore
from securebench.cli.agents_command import command
from securebench.errors import ConfigError, InfrastructureError
from securebench.images.store.places import DIRECTORY_VARIABLE
from securebench.testing import agent_check
from securebench.testing.agent_check import FamilyCheck

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

CLAUDE = "@anthropic-ai/claude-code"
MUSL = f"{CLAUDE}-linux-x64-musl"
PLATFORM = ("--platform", "linux-x64-musl")


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNpm]:
    """Yield a registry with one version of one program. The image store is empty."""
    with fake_npm() as npm:
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "images"))
        monkeypatch.setenv("SECUREBENCH_NPM_REGISTRY", npm.url)
        npm.publish(MUSL, "9.8.7", package(MUSL, "9.8.7", "claude"))
        npm.publish(CLAUDE, "9.8.7", b"", tags=("latest",))
        yield npm


def invoke(*arguments: str) -> Result:
    """Run a subcommand. Its exceptions are not caught."""
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_a_program_is_installed_listed_and_removed(npm: FakeNpm, tmp_path: Path) -> None:
    """On a pipe, each stage of an installation is a line on stderr, and each program is a line on stdout."""
    done = invoke("install", "claude_code", "--version", "latest", *PLATFORM)
    (place,) = (tmp_path / "images/trees").glob("*/package")
    assert done.stdout == f"claude_code: 9.8.7 for linux-x64-musl is in {place}\n"
    what = "claude_code 9.8.7 linux-x64-musl"
    assert done.stderr.splitlines() == [f"{what}: {stage}" for stage in ("downloading", "unpacking", "installed")]
    fields = invoke("list").stdout.rstrip("\n").split("\t")
    assert (*fields[:3], *fields[5:]) == ("claude_code", "9.8.7", "linux-x64-musl", "registry", "-")
    assert invoke("remove", "claude_code", "--version", "9.8.7").stdout == f"{what}: removed\n"
    assert invoke("list").stdout == ""


def test_what_is_there_is_told_without_a_stage(npm: FakeNpm) -> None:
    """Installing a program that is already installed prints the same line, and no stages on stderr."""
    arguments = ("install", "claude_code", "--version", "9.8.7", *PLATFORM)
    first, second = invoke(*arguments), invoke(*arguments)
    assert second.stdout == first.stdout
    assert second.stderr == ""


def test_programs_are_told_of_as_json(npm: FakeNpm) -> None:
    """With ``--json``, programs have their directory, integrity, state, size and time of installation."""
    (installed,) = json.loads(invoke("install", "claude_code", "--version", "9.8.7", *PLATFORM, "--json").stdout)
    assert (installed["version"], installed["executable"]) == ("9.8.7", "claude")
    (listed,) = json.loads(invoke("list", "--json", "--verify").stdout)
    assert listed["integrity"] == installed["integrity"]
    assert listed["directory"] == installed["directory"]
    assert (listed["pinned"], listed["intact"], listed["source"]) == (False, True, "registry")
    assert listed["size_bytes"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\+00:00", listed["installed_at"])


def test_an_archive_takes_the_place_of_a_registry(npm: FakeNpm, tmp_path: Path) -> None:
    """``--from`` reads program, version and platform from the archive, and requests nothing from the registry."""
    path = tmp_path / "claude.tgz"
    path.write_bytes(package(MUSL, "9.8.6", "claude"))
    assert "claude_code: 9.8.6 for linux-x64-musl" in invoke("install", "claude_code", "--from", str(path)).stdout
    assert npm.requests == []
    with pytest.raises(ConfigError, match="not codex"):
        invoke("install", "codex", "--from", str(path))
    refused = invoke("install", "--from", str(path), "--version", "9.8.6")
    assert refused.exit_code == 2
    assert "--from allows" in refused.stderr


def test_a_damaged_program_is_shown_as_one(npm: FakeNpm) -> None:
    """A damaged program is listed as damaged, with the advice to install it again."""
    invoke("install", "claude_code", "--version", "9.8.7", *PLATFORM)
    program = AgentStore().installed()[0].program
    (program.directory / program.executable).unlink()
    assert invoke("list").stdout.endswith("damaged: install it again\n")


def test_all_programs_are_meant_unless_one_is_named(npm: FakeNpm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name, ``install`` installs all programs: their pinned versions, unless ``--version`` is given.

    The registry does not have the pinned versions, so without ``--version``, the installation fails.
    """
    only_npm = {name: known for name, known in PROGRAMS.items() if known.package}
    monkeypatch.setattr(catalogue, "PROGRAMS", only_npm)
    with pytest.raises(ConfigError, match="does not have @anthropic-ai/claude-code") as caught:
        invoke("install", "--platform", "linux-x64")
    assert caught.value.code == "agent-unknown-version"
    for known in only_npm.values():
        variant = known.variant("linux-x64")
        version = f"9.8.7{variant.suffix}"
        npm.publish(known.package, "9.8.7", b"", tags=("latest",))
        npm.publish(variant.package, version, package(variant.package, version, variant.executable))
    lines = invoke("install", "--version", "latest", "--platform", "linux-x64").stdout.splitlines()
    assert [line.partition(" is in ")[0] for line in lines] == [f"{name}: 9.8.7 for linux-x64" for name in only_npm]


def test_what_a_run_uses_is_not_removed(npm: FakeNpm) -> None:
    """A program that a run uses is not removed, because it is mounted into sandboxes."""
    with AgentStore() as store:
        store.install("claude_code", "9.8.7", "linux-x64-musl")
        with pytest.raises(InfrastructureError) as caught:
            invoke("remove", "claude_code")
    assert caught.value.code == "agent-in-use"


def test_versions_that_no_run_uses_are_removed_although_others_are_in_use(npm: FakeNpm) -> None:
    """``remove`` removes and lists the unused versions, and its error names all versions in use."""
    for version in ("9.8.6", "9.8.8"):
        npm.publish(MUSL, version, package(MUSL, version, "claude"))
        invoke("install", "claude_code", "--version", version, *PLATFORM)
    with AgentStore() as store:
        for version in ("9.8.6", "9.8.7"):
            store.install("claude_code", version, "linux-x64-musl")
        done = CliRunner().invoke(command, ["remove", "claude_code"])
    assert done.exit_code == 1
    assert done.stdout == "claude_code 9.8.8 linux-x64-musl: removed\n"
    in_use = [f"claude_code {version} linux-x64-musl" for version in ("9.8.6", "9.8.7")]
    assert f"a run uses {', '.join(in_use)}" in str(done.exception)
    assert [line.split("\t")[1] for line in invoke("list").stdout.splitlines()] == ["9.8.6", "9.8.7"]


def test_a_terminal_shows_a_bar_and_a_table(npm: FakeNpm) -> None:
    """On a terminal, ``install`` prints the same line as on a pipe, and ``list`` prints a table."""
    arguments = ["install", "claude_code", "--version", "9.8.7", *PLATFORM]
    assert "claude_code: 9.8.7 for linux-x64-musl is in" in on_terminal(arguments)
    table = on_terminal(["list"])
    assert "┃" in table
    assert "linux-x64-musl" in table


def on_terminal(arguments: list[str]) -> str:
    """Run a subcommand on a new pseudo-terminal, and return what it wrote there."""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140"}
    argv = [sys.executable, "-m", "securebench", "agents", *arguments]
    with subprocess.Popen(argv, stdout=its, stderr=its, stdin=its, env=environment) as process:
        os.close(its)
        shown = shown_on(ours)
        assert process.wait(30) == 0, shown
    os.close(ours)
    return shown


def test_a_declaration_is_shown() -> None:
    """``show`` prints the path of a declaration's file, and then the file.

    With ``--json``, it prints the declaration as JSON.
    """
    shown = invoke("show", "opencode")
    assert shown.exit_code == 0
    assert shown.output.startswith("# /")
    assert "opencode-linux-x64" in shown.output
    value = json.loads(invoke("show", "opencode", "--json").output)
    assert (value["name"], value["built_in"], value["dialect"]) == ("opencode", True, "chat_completions")


def test_an_unknown_family_is_a_wrong_use() -> None:
    """``check`` with an unknown family is a usage error, and the message lists the families."""
    result = invoke("check", "opencode", "--family", "riddles")
    assert result.exit_code == 2
    assert "short_answer" in result.output


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_a_check_prints_a_line_for_each_family(passed: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``check`` prints a line per family, and the output of a failed agent on stderr, without control characters."""
    shown = {} if passed else {"output": "Traceback\n\x1b[31mValueError: no model", "details": "securebench show x"}
    result = FamilyCheck("short_answer", passed, "worked", "\x1b[31mred", **shown)
    monkeypatch.setattr(agent_check, "check_agent", lambda *_args, **_options: (result,))
    invoked = invoke("check", "codex")
    assert invoked.exit_code == code
    assert invoked.stdout.startswith(("passed" if passed else "failed") + "\tshort_answer\tworked\t")
    assert "\x1b" not in invoked.output
    assert ("ValueError: no model\n    for the full output, run: securebench show x" in invoked.stderr) is not passed


def test_a_declaration_with_an_unusable_name_is_a_warning(
    npm: FakeNpm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K26: a declaration whose file name is not allowed is ignored with a warning that escapes control characters."""
    monkeypatch.setenv(plugins.AGENTS_VARIABLE, str(tmp_path / "agents"))
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/x\x1b[2J\n.yaml").touch()
    done = invoke("list")
    assert done.exit_code == 0
    assert done.stderr.startswith(f"warning: {tmp_path}/agents/x\\x1b[2J\\n.yaml is ignored: the name of an agent")
