"""Attacks: what they find where nothing stops them, and what stops them in a sandbox."""

from __future__ import annotations

import ast
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from provider_client import APIS, PATHS
from securebench.sandboxes.base import BASE_ENVIRONMENT, Command, Mount, SandboxSpec, workspace_user
from securebench.testing.provider import Say, ScriptedProvider, attacks
from securebench.testing.provider.attacks import ALLOWED, DENIED, DONE, LINES, LOOT, Targets, attack
from securebench.testing.provider.inside import direct
from securebench.testing.provider.inside.base import outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver

MAX_ARGUMENT = 128 * 1024
CANARY = "sk-canary-in-a-variable-0123456789"


def attacked(directory: Path, *kinds: str, targets: Targets | None = None, most: int = 5) -> dict[str, str]:
    """Make attempts on this machine, which reach only what ``targets`` says; return their outcomes by name."""
    command = attack(*kinds, targets=targets, most=most).command
    environment = {**os.environ, "SECUREBENCH_TASK_FILE": "task.json"}
    subprocess.run(["/bin/sh", "-c", command], check=True, cwd=directory, env=environment, capture_output=True)
    return outcomes(directory)


def outcomes(directory: Path) -> dict[str, str]:
    """Return the outcomes of the attempts, by name."""
    lines = [json.loads(line) for line in (directory / LINES).read_text().splitlines()]
    assert all(line.keys() == {"attempt", "outcome", "how"} for line in lines)
    return {line["attempt"]: line["outcome"] for line in lines}


def address(url: str) -> tuple[str, int]:
    """Return where a URL leads."""
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, int]]:
    """Give a server that says the same to everything, and then closes."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:

        def serve() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("api", APIS)
def test_what_the_provider_lets_in_shows_as_allowed(tmp_path: Path, api: str) -> None:
    """Without a relay before it, files, other models and the provider's tools are all to be had."""
    with ScriptedProvider((Say("x"),)) as provider:
        found = attacked(tmp_path, "relay", targets=Targets(api=api, relay=address(provider.url)))
        assert provider.keys_seen == {"sk-other-account"}
    assert found["control: an answer of the model"] == ALLOWED
    assert found[f"GET /{PATHS[api].split('/')[1]}/files"] == ALLOWED
    assert found['a request with {"model": "another-model"}'] == ALLOWED
    assert {outcome for name, outcome in found.items() if '{"tools"' in name} == {ALLOWED}
    assert found["a request with X-Api-Key: sk-other-account"] == DONE
    assert found["a body that is not JSON"] == DENIED


def test_what_a_proxy_lets_through_shows_as_allowed(tmp_path: Path) -> None:
    """A proxy that agrees to everything is caught by every attempt at a name, an address or a port."""
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as proxy:
        found = attacked(tmp_path, "proxy", targets=Targets(proxy=proxy))
    assert {outcome for name, outcome in found.items() if name.startswith("CONNECT")} == {ALLOWED}
    assert {outcome for name, outcome in found.items() if name.startswith("plain HTTP to")} == {ALLOWED}


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\n\r\n", b"", b"SSH-2.0\r\n"])
def test_what_refuses_shows_as_denied(tmp_path: Path, answer: bytes) -> None:
    """By a status, by closing, or with what is no HTTP."""
    with answering(answer) as gate:
        found = attacked(tmp_path, "proxy", "relay", targets=Targets(proxy=gate, relay=gate))
    judged = {name: outcome for name, outcome in found.items() if outcome != DENIED}
    assert set(judged.values()) <= {DENIED}, judged
    assert len(found) > 150


