"""Tester YAML, schema version 0.2."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack_files import row, write_pack
from securebench import plugins
from securebench.errors import ConfigError
from securebench.limits import MIB, Limits
from securebench.tester_config import (
    Budget,
    CommandConfig,
    CommandProvider,
    Prices,
    ProviderSettings,
    SandboxConfig,
    load_tester_config,
    require_output_dir,
)
from securebench.tester_config.settings import AgentVariables, ProviderTimeoutSettings

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.errors import Problem
    from securebench.tester_config import TesterConfig

MINIMAL = {
    "schema_version": '"0.2"',
    "run": "{id: first, output_dir: ../runs}",
    "benchmark": "{manifest: manifest.yaml, tasks: tasks.jsonl}",
    "harness": "{type: command, config: {command: 'echo hi'}}",
}


@pytest.fixture
def pack_dir(tmp_path: Path) -> Path:
    """Return the directory of a pack, in which the tester YAML is written."""
    directory = tmp_path / "pack"
    directory.mkdir()
    write_pack(directory, row())
    return directory


def load(directory: Path, **sections: str) -> TesterConfig:
    """Load a tester YAML with these sections instead of the minimal ones. A section with empty text is omitted."""
    given = {**MINIMAL, **sections}
    text = "".join(f"{name}: {body}\n" for name, body in given.items() if body)
    (directory / "tester.yaml").write_text(text, encoding="utf-8")
    return load_tester_config(directory / "tester.yaml")


def problems(directory: Path, **sections: str) -> list[Problem]:
    """Return the problems of a tester YAML, which must be refused."""
    with pytest.raises(ConfigError) as caught:
        load(directory, **sections)
    return list(caught.value.problems)


def command(config: str) -> str:
    """Return a harness section of type command."""
    return f"{{type: command, config: {{command: x, {config}}}}}"


def test_the_smallest_file_has_the_documented_defaults(pack_dir: Path) -> None:
    """A field that is missing has its default. Paths are relative to the file."""
    config = load(pack_dir)
    assert (config.run.id, config.run.output_dir, config.run.max_workers) == ("first", pack_dir.parent / "runs", 1)
    assert config.benchmark.manifest == pack_dir / "manifest.yaml"
    assert config.benchmark.tasks == pack_dir / "tasks.jsonl"
    assert config.harness.type == "command"
    assert config.harness.env == ()
    assert config.harness.config == CommandConfig(command=("/bin/sh", "-c", "echo hi"), timeout_seconds=900.0)
    assert config.verification.disallow_dangerous_commands
    assert config.verification.deny_commands == ()
    assert config.sandbox == SandboxConfig("auto", None, Limits())
    assert config.path == pack_dir / "tester.yaml"
    assert len(config.digest) == 64


def test_the_machine_may_decide_how_many_tasks_run_at_once(pack_dir: Path) -> None:
    """``max_workers`` may be ``auto`` instead of a number."""
    assert load(pack_dir, run="{id: r, output_dir: ../out, max_workers: auto}").run.max_workers == "auto"


def test_every_field_is_read(pack_dir: Path) -> None:
    """Each field of the file sets the field of the same name in the configuration."""
    (pack_dir / "agent").mkdir()
    config = load(
        pack_dir,
        run="{id: r, output_dir: ../out, max_workers: 4}",
        harness="{type: command, env: [API_KEY, _x], config: {command: [python3, /opt/a.py], "
        "artifact_path: out/a.txt, agent_dir: agent, task_file: in.json, timeout_seconds: 60, "
        "allowed_domains: [API.Example.com, x.example.org]}}",
        verification="{disallow_dangerous_commands: false, deny_commands: [chroot]}",
        sandbox="{driver: docker, runtime: runsc, limits: {memory: 512m, pids: 64, cpus: 0.5, tmpfs: 1M, "
        "open_files: 256, file_size: 1g, output: 64k}}",
    )
    assert config.run.max_workers == 4
    assert config.harness.env == ("API_KEY", "_x")
    assert config.harness.config == CommandConfig(
        command=("python3", "/opt/a.py"),
        artifact_path="out/a.txt",
        agent_dir=pack_dir / "agent",
        task_file="in.json",
        timeout_seconds=60,
        allowed_domains=("api.example.com", "x.example.org"),
    )
    assert not config.verification.disallow_dangerous_commands
    assert config.verification.deny_commands == ("chroot",)
    limits = Limits(
        memory=512 * MIB, pids=64, cpus=0.5, tmpfs=MIB, open_files=256, file_size=1024 * MIB, output=64 * 1024
    )
    assert config.sandbox == SandboxConfig("docker", "runsc", limits)


def test_the_provider_harnesses_are_read(pack_dir: Path) -> None:
    """``codex`` needs a model and ``claude_code`` has a default model. Both have a default time limit."""
    codex = load(pack_dir, harness="{type: codex, config: {model: gpt-5, version: 0.20.0, allowed_domains: [a.b]}}")
    assert codex.harness.config == ProviderSettings(model="gpt-5", version="0.20.0", allowed_domains=("a.b",))
    assert codex.harness.config.timeout_seconds == 900.0
    claude = load(pack_dir, harness="{type: claude_code}")
    assert claude.harness.config == ProviderSettings(model="sonnet", timeout_seconds=900.0)
    assert [problem.code for problem in problems(pack_dir, harness="{type: codex}")] == ["field-missing"]


def codex(config: str) -> str:
    """Return a harness section of type codex."""
    return f"{{type: codex, config: {{model: m, {config}}}}}"


def test_all_of_a_provider_harness_is_read(pack_dir: Path) -> None:
    """Each setting is stored in its own field. Limits of the budget that are not set keep their defaults."""
    config = load(
        pack_dir,
        harness="{type: claude_code, config: {model: opus, version: latest, credentials: relay, "
        "base_url: 'HTTPS://Models.Example.com:443/v1/', provider_tools: true, budget: {requests: 7, bytes: 2m}, "
        "provider_timeouts: {connect: 5, first_byte: 6.5, between_bytes: 7, whole_answer: 8}}}",
    ).harness.config
    assert config == ProviderSettings(
        model="opus",
        version="latest",
        base_url="https://models.example.com/v1",
        provider_tools=True,
        budget=Budget(requests=7, bytes=2 * MIB),
        provider_timeouts=ProviderTimeoutSettings(connect=5, first_byte=6.5, between_bytes=7, whole_answer=8),
    )
    assert config.budget.tokens == Budget().tokens


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://localhost:80/v1/", "http://localhost/v1"),
        ("http://ollama:11434/v1", "http://ollama:11434/v1"),
        ("http://models.local/a/b", "http://models.local/a/b"),
        ("http://192.168.3.4:1234/v1", "http://192.168.3.4:1234/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("https://203.0.113.7/v1", "https://203.0.113.7/v1"),
        ("https://a.example.com:8443", "https://a.example.com:8443"),
    ],
)
def test_an_endpoint_is_kept_in_one_form(pack_dir: Path, written: str, kept: str) -> None:
    """Base URLs are normalized. HTTPS may go to any host, plain HTTP to this machine and private networks."""
    config = load(pack_dir, harness=codex(f"base_url: '{written}'")).harness.config
    assert isinstance(config, ProviderSettings)
    assert config.base_url == kept


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.com",
        "ftp://api.example.com",
        "//api.example.com",
        "https://",
        "https:///v1",
        "https://user@api.example.com",
        "https://user:key@api.example.com/v1",
        "https://api.example.com/v1?key=1",
        "https://api.example.com/v1#x",
        "https://api.example.com:0",
        "https://api.example.com:",
        "https://api.example.com:65536",
        "https://api.example.com:x",
        "https://api.example.com/../v1",
        "https://api.example.com/a//b",
        "https://api.example.com/%2e%2e/",
        "https://api.example.com\\\\@evil.example",
        "https://api .example.com",
        "https://b\u00fccher.example",
        "https://-a.example.com",
        "https://a..example.com",
        "https://api.example.com./v1",
        "http://127.1/v1",
        "http://2130706433/v1",
        "http://0x7f000001/v1",
        "http://0177.0.0.1/v1",
        "http://[::1/v1",
        "http://[fe80::1%eth0]/v1",
        "https://" + "a" * 1000 + ".example.com",
    ],
)
def test_j05_what_is_no_plain_endpoint_is_refused(pack_dir: Path, url: str) -> None:
    """J05: URLs with users, queries, escapes, invalid ports, ``..`` or unusual forms of an address are refused."""
    (problem,) = problems(pack_dir, harness=codex(f'base_url: "{url}"'))
    assert problem.code == "base-url-invalid"
    assert problem.location
    assert (problem.location.line, problem.location.pointer) == (4, "/harness/config/base_url")


@pytest.mark.parametrize(
    "url",
    ["http://api.example.com/v1", "http://8.8.8.8", "http://0.0.0.0:8000", "http://[2600::1]", "http://local.example"],
)
def test_no_key_crosses_the_internet_in_the_clear(pack_dir: Path, url: str) -> None:
    """A base URL with plain HTTP to a host that is neither this machine nor in a private network is refused."""
    assert [problem.code for problem in problems(pack_dir, harness=codex(f"base_url: '{url}'"))] == ["base-url-unsafe"]


@pytest.mark.parametrize(
    "url", ["http://localhost:8000", "https://10.0.0.1", "https://models", "https://a.example.com:8443"]
)
def test_passthrough_needs_what_the_proxy_admits(pack_dir: Path, url: str) -> None:
    """``credentials: passthrough`` uses the proxy, which admits only HTTPS to port 443 of a DNS name with a dot.

    Any other endpoint is refused.
    """
    found = problems(pack_dir, harness=codex(f"base_url: '{url}', credentials: passthrough"))
    assert [problem.code for problem in found] == ["passthrough-endpoint"]
    load(pack_dir, harness=codex("base_url: 'https://a.example.com/v1', credentials: passthrough"))


@pytest.mark.parametrize("setting", ["budget: {requests: 1}", "provider_tools: false", "auth: bearer"])
def test_passthrough_promises_nothing_that_the_relay_holds(pack_dir: Path, setting: str) -> None:
    """J18: with ``credentials: passthrough``, a setting that needs the relay is refused. It is not ignored."""
    (problem,) = problems(pack_dir, harness=codex(f"credentials: passthrough, {setting}"))
    assert problem.code == "passthrough-unbounded"
    load(pack_dir, harness=codex(setting))


@pytest.mark.parametrize(
    ("setting", "pointer", "hint"),
    [
        ("base_urll: https://a.b", "base_urll", "base_url"),
        ("credentials: relais", "credentials", "relay"),
        ("credentials: true", "credentials", ""),
        ("provider_tools: 1", "provider_tools", ""),
        ("budget: 5", "budget", ""),
        ("budget: {request: 5}", "budget/request", "requests"),
        ("budget: {requests: 0}", "budget/requests", ""),
        ("budget: {tokens: 1.5}", "budget/tokens", ""),
        ("budget: {bytes: 1t}", "budget/bytes", ""),
        ("version: ^1.2.3", "version", ""),
        ("version: 1.2", "version", ""),
        ("version: '1.2'", "version", ""),
        ("version: newest", "version", ""),
    ],
)
def test_settings_of_a_provider_harness_are_strict(pack_dir: Path, setting: str, pointer: str, hint: str) -> None:
    """Unknown keys and wrong values are refused with their place in the file.

    A version must be exact or ``latest``.
    """
    (problem,) = problems(pack_dir, harness=codex(setting))
    assert problem.location
    assert problem.location.pointer == f"/harness/config/{pointer}"
    assert hint in problem.hint


def test_a_command_has_no_provider(pack_dir: Path) -> None:
    """The setting ``base_url`` of provider harnesses is refused for a command."""
    assert problems(pack_dir, harness=command("base_url: 'https://a.b'"))[0].code == "field-unknown"


@pytest.mark.parametrize(
    ("version", "hint"), [("0.2", "quotes"), ("0.20", "quotes"), ("2", "quotes"), ('"0.3"', "0.2"), ('"0.20"', "0.2")]
)
def test_k23_the_schema_version_is_a_text(pack_dir: Path, version: str, hint: str) -> None:
    """K23: for a number, the hint is to quote it; for an unknown version, the hint names the supported one."""
    (problem,) = problems(pack_dir, schema_version=version)
    assert problem.code == "schema-version"
    assert hint in problem.hint


def test_all_mistakes_are_told_at_once_with_places_and_suggestions(pack_dir: Path) -> None:
    """Unknown keys, wrong values and unsafe paths in one file are reported in one error."""
    (pack_dir / "tester.yaml").write_text(
        'schema_version: "0.2"\n'
        "run:\n"
        "  id: first\n"
        "  output_dir: runs\n"
        "  max_worker: 2\n"
        "benchmark:\n"
        "  manifest: manifest.yaml\n"
        "  tasks: task.jsonl\n"
        "harness:\n"
        "  type: comand\n"
        "verificaton: {}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_tester_config(pack_dir / "tester.yaml")
    found = [(p.code, p.location.line, p.location.column, p.hint) for p in caught.value.problems if p.location]
    assert found == [
        ("output-dir-unsafe", 4, 15, "use a separate directory for the run, such as '../runs/first'"),
        ("field-unknown", 5, 3, "did you mean 'max_workers'?"),
        ("file-missing", 8, 10, "paths are relative to this file"),
        ("field-value", 10, 9, "did you mean 'command'?"),
        ("field-unknown", 11, 1, "did you mean 'verification'?"),
    ]


@pytest.mark.parametrize(
    ("sections", "code", "pointer"),
    [
        ({"schema_version": ""}, "field-missing", "/schema_version"),
        ({"run": ""}, "field-missing", "/run"),
        ({"run": "{id: '', output_dir: ../r}"}, "id-invalid", "/run/id"),
        ({"run": "{id: 1, output_dir: ../r}"}, "field-type", "/run/id"),
        ({"run": "{id: a, output_dir: ''}"}, "path-unsafe", "/run/output_dir"),
        ({"run": "{id: a, output_dir: ~}"}, "field-type", "/run/output_dir"),
        ({"run": "{id: a, output_dir: ~/runs}"}, "path-unsafe", "/run/output_dir"),
        ({"run": "{id: a, output_dir: ../r, max_workers: 0}"}, "field-value", "/run/max_workers"),
        ({"run": "{id: a, output_dir: ../r, max_workers: true}"}, "field-type", "/run/max_workers"),
        ({"run": "{id: a, output_dir: ../r, max_workers: 1.5}"}, "field-type", "/run/max_workers"),
        ({"run": "{id: a, output_dir: ../r, max_workers: many}"}, "field-value", "/run/max_workers"),
        ({"harness": "{type: command}"}, "field-missing", "/harness/config/command"),
        ({"harness": "{type: command, config: []}"}, "field-type", "/harness/config"),
        ({"harness": "{type: command, config: {comand: x}}"}, "field-missing", "/harness/config/command"),
        ({"harness": "{type: command, config: {command: ''}}"}, "field-empty", "/harness/config/command"),
        ({"harness": "{type: command, config: {command: []}}"}, "field-value", "/harness/config/command"),
        (
            {"harness": "{type: command, config: {command: 'a\\0b'}}".replace("'", '"')},
            "field-value",
            "/harness/config/command",
        ),
        ({"harness": "{type: claude_code, config: {command: x}}"}, "field-unknown", "/harness/config/command"),
        ({"harness": "{type: codex, config: {model: --evil}}"}, "field-value", "/harness/config/model"),
        ({"harness": "{type: codex, config: {model: m, version: 'a b'}}"}, "field-value", "/harness/config/version"),
        ({"harness": command("timeout_seconds: 0")}, "timeout-invalid", "/harness/config/timeout_seconds"),
        ({"harness": command("timeout_seconds: .inf")}, "yaml-value", "/harness/config/timeout_seconds"),
        ({"harness": command("artifact_path: ../x")}, "path-unsafe", "/harness/config/artifact_path"),
        ({"harness": command("artifact_path: /etc/passwd")}, "path-unsafe", "/harness/config/artifact_path"),
        ({"harness": command("task_file: securebench/x.json")}, "path-unsafe", "/harness/config/task_file"),
        ({"harness": command("task_file: .GIT/x")}, "path-unsafe", "/harness/config/task_file"),
        ({"verification": "{deny_commands: [chrot]}"}, "command-unknown", "/verification/deny_commands/0"),
        (
            {"verification": "{disallow_dangerous_commands: 'no'}"},
            "field-type",
            "/verification/disallow_dangerous_commands",
        ),
        ({"sandbox": "{driver: podman}"}, "field-value", "/sandbox/driver"),
        ({"sandbox": "{runtime: '../runc'}"}, "field-value", "/sandbox/runtime"),
        ({"sandbox": "{limits: {memory: 1k}}"}, "field-value", "/sandbox/limits/memory"),
        ({"sandbox": "{limits: {memory: lots}}"}, "field-type", "/sandbox/limits/memory"),
        ({"sandbox": "{limits: {memory: -1}}"}, "field-value", "/sandbox/limits/memory"),
        ({"sandbox": "{limits: {pids: 1000000}}"}, "field-value", "/sandbox/limits/pids"),
        ({"sandbox": "{limits: {cpus: 0}}"}, "field-value", "/sandbox/limits/cpus"),
        ({"sandbox": "{limits: {network: host}}"}, "field-unknown", "/sandbox/limits/network"),
        ({"sandbox": "{privileged: true}"}, "field-unknown", "/sandbox/privileged"),
    ],
)
def test_a_wrong_field_is_refused(pack_dir: Path, sections: dict[str, str], code: str, pointer: str) -> None:
    """I02, K16, K22: a wrong field is refused with an error code and its place in the file."""
    found = [
        (problem.code, problem.location.pointer if problem.location else "")
        for problem in problems(pack_dir, **sections)
    ]
    assert (code, pointer) in found


def test_an_agent_whose_file_is_ignored_is_explained(pack_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K26: if the file of an agent is ignored because of its name, the hint says so."""
    (pack_dir / "agents").mkdir()
    (pack_dir / "agents/My.yaml").touch()
    monkeypatch.setenv(plugins.AGENTS_VARIABLE, str(pack_dir / "agents"))
    (problem,) = problems(pack_dir, harness="{type: My, config: {}}")
    assert "agents/My.yaml is ignored: the name of an agent" in problem.hint


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ("['']", "env-name"),
        ("[A=B]", "env-name"),
        ("[A B]", "env-name"),
        ("[1A]", "env-name"),
        ("['A\\n']", "env-name"),
        ("[A, A]", "field-duplicate"),
        ("A", "field-type"),
        ("[1]", "field-type"),
    ],
)
def test_env_holds_names_only(pack_dir: Path, names: str, code: str) -> None:
    """An item of ``env`` that is not the name of a variable, or is repeated, is refused."""
    given = f"{{type: command, env: {names}, config: {{command: x}}}}"
    assert problems(pack_dir, harness=given)[0].code == code


