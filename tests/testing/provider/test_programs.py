"""The installed agent programs follow the scripts of a scripted provider.

The programs run on this machine, with an empty home directory. The scripts run only harmless commands.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trustme

from provider_client import KEY
from securebench.agents.store import AgentStore
from securebench.testing.provider import Cut, Fail, Say, Script, ScriptedProvider, Shell, Tls, at_first, scripts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.agents.model import AgentProgram
    from securebench.testing.provider import Fault, FaultPlan

SECONDS = 60
SCRIPT: Script = (Say("I look."), Shell("echo made > made.txt; cat made.txt"), Say("All is done."))


class Done(NamedTuple):
    """The result of a program: its exit code, its events, and its working directory."""

    exit_code: int
    events: list[dict[str, Any]]
    directory: Path

    def output(self) -> str:
        """Return the last two events as JSON. They contain the program's last message or its result."""
        return json.dumps(self.events[-2:], ensure_ascii=False)


@pytest.fixture(scope="module", params=["codex", pytest.param("claude_code", marks=pytest.mark.long)], name="program")
def _program(request: pytest.FixtureRequest) -> Iterator[AgentProgram]:
    """Yield each agent program in turn. Skip a program that is not installed."""
    with AgentStore() as store:
        if not any(found.program.name == request.param and found.intact for found in store.installed()):
            pytest.skip(f"it is not here: securebench agents install {request.param}")
        yield store.install(request.param)


def run(program: AgentProgram, url: str, directory: Path, **environment: str) -> Done:
    """Run a program on a prompt in an empty directory, against the provider at ``url``."""
    (directory / "home").mkdir()
    (directory / "work").mkdir()
    done = subprocess.run(
        [program.directory / program.executable, *_ARGUMENTS[program.name](url), "Do what is to be done."],
        check=False,
        cwd=directory / "work",
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(directory / "home"),
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "2",
            "IS_SANDBOX": "1",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
    )
    return Done(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], directory / "work")


def _codex(url: str) -> list[str]:
    provider = f'{{name="scripted",base_url="{url}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    settings = {"model_provider": '"scripted"', "model_providers.scripted": provider, "analytics.enabled": "false"}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    flags = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["exec", *flags, "--disable", "plugins", "--disable", "apps", "-m", "scripted-model", *options]


def _claude(_url: str) -> list[str]:
    flags = ["--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
    return ["-p", *flags, "--model", "scripted-model"]


_ARGUMENTS = {"codex": _codex, "claude_code": _claude}


def test_a_program_follows_a_script(program: AgentProgram, tmp_path: Path) -> None:
    """A program runs the model's command, sends the output back, and reports the model's last message."""
    with ScriptedProvider(SCRIPT) as provider:
        done = run(program, provider.url, tmp_path)
        conversations = [request.conversation for request in provider.requests if request.conversation]
        assert provider.keys_seen == {KEY}
    assert done.exit_code == 0, done.events
    assert (done.directory / "made.txt").read_text() == "made\n"
    assert "All is done." in done.output()
    assert [len(conversation.results) for conversation in conversations] == [0, 1]
    assert "Do what is to be done." in conversations[0].prompt
    assert "made" in conversations[1].results[0]


def test_a_program_gives_up_as_if_all_were_well(program: AgentProgram, tmp_path: Path) -> None:
    """A program whose model gives up exits with code 0 and leaves no files."""
    with ScriptedProvider(scripts.give_up()) as provider:
        done = run(program, provider.url, tmp_path)
    assert done.exit_code == 0
    assert "could not find" in done.output()
    assert not list(done.directory.iterdir())


@pytest.mark.parametrize("fault", [Fail(500), Fail(529), Fail(429, retry_after=1), Cut(150)], ids=str)
def test_a_program_tries_again(program: AgentProgram, tmp_path: Path, fault: Fault) -> None:
    """A program repeats a request after a temporary fault, and then completes the script."""
    with ScriptedProvider(SCRIPT, fault=at_first(1, fault)) as provider:
        done = run(program, provider.url, tmp_path)
        conversations = [request.conversation for request in provider.requests if request.conversation]
    assert done.exit_code == 0, done.events
    assert [len(conversation.results) for conversation in conversations] == [0, 0, 1, 1]
    assert "All is done." in done.output()


@pytest.mark.parametrize("plan", [Fail(400), at_first(99, Fail(400, echo_key=True))], ids=["plain", "echo"])
def test_a_program_fails_with_a_request_that_is_refused(
    program: AgentProgram, tmp_path: Path, plan: Fault | FaultPlan
) -> None:
    """After a refused request, a program exits with code 1. It repeats the provider's message, even a key in it."""
    with ScriptedProvider(SCRIPT, fault=plan) as provider:
        done = run(program, provider.url, tmp_path)
    assert done.exit_code == 1
    assert "scripted failure with status 400" in done.output()
    assert (KEY in done.output()) == (plan != Fail(400))


def test_a_program_speaks_tls_with_a_private_authority(program: AgentProgram, tmp_path: Path) -> None:
    """A program accepts a certificate of a private authority that environment variables name."""
    authority, both, known = trustme.CA(), tmp_path / "both.pem", tmp_path / "known.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(both)
    authority.cert_pem.write_to_path(known)
    with ScriptedProvider(SCRIPT, tls=Tls(both, both)) as provider:
        done = run(program, provider.url, tmp_path, SSL_CERT_FILE=str(known), NODE_EXTRA_CA_CERTS=str(known))
    assert done.exit_code == 0, done.events
    assert "All is done." in done.output()
