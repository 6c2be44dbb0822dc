"""Declarations of agents: those that come with SecureBench, and those in a user's directory."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from securebench import plugins
from securebench.agents.catalogue import PROGRAMS, find
from securebench.errors import ConfigError
from securebench.harnesses.provider.events.mapped import MappedEventParser
from securebench.harnesses.provider.harness import Call, ProviderHarness
from securebench.harnesses.provider.program.declared_files import DeclaredFiles
from securebench.plugins import ExtensionKind
from securebench.tester_config import ProviderSettings

if TYPE_CHECKING:
    from pathlib import Path

INTEGRITY = f"sha512-{'A' * 86}=="
TINY = f"""schema_version: "0.1"
source:
  archive: tiny.tgz
  version: 1.0.0
  integrity: {INTEGRITY}
  executable: tiny.py
runtime: python
dialect: chat_completions
default_model: small
aliases: [small]
arguments: [--model, "{{model}}", --url, "{{base_url}}", "{{prompt}}"]
family_arguments:
  repo_patch: [--repository, "{{prompt}}"]
environment:
  KEY: "{{api_key}}"
  EXACT: {{when: exact_model, value: "{{model}}"}}
events:
  - {{match: {{type: say}}, kind: message, text: message.content.*.text}}
  - {{match: {{type: tool}}, kind: command, text: input.command}}
  - {{match: {{type: end, ok: false}}, kind: gave_up}}
  - {{match: {{type: end}}, kind: usage, counts: {{turns: turns, input_tokens: models.*.input}}}}
gave_up_exit_codes: [3]
"""
CALL = Call(executable="tiny", base_url="http://127.0.0.1:8788/v1", key_name="OPENAI_API_KEY", prompt="Do it.")


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's directory of declarations, which contains ``tiny.yaml``."""
    monkeypatch.setenv(plugins.AGENTS_VARIABLE, str(tmp_path))
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path


def declared(agents: Path, **changes: str) -> ConfigError:
    """Return the error for ``tiny.yaml`` after each key of ``changes`` was replaced by its value."""
    text = TINY
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (agents / "tiny.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        find("tiny")
    return caught.value


def test_every_own_declaration_is_valid() -> None:
    """All declarations that come with SecureBench can be read, and each has a default version and variants."""
    assert {"codex", "claude_code"} <= set(PROGRAMS)
    assert all(known.is_own and known.pinned and known.variants for known in PROGRAMS.values())


def test_a_file_in_the_users_directory_is_a_harness(agents: Path) -> None:
    """The harness has the name of the file, and the default model and arguments of the declaration."""
    assert plugins.is_known(ExtensionKind.HARNESS, "tiny")
    assert plugins.names(ExtensionKind.HARNESS)[-1] == "tiny"
    kind = plugins.load(ExtensionKind.HARNESS, "tiny")
    assert kind.settings_defaults == {"model": "small"}
    harness = kind.from_settings(ProviderSettings(model="small"))
    assert harness.argv(CALL) == ("tiny", "--model", "small", "--url", "http://127.0.0.1:8788/v1", "Do it.")
    assert harness.settings(CALL) == {"KEY": "held-outside-the-sandbox"}
    assert not harness.known.is_own
    assert harness.identity() is None


def test_arguments_depend_on_the_family_and_the_model(agents: Path) -> None:
    """A family can replace the arguments, a variable can have a condition, and prompts are not expanded."""
    harness = ProviderHarness("tiny", ProviderSettings(model="big"))
    call = Call(executable="tiny", base_url="u", key_name="K", prompt="{model}", family="repo_patch")
    assert harness.argv(call) == ("tiny", "--repository", "{model}")
    assert harness.settings(call)["EXACT"] == "big"


def test_events_are_read_by_rules(agents: Path) -> None:
    """Rules extract texts, commands, counts and ``gave_up`` from events. Values of another type are ignored."""
    parser = ProviderHarness("tiny", ProviderSettings(model="m")).parser()
    assert isinstance(parser, MappedEventParser)
    parser.take({"type": "say", "message": {"content": [{"text": "a"}, {"text": 7}, "x", {"text": "b"}]}})
    parser.take({"type": "tool", "input": {"command": "ls"}})
    parser.take({"type": "tool", "input": ["command"]})
    parser.take({"type": "end", "ok": False, "turns": 3, "models": {"one": {"input": 5}, "two": {"input": 6}}})
    report = parser.self_report
    assert (report.message, report.gave_up, report.turns, report.tokens) == ("a\nb", True, 3, {"input_tokens": 11})
    assert report.answered
    assert '"command": "ls"' in parser.trajectory.text()


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("dialect: chat_completions", "dialect: smoke_signals", 8, "dialect must be"),
        ("{base_url}", "{base_ulr}", 11, "did you mean 'base_url'?"),
        ("executable: tiny.py", "executable: ../tiny.py", 6, "executable"),
        ("  archive: tiny.tgz", "  npm: tiny\n  archive: tiny.tgz", 3, "exactly one of"),
        ("  executable: tiny.py\n", "", 3, "'executable' and 'integrity'"),
        (INTEGRITY, "sha256-abc", 5, "integrity"),
        ('"0.1"', '"9"', 1, 'write schema_version: "0.1"'),
        ("kind: gave_up", "kind: surrendered", 20, "kind must be"),
        ("gave_up_exit_codes: [3]", "gave_up_exit_codes: [0]", 22, "at least 1"),
        ("runtime: python", "runtimes: python", 7, "did you mean 'runtime'?"),
        ('"{model}", --url', '"{effort}", --url', 11, "with 'when: effort'"),
        ('"{model}", --url', "{when: max_turns, arguments: ['{effort}']}, --url", 11, "with 'when: effort'"),
        ('"{model}", --url', '"--x={extra_arguments}", --url', 11, "a separate argument"),
        ('KEY: "{api_key}"', 'KEY: "{mcp_servers_json}"', 15, "with 'when: mcp_servers'"),
        ('when: exact_model, value: "{model}"', "when: effort, value: '{max_turns}'", 16, "'when: max_turns'"),
        ("when: exact_model", "when: efort", 16, "'provider_tools', 'no_provider_tools', 'exact_model', 'effort'"),
        ("environment:", "files: {a.json: '{prompt}'}\nenvironment:", 14, "not available in files"),
    ],
)
def test_a_mistake_is_reported_with_its_place(agents: Path, old: str, new: str, line: int, expected: str) -> None:
    """A mistake in a declaration is reported with its file, line and column."""
    (problem, *_) = declared(agents, **{old: new}).problems
    assert problem.location is not None
    assert (problem.location.file, problem.location.line) == (str(agents / "tiny.yaml"), line)
    assert problem.location.column
    assert expected in f"{problem.message} {problem.hint}"