@pytest.mark.parametrize("name", ["example.com", "a.b", "API.example.com", "xn--bcher-kva.example", "1.example.com"])
def test_domains_are_dns_names(pack_dir: Path, name: str) -> None:
    """A DNS name with at least two labels is accepted as a domain, and stored in lower case."""
    config = load(pack_dir, harness=command(f"allowed_domains: ['{name}']")).harness.config
    assert config.allowed_domains == (name.lower(),)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "localhost",
        "com",
        "a.localhost",
        "https://example.com",
        "example.com:443",
        "example.com/x",
        "*.example.com",
        "127.0.0.1",
        "::1",
        "[::1]",
        "0x7f.1",
        "1.2",
        "user@example.com",
        "example.com.",
        ".example.com",
        "a..b",
        "a_b.com",
        "-a.com",
        "a-.com",
        "x" * 64 + ".com",
        ".".join(["x" * 60] * 5),
        "b\u00fccher.example",
        "ex\u0430mple.com",
        " a.com",
    ],
)
def test_j05_what_is_no_domain_is_refused(pack_dir: Path, name: str) -> None:
    """J05: schemes, ports, paths, wildcards, addresses, localhost and look-alikes are refused."""
    assert problems(pack_dir, harness=command(f"allowed_domains: ['{name}']"))[0].code == "domain-invalid"