def test_a_budget_is_spent_until_somebody_says_no(tmp_path: Path) -> None:
    """It is allowed if all answers come, and denied with the first that does not."""
    with ScriptedProvider((Say("x"),)) as provider:
        found = attacked(tmp_path, "budget", targets=Targets(relay=address(provider.url)), most=7)
        assert len(provider.requests) == 7
    assert found == {"7 answers in a row": ALLOWED}
    with answering(b"HTTP/1.1 429 Too Many Requests\r\n\r\n") as gate:
        assert attacked(tmp_path, "budget", targets=Targets(relay=gate)) == {"5 answers in a row": DENIED}


def test_without_ways_out_there_is_nothing_to_try(tmp_path: Path) -> None:
    """Attempts at a proxy and a relay that are not there are left out."""
    assert attacked(tmp_path, "proxy", "relay", "budget", targets=Targets(proxy=None, relay=None), most=1) == {
        "1 answers in a row": "unknown"
    }


def test_what_can_be_connected_to_shows_as_allowed() -> None:
    """A service of the host that answers is an escape; one that does not is none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        targets = Targets(port=listener.getsockname()[1])
        made = [attempt for attempt in direct.attempts(targets) if attempt.name == "connect to the host at 127.0.0.1"]
        assert [outcome_of(attempt)["outcome"] for attempt in made] == [ALLOWED]
    assert [outcome_of(attempt)["outcome"] for attempt in made] == [DENIED]


def test_nothing_is_tried_outside_of_a_sandbox(tmp_path: Path) -> None:
    """Where no agent has a task, the program ends at once and writes nothing: the loot would be somebody's own."""
    environment = {name: value for name, value in os.environ.items() if name != "SECUREBENCH_TASK_FILE"}
    command = ["/bin/sh", "-c", attack().command]
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "SECUREBENCH_TASK_FILE is not set" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_attack_fits_into_one_argument() -> None:
    """Clients hand a command to a shell as one argument, which the kernel bounds."""
    assert len(attack().command.encode()) < MAX_ARGUMENT / 2


def test_an_unknown_kind_is_refused() -> None:
    """A kind that is misspelt would otherwise attack nothing."""
    with pytest.raises(ValueError, match="prox"):
        attack("prox")


@pytest.mark.parametrize("module", attacks._MODULES, ids=lambda module: module.__name__)
def test_the_program_needs_nothing_but_the_library(module: ModuleType) -> None:
    """Its modules import the standard library and those before them."""
    known = {module.__name__ for module in attacks._MODULES} | {"__future__"}
    tree = ast.parse(inspect.getsource(module), feature_version=(3, 9))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert not [name for name in imported if name not in known and name.split(".")[0] not in sys.stdlib_module_names]


def test_a_sandbox_without_a_network_stops_them(
    driver: SandboxDriver, base_image: ResolvedImage, tmp_path: Path
) -> None:
    """Nothing is reached; and what an agent is given to know, it finds: the attack itself works."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    os.chown(workspace, *(workspace_user() if os.getuid() == 0 else (-1, -1)))
    spec = SandboxSpec(
        image=base_image,
        mounts=(Mount(workspace, "/workspace", read_only=False),),
        environment={**BASE_ENVIRONMENT, "SECUREBENCH_TASK_FILE": "/workspace/task.json", "SOME_KEY": CANARY},
        workdir="/workspace",
    )
    with socket.create_server(("0.0.0.0", 0)) as listener, driver.create(spec) as sandbox:
        targets = Targets(host=("172.17.0.1",), port=listener.getsockname()[1])
        command = attack("direct", "proxy", "relay", "keys", "events", targets=targets).command
        result = sandbox.run(Command(argv=("/bin/sh", "-c", command), timeout_seconds=60))
    assert result.exit_code == 0, result.stderr
    found = outcomes(workspace)
    assert {name for name, outcome in found.items() if outcome not in {DENIED, DONE}} == set()
    assert found["a route to the internet"] == DENIED
    assert found["a raw socket"] == DENIED
    loot = (workspace / LOOT).read_bytes()
    assert loot.count(CANARY.encode()) >= 2
    assert b'"result": "forged"' in result.stdout
