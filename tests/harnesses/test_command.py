"""The command harness runs the tester's command, and refuses a configuration that cannot work."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from pydantic import ValidationError

from harnesses.conftest import VIEW
from harnesses.provider_fakes import FakeGateway
from securebench.egress.model import EgressPlan
from securebench.errors import ConfigError, EgressError, FailureReason, InfrastructureError
from securebench.harnesses.agent_directory import AGENT_TARGET
from securebench.harnesses.command import CommandHarnessProducer
from securebench.sandboxes.base import Mount
from securebench.tester_config import CommandConfig
from securebench.trials import TrialId

if TYPE_CHECKING:
    from harnesses.conftest import Bench
    from securebench.testing.scripted_sandbox import ProgramContext, ScriptedDriver


def test_the_command_runs_as_it_stands(bench: Bench, scripted: ScriptedDriver) -> None:
    """A21: the arguments of the command reach the sandbox unchanged; no shell interprets them."""
    argv = ("agent", "$(touch x)", "; rm -rf /", "--flag", "a\nb")
    scripted.program("agent")(lambda context: context.stdout.write(repr(context.argv)))
    assert bench.produce(command=argv).stdout == repr(argv)


def test_the_agent_directory_is_mounted_read_only(bench: Bench, scripted: ScriptedDriver, tmp_path: Path) -> None:
    """The agent directory is available in the sandbox; the agent cannot change it for the next task."""
    (tmp_path / "my agent").mkdir()
    (tmp_path / "my agent").chmod(0o755)  # independent of the umask
    (tmp_path / "my agent/answer.txt").write_text("42")

    @scripted.program("agent")
    def agent(context: ProgramContext) -> None:
        context.stdout.write(context.path(f"{AGENT_TARGET}/answer.txt").read_bytes())

    assert bench.produce(agent_dir=tmp_path / "my agent").stdout == "42"
    assert Mount(tmp_path / "my agent", AGENT_TARGET, read_only=True) in scripted.commands[-1][0].mounts


def test_an_agent_directory_behind_a_link_is_resolved(tmp_path: Path) -> None:
    """A symbolic link to the agent directory is resolved on the host, before anything runs."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o755)  # independent of the umask
    (tmp_path / "link").symlink_to("real")
    harness = CommandHarnessProducer(CommandConfig(command=("agent",), agent_dir=tmp_path / "link"))
    assert harness.invocation(VIEW).mounts == (Mount(tmp_path / "real", AGENT_TARGET),)


def test_the_task_file_has_the_testers_name(bench: Bench, scripted: ScriptedDriver) -> None:
    """The task file is at ``harness.config.task_file``, and SECUREBENCH_TASK_FILE contains its path."""

    @scripted.program("agent")
    def agent(context: ProgramContext) -> None:
        assert context.environment["SECUREBENCH_TASK_FILE"] == "/workspace/given/task"
        context.stdout.write(context.path("given/task").read_bytes())

    assert '"question": "What?"' in bench.produce(task_file="given/task").stdout


def test_an_agent_directory_that_its_agent_cannot_read_is_refused(tmp_path: Path) -> None:
    """If root runs SecureBench, an agent directory that the user ``nobody`` cannot read is a configuration error."""
    if os.getuid() != 0:
        pytest.skip("an ordinary user runs agents as that user")
    (tmp_path / "agent").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="a\\+rX") as refused:
        CommandHarnessProducer(CommandConfig(command=("agent",), agent_dir=tmp_path / "agent"))
    assert refused.value.code == "agent-dir-unreadable"


def test_a_command_with_domains_has_a_way_out(bench: Bench, scripted: ScriptedDriver) -> None:
    """J03: the agent gets a proxy to the allowed domains only; its use is recorded, and the egress is closed."""
    gateway = FakeGateway(relay=None, environment={"HTTPS_PROXY": "http://127.0.0.1:3128"})

    @scripted.program("agent")
    def agent(context: ProgramContext) -> None:
        context.stdout.write(context.environment["HTTPS_PROXY"])

    harness = CommandHarnessProducer(CommandConfig(command=("agent",), allowed_domains=("example.org",)))
    assert harness.needs_gateway
    agent_result = harness.produce(VIEW, replace(bench.context(), gateway=gateway))
    assert agent_result.stdout == "http://127.0.0.1:3128"
    assert agent_result.metadata["usage"] == {
        "egress": {"decisions": {"allowed": 2}, "hosts": {"example.org": 2}, "bytes": 7}
    }
    assert gateway.plans == [(TrialId(VIEW.task_id), EgressPlan(domains=("example.org",)))]
    assert gateway.sessions[0].closed