def test_a_domain_stands_once(pack_dir: Path) -> None:
    """The same domain in two spellings is refused as a duplicate."""
    assert problems(pack_dir, harness=command("allowed_domains: [a.b, A.B]"))[0].code == "field-duplicate"


@pytest.mark.parametrize(
    "place", [".", "runs", "./x/../runs", "../pack", "../pack/deep/er", "/", "//", "/../", "../link"]
)
def test_k22_an_unsafe_output_directory_is_refused(pack_dir: Path, place: str) -> None:
    """K22: the pack's directory, any path inside it, and the root are refused, also through ``..`` or a link."""
    (pack_dir.parent / "link").symlink_to(pack_dir)
    found = problems(pack_dir, run=f"{{id: a, output_dir: '{place}'}}")
    assert [problem.code for problem in found] == ["output-dir-unsafe"]


def test_k22_home_directories_are_refused(pack_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K22: home directories, from HOME or the user database, are refused; a directory below one is accepted."""
    monkeypatch.setenv("HOME", str(pack_dir.parent / "home"))
    import pwd

    for home in (str(pack_dir.parent / "home"), pwd.getpwuid(os.getuid()).pw_dir, pwd.getpwuid(0).pw_dir):
        found = problems(pack_dir, run=f"{{id: a, output_dir: '{home}'}}")
        assert [problem.code for problem in found] == ["output-dir-unsafe"]
    assert load(pack_dir, run="{id: a, output_dir: ../home/runs}").run.output_dir == pack_dir.parent / "home" / "runs"


def test_k22_a_file_is_no_output_directory(pack_dir: Path) -> None:
    """K22: an output directory that exists as a file is refused."""
    (pack_dir.parent / "file").write_text("x")
    assert problems(pack_dir, run="{id: a, output_dir: ../file}")[0].code == "output-dir-unusable"


def test_the_check_of_an_output_directory_stands_alone(tmp_path: Path) -> None:
    """``require_output_dir`` checks a directory that is not from a tester YAML: it may not be inside the pack."""
    require_output_dir(tmp_path / "runs", tmp_path / "pack")
    with pytest.raises(ConfigError) as caught:
        require_output_dir(tmp_path / "pack" / "x", tmp_path / "pack")
    assert caught.value.code == "output-dir-unsafe"


def test_the_files_of_the_pack_must_be_there(pack_dir: Path) -> None:
    """K13: a manifest that is missing, a link or a named pipe is refused."""
    (pack_dir / "link").symlink_to("manifest.yaml")
    os.mkfifo(pack_dir / "fifo")
    for name, code in (("missing", "file-missing"), ("link", "file-not-regular"), ("fifo", "file-not-regular")):
        found = problems(pack_dir, benchmark=f"{{manifest: {name}, tasks: tasks.jsonl}}")
        assert [problem.code for problem in found] == [code]


@pytest.mark.parametrize("name", ["missing", "manifest.yaml", "link", ".", "..", "/", "holder"])
def test_an_unsafe_agent_directory_is_refused(pack_dir: Path, name: str) -> None:
    """F16, J15: an ``agent_dir`` is refused if it is a link or no directory.

    It is also refused if it contains the tester YAML or a file of the pack.
    """
    (pack_dir / "real").mkdir()
    (pack_dir / "link").symlink_to("real")
    inner = pack_dir / "holder"
    inner.mkdir()
    (pack_dir / "tasks.jsonl").rename(inner / "tasks.jsonl")
    found = problems(
        pack_dir,
        benchmark="{manifest: manifest.yaml, tasks: holder/tasks.jsonl}",
        harness=command(f"agent_dir: '{name}'"),
    )
    code = "agent-dir-missing" if name in {"missing", "manifest.yaml"} else "agent-dir-unsafe"
    assert [problem.code for problem in found] == [code]


def test_k02_k03_yaml_is_read_strictly(pack_dir: Path) -> None:
    """K01 to K04: duplicate keys, anchors, aliases and words such as ``no`` are refused, as in a manifest."""
    (pack_dir / "tester.yaml").write_text('schema_version: "0.2"\nschema_version: "0.2"\nrun: &a {id: no}\nb: *a\n')
    with pytest.raises(ConfigError) as caught:
        load_tester_config(pack_dir / "tester.yaml")
    assert [problem.code for problem in caught.value.problems] == [
        "key-duplicate",
        "yaml-alias",
        "yaml-value",
        "yaml-alias",
    ]


@pytest.mark.parametrize("text", ["", "[]", "x", "harness: 1", "harness: {type: [command]}", "run: {output_dir: [1]}"])
def test_any_shape_is_refused_without_a_crash(pack_dir: Path, text: str) -> None:
    """A file without the structure of a tester YAML is refused with a configuration error."""
    (pack_dir / "tester.yaml").write_text(text)
    with pytest.raises(ConfigError):
        load_tester_config(pack_dir / "tester.yaml")


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(
        ["x", "0.2", "command", "codex", "..", "/", "", "1", "true", "null", "manifest.yaml", "tasks.jsonl"]
    ),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(
            st.sampled_from(["id", "output_dir", "type", "config", "command", "agent_dir", "limits"]), inner
        ).map(lambda items: "{" + ", ".join(f"{key}: {value or None}" for key, value in items.items()) + "}")
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*MINIMAL, "verification", "sandbox", "zzz"]), VALUES))
def test_any_file_is_taken_or_refused(pack_dir: Path, sections: dict[str, str]) -> None:
    """Any tester YAML is either loaded, or refused with an error whose problems have a location."""
    try:
        load(pack_dir, **sections)
    except ConfigError as error:
        assert all(problem.location for problem in error.problems)  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize("chosen", ["", "driver: auto, ", "driver: docker, ", "driver: oci, "])
def test_our_drivers_have_no_settings(pack_dir: Path, chosen: str) -> None:
    """Settings in ``sandbox.config`` are refused for built-in drivers, also if SecureBench chooses the driver."""
    found = problems(pack_dir, sandbox=f"{{{chosen}config: {{host: x}}}}")
    assert [(problem.code, problem.location.pointer) for problem in found if problem.location] == [
        ("field-unknown", "/sandbox/config/host")
    ]
    assert load(pack_dir, sandbox=f"{{{chosen}config: {{}}}}").sandbox.driver == (chosen[8:-2] or "auto")


def test_the_provider_of_a_command_is_read(pack_dir: Path) -> None:
    """The settings of a command's provider are read. All except ``dialect`` and ``model`` have defaults."""
    config = load(
        pack_dir,
        harness=command(
            "provider: {dialect: messages, model: m, base_url: 'https://A.example.com/v1/', api_key_env: MY_KEY, "
            "provider_tools: true, budget: {requests: 5, bytes: 1m}, timeouts: {first_byte: 9}, "
            "prices: {input: 1, output: 2.5}, variables: {base_url: URL, api_key: KEY, model: NAME}}"
        ),
    ).harness.config
    assert isinstance(config, CommandConfig)
    assert config.provider == CommandProvider(
        dialect="messages",
        model="m",
        base_url="https://a.example.com/v1",
        api_key_env="MY_KEY",
        provider_tools=True,
        budget=Budget(requests=5, bytes=MIB),
        timeouts=ProviderTimeoutSettings(first_byte=9),
        prices=Prices(input=1, output=2.5),
        variables=AgentVariables(base_url="URL", api_key="KEY", model="NAME"),
    )
    least = load(pack_dir, harness=command("provider: {dialect: responses, model: m}")).harness.config
    assert isinstance(least, CommandConfig)
    assert least.provider == CommandProvider(dialect="responses", model="m")


def test_how_a_key_is_sent(pack_dir: Path) -> None:
    """``auth: azure`` is accepted with an ``api_version`` or a URL that ends in ``/v1``; ``bearer`` needs neither."""
    azure = "auth: azure, base_url: 'https://r.openai.azure.com/openai"
    for setting in (f"{azure}', api_version: preview", f"{azure}/v1'", "auth: bearer"):
        load(pack_dir, harness=codex(setting))
        load(pack_dir, harness=command(f"provider: {{dialect: chat_completions, model: m, {setting}}}"))


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ("dialect: chat", "/dialect", "field-value"),
        ("model: ''", "/model", "field-value"),
        ("api_key_env: sk-1234", "/api_key_env", "env-name"),
        ("base_url: 'http://api.example.com/v1'", "/base_url", "base-url-unsafe"),
        ("credentials: passthrough", "/credentials", "field-unknown"),
        ("auth: basic", "/auth", "field-value"),
        ("auth: azure", "", "auth-unfit"),
        ("api_version: '2024-10-21'", "", "auth-unfit"),
        ("api_version: '2024-10-21&x=1'", "/api_version", "field-value"),
        ("auth: azure, base_url: 'https://a.example.com/openai'", "", "auth-unfit"),
        ("provider_timeouts: {connect: 1}", "/provider_timeouts", "field-unknown"),
        ("budget: {requests: 0}", "/budget/requests", "field-value"),
        ("timeouts: {connect: 0}", "/timeouts/connect", "timeout-invalid"),
        ("prices: {input: -1, output: 1}", "/prices/input", "field-value"),
        ("prices: {input: 1}", "/prices/output", "field-missing"),
        ("variables: {base_url: A-B}", "/variables/base_url", "env-name"),
        ("variables: {base_url: A, model: A}", "", "field-duplicate"),
        ("variables: {base_url: OPENAI_API_KEY}", "", "field-duplicate"),
        ("api_key_env: OPENAI_BASE_URL", "", "field-duplicate"),
    ],
)
def test_the_provider_of_a_command_is_strict(pack_dir: Path, changes: str, pointer: str, code: str) -> None:
    """A mistake in the provider of a command is reported with its place in the file."""
    name = changes.partition(":")[0]
    given = "".join(f"{key}: {value}, " for key, value in (("dialect", "responses"), ("model", "m")) if key != name)
    (problem,) = problems(pack_dir, harness=command(f"provider: {{{given}{changes}}}"))
    assert problem.location
    assert (problem.code, problem.location.pointer) == (code, f"/harness/config/provider{pointer}")
