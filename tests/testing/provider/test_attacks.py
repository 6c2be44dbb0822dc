"""Attacks are reported as allowed if nothing blocks them, and as denied in a sandbox."""

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
    """Make attempts on this machine, only against ``targets``, and return their outcomes by name."""
    command = attack(*kinds, targets=targets, most=most).command
    environment = {**os.environ, "SECUREBENCH_TASK_FILE": "task.json"}
    subprocess.run(["/bin/sh", "-c", command], check=True, cwd=directory, env=environment, capture_output=True)
    return outcomes(directory)


def outcomes(directory: Path) -> dict[str, str]:
    """Read the outcomes of the attempts from ``directory``, and return them by name."""
    lines = [json.loads(line) for line in (directory / LINES).read_text().splitlines()]
    assert all(line.keys() == {"attempt", "outcome", "how"} for line in lines)
    return {line["attempt"]: line["outcome"] for line in lines}


def address(url: str) -> tuple[str, int]:
    """Return the host and the port of a URL."""
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, int]]:
    """Start a server and yield its address. It sends ``answer`` on every connection, and then closes the connection."""
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
    """Without a relay, requests for files, other models and the provider's tools are reported as allowed."""
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
    """With a proxy that accepts everything, all attempts to connect to a host are reported as allowed."""
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as proxy:
        found = attacked(tmp_path, "proxy", targets=Targets(proxy=proxy))
    assert {outcome for name, outcome in found.items() if name.startswith("CONNECT")} == {ALLOWED}
    assert {outcome for name, outcome in found.items() if name.startswith("plain HTTP to")} == {ALLOWED}


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\n\r\n", b"", b"SSH-2.0\r\n"])
def test_what_refuses_shows_as_denied(tmp_path: Path, answer: bytes) -> None:
    """An error status, a closed connection, and an answer that is not HTTP are reported as denied."""
    with answering(answer) as gate:
        found = attacked(tmp_path, "proxy", "relay", targets=Targets(proxy=gate, relay=gate))
    judged = {name: outcome for name, outcome in found.items() if outcome != DENIED}
    assert set(judged.values()) <= {DENIED}, judged
    assert len(found) > 150


def test_a_budget_is_spent_until_somebody_says_no(tmp_path: Path) -> None:
    """An attack on the budget is allowed if it gets all answers, and denied at the first refusal."""
    with ScriptedProvider((Say("x"),)) as provider:
        found = attacked(tmp_path, "budget", targets=Targets(relay=address(provider.url)), most=7)
        assert len(provider.requests) == 7
    assert found == {"7 answers in a row": ALLOWED}
    with answering(b"HTTP/1.1 429 Too Many Requests\r\n\r\n") as gate:
        assert attacked(tmp_path, "budget", targets=Targets(relay=gate)) == {"5 answers in a row": DENIED}


def test_without_ways_out_there_is_nothing_to_try(tmp_path: Path) -> None:
    """Without a proxy and a relay, only the attack on the budget is tried, and its outcome is ``unknown``."""
    assert attacked(tmp_path, "proxy", "relay", "budget", targets=Targets(proxy=None, relay=None), most=1) == {
        "1 answers in a row": "unknown"
    }


def test_what_can_be_connected_to_shows_as_allowed() -> None:
    """A connection to the host is allowed if a server accepts it, and denied if no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        targets = Targets(port=listener.getsockname()[1])
        made = [attempt for attempt in direct.attempts(targets) if attempt.name == "connect to the host at 127.0.0.1"]
        assert [outcome_of(attempt)["outcome"] for attempt in made] == [ALLOWED]
    assert [outcome_of(attempt)["outcome"] for attempt in made] == [DENIED]


def test_nothing_is_tried_outside_of_a_sandbox(tmp_path: Path) -> None:
    """Without ``SECUREBENCH_TASK_FILE``, the attack program does nothing: it could collect a developer's keys."""
    environment = {name: value for name, value in os.environ.items() if name != "SECUREBENCH_TASK_FILE"}
    command = ["/bin/sh", "-c", attack().command]
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "SECUREBENCH_TASK_FILE is not set" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_attack_fits_into_one_argument() -> None:
    """The attack is less than half as long as Linux allows: clients pass it to a shell as one argument."""
    assert len(attack().command.encode()) < MAX_ARGUMENT / 2


def test_an_unknown_kind_is_refused() -> None:
    """An unknown kind of attack raises an error: otherwise, a misspelt kind would attack nothing."""
    with pytest.raises(ValueError, match="prox"):
        attack("prox")


@pytest.mark.parametrize("module", attacks._MODULES, ids=lambda module: module.__name__)
def test_the_program_needs_nothing_but_the_library(module: ModuleType) -> None:
    """The modules of the attack program are valid Python 3.9 and import only the standard library and each other."""
    known = {module.__name__ for module in attacks._MODULES} | {"__future__"}
    tree = ast.parse(inspect.getsource(module), feature_version=(3, 9))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert not [name for name in imported if name not in known and name.split(".")[0] not in sys.stdlib_module_names]


def test_a_sandbox_without_a_network_stops_them(
    driver: SandboxDriver, base_image: ResolvedImage, tmp_path: Path
) -> None:
    """No attempt gets out of the sandbox. The attack finds the agent's own variable, which shows that it works."""
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