def test_a_command_without_domains_has_none(bench: Bench, scripted: ScriptedDriver) -> None:
    """J03: without allowed domains no egress is opened, even if the run has a gateway."""
    scripted.program("agent")(lambda context: context.stdout.write("done"))
    gateway = FakeGateway()
    harness = CommandHarnessProducer(CommandConfig(command=("agent",)))
    assert not harness.needs_gateway
    agent_result = harness.produce(VIEW, replace(bench.context(), gateway=gateway))
    assert gateway.plans == []
    assert "usage" not in agent_result.metadata
    assert scripted.commands[0][0].forwarded_ports == ()


def test_a_dead_gateway_is_no_failure_of_a_command(bench: Bench, scripted: ScriptedDriver) -> None:
    """J19: if the gateway dies, the agent's sandbox is closed, and the result is an infrastructure fault."""
    gateway = FakeGateway(relay=None)

    @scripted.program("agent")
    def agent(context: ProgramContext) -> None:
        gateway.sessions[0].die(EgressError("the gateway died"))
        context.sleep(30)

    harness = CommandHarnessProducer(CommandConfig(command=("agent",), allowed_domains=("example.org",)))
    agent_result = harness.produce(VIEW, replace(bench.context(), gateway=gateway))
    assert isinstance(agent_result.fault, EgressError)
    assert (agent_result.candidate, agent_result.failure) == (None, None)


def test_a_dead_gateway_explains_why_a_sandbox_failed(
    bench: Bench, scripted: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J19: if the sandbox fails because its gateway died, the fault in the result is the gateway's error."""
    gateway = FakeGateway(relay=None)

    def break_down(_spec: object, *, persistent: bool = False) -> NoReturn:
        assert not persistent
        gateway.sessions[0].die(EgressError("the gateway died"))
        raise InfrastructureError("the sandbox was closed")

    monkeypatch.setattr(scripted, "create", break_down)
    harness = CommandHarnessProducer(CommandConfig(command=("agent",), allowed_domains=("example.org",)))
    agent_result = harness.produce(VIEW, replace(bench.context(), gateway=gateway))
    assert isinstance(agent_result.fault, EgressError)


def test_a_sandbox_that_fails_by_itself_keeps_what_its_agent_used(
    bench: Bench, scripted: ScriptedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the sandbox fails and the gateway works, the fault is the sandbox's error; egress is still recorded."""

    def break_down(_spec: object, *, persistent: bool = False) -> NoReturn:
        assert not persistent
        raise InfrastructureError("the runtime failed")

    monkeypatch.setattr(scripted, "create", break_down)
    harness = CommandHarnessProducer(CommandConfig(command=("agent",), allowed_domains=("example.org",)))
    agent_result = harness.produce(VIEW, replace(bench.context(), gateway=FakeGateway(relay=None)))
    assert type(agent_result.fault) is InfrastructureError
    assert agent_result.metadata["usage"] == {
        "egress": {"decisions": {"allowed": 2}, "hosts": {"example.org": 2}, "bytes": 7}
    }


def test_a_command_that_fails_has_failed_with_a_way_out_too(bench: Bench, scripted: ScriptedDriver) -> None:
    """A non-zero exit code is a failure of the agent, also if the command has egress."""
    scripted.program("agent")(lambda _context: 3)
    harness = CommandHarnessProducer(CommandConfig(command=("agent",), allowed_domains=("example.org",)))
    failure = harness.produce(VIEW, replace(bench.context(), gateway=FakeGateway(relay=None))).failure
    assert failure is not None
    assert failure.reason is FailureReason.AGENT_EXIT


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"agent_dir": Path("/nonexistent/agent")}, "agent-dir-missing"),
        ({"agent_dir": Path(__file__)}, "agent-dir-missing"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(config: dict[str, object], code: str) -> None:
    """K12: an ``agent_dir`` that is missing or not a directory is refused before any task runs."""
    with pytest.raises(ConfigError) as refused:
        CommandHarnessProducer(CommandConfig(command=("agent",), **config))  # type: ignore[arg-type]  # intentional
    assert refused.value.code == code


@pytest.mark.parametrize(
    "config",
    [
        {"artifact_path": "../answer"},
        {"artifact_path": "/etc/passwd"},
        {"task_file": "securebench/public/task.json"},
        {"task_file": ""},
    ],
)
def test_no_path_leads_out_of_the_workspace(config: dict[str, object]) -> None:
    """K12: a ``CommandConfig`` refuses unsafe and reserved paths, even if it is created in Python and not from YAML."""
    with pytest.raises(ValidationError) as refused:
        CommandConfig(command=("agent",), **config)  # type: ignore[arg-type]  # wrong on purpose
    assert [(error["type"], error["loc"]) for error in refused.value.errors()] == [("path-unsafe", (*config,))]