def test_settings_may_be_used_under_their_conditions(agents: Path) -> None:
    """Arguments and variables that use an optional setting are left out if the setting is not given.

    Files need no such condition to use an optional setting.
    """
    text = TINY.replace('"{prompt}"]', '"{prompt}", {when: effort, arguments: ["{effort}"]}, "{extra_arguments}"]', 1)
    text = text.replace("when: exact_model", "when: instructions").replace("EXACT", "TEXT")
    text += "files: {mcp.json: '{mcp_servers_json}', TEXT.md: '{instructions}'}\n"
    (agents / "tiny.yaml").write_text(text.replace('value: "{model}"', 'value: "{instructions}"'))
    harness = ProviderHarness("tiny", ProviderSettings(model="m", effort="high", extra_arguments=("--more",)))
    assert harness.argv(CALL)[-3:] == ("Do it.", "high", "--more")
    assert "TEXT" not in harness.settings(CALL)
    (agents / "note.md").write_text("Be brief.")
    harness = ProviderHarness("tiny", ProviderSettings(model="m", instructions_file=agents / "note.md"))
    assert harness.argv(CALL)[-1] == "Do it."
    assert harness.settings(CALL)["TEXT"] == "Be brief."
    files = DeclaredFiles(harness.declared.files, harness._values(CALL))
    (mount,) = files.mounts
    found = {path.name: path.read_text() for path in mount.source.iterdir()}
    assert found == {"mcp.json": '{"mcpServers": {}}', "TEXT.md": "Be brief."}


def test_an_own_name_is_not_replaced(agents: Path) -> None:
    """A user's file with the name of an agent of SecureBench is an error, and does not replace this agent."""
    (agents / "codex.yaml").write_text(TINY)
    with pytest.raises(ConfigError) as caught:
        find("codex")
    assert caught.value.code == "plugin-conflict"
    (agents / "codex.yaml").unlink()
    assert find("codex").is_own


def test_files_with_other_names_are_ignored_with_the_reason(agents: Path) -> None:
    """K26: files with unsafe or reserved names are not used, because names become part of paths and messages.

    Files that end in ``.yml`` are not used, either. Other files, such as ``notes.txt``, are not reported.
    """
    for name in (
        "Big.yaml",
        "a b.yaml",
        "-x.yaml",
        "x\x1b[2J.yaml",
        "tiny.yml",
        "node.yaml",
        "python.yaml",
        "notes.txt",
    ):
        (agents / name).write_text(TINY)
    own = {name for name, known in PROGRAMS.items() if known.is_own}
    assert set(PROGRAMS) - own == {"tiny"}
    ignored = {path.name: why for path, why in plugins.ignored_agents().items()}
    assert ignored.keys() == {path.name for path in agents.iterdir()} - {"tiny.yaml", "notes.txt"}
    assert "reserved" in ignored["node.yaml"]
    assert "only a-z" in ignored["Big.yaml"]


def test_a_name_is_used_once(agents: Path) -> None:
    """A program that embeds SecureBench cannot register a harness with the name of a declared agent."""
    with pytest.raises(ConfigError, match="already used"):
        plugins.register(ExtensionKind.HARNESS, "tiny", object())


def test_files_are_put_into_each_home(tmp_path: Path) -> None:
    """A shell copies the declared files into the home, so that the program may change the copies.

    The originals are mounted read-only, and all users can read them.
    """
    files = DeclaredFiles({".tiny/settings.json": '{"url": "{base_url}", "other": {}}'}, {"base_url": "http://x"})
    (mount,) = files.mounts
    copied = mount.source / ".tiny/settings.json"
    assert copied.read_text() == '{"url": "http://x", "other": {}}'
    assert {path.stat().st_mode & 0o005 for path in (mount.source, copied.parent)} == {0o005}
    home = tmp_path / "home"
    home.mkdir()
    command = [word.replace(mount.target, str(mount.source)) for word in files.command]
    result = subprocess.run([*command, "cat", ".tiny/settings.json"], cwd=home, env={"HOME": str(home)}, check=True)
    assert result.returncode == 0
    assert mount.read_only
