"""The provider's key reaches the provider, and is found nowhere else while an agent works and afterwards."""

from __future__ import annotations

import json
import threading
from contextlib import closing, contextmanager, suppress
from glob import iglob
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from docker.errors import NotFound

from conftest import why_no_engine
from real_agents.mixed import mixed_pack
from real_agents.runs import APIS, CANARY, KEYS, MODEL, Agent, every_agent, run_here
from real_agents.searching import contents, forms, holders
from securebench.engine.client import connect
from securebench.testing.provider import Say, ScriptedProvider, Shell
from securebench.testing.provider.attacks import LOOT, Targets, attack
from securebench.testing.provider.scripts import READ_TASK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.sandboxes.base import SandboxDriver

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("_with_ports", "images")]

_OF_THE_DRIVERS: Final = ("/run/securebench*", "/run/user/*/securebench*")


def test_the_search_finds_what_it_looks_for() -> None:
    """The search finds a key in each of its encoded forms, and finds nothing in a file with only the key's prefix."""
    for form in forms(CANARY):
        assert holders(CANARY, {"held": b"<" + form + b">", "clean": b"sk-canary-"}) == ["held"]


class Watched:
    """The places on the host where the key was found: processes, files of the drivers, containers of an engine."""

    def __init__(self) -> None:
        self.looks = 0
        self.found: set[str] = set()

    def look(self) -> None:
        """Search all places once."""
        self.looks += 1
        self.found.update(holders(CANARY, {**_processes(), **_driver_files(), **_containers()}))


@contextmanager
def watched() -> Iterator[Watched]:
    """Search all places repeatedly in a thread until the context ends."""
    seen, over = Watched(), threading.Event()

    def look() -> None:
        while not over.wait(0.3):
            seen.look()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


def _processes() -> dict[str, bytes]:
    """Return the environments and arguments of all processes of this machine."""
    paths = (path for kind in ("environ", "cmdline") for path in Path("/proc").glob(f"[0-9]*/{kind}"))
    return contents(paths)


def _driver_files() -> dict[str, bytes]:
    # Directories may disappear during the search: iglob skips them, but Path.glob would raise FileNotFoundError.
    found = (path for pattern in _OF_THE_DRIVERS for path in iglob(f"{pattern}/*/*.json"))  # noqa: PTH207
    return contents(map(Path, found))


def _containers() -> dict[str, bytes]:
    """Return the engine's descriptions of its containers, or nothing if there is no engine."""
    if why_no_engine():
        return {}
    found = {}
    with closing(connect()) as engine:
        for entry in engine.client.containers(all=True):
            with suppress(NotFound):  # it has just been removed
                found[f"container {entry['Id']}"] = json.dumps(engine.client.inspect_container(entry["Id"])).encode()
    return found


@pytest.mark.timeout(240)
@every_agent
def test_a_key_is_found_nowhere(program: str, driver: SandboxDriver, tmp_path: Path) -> None:
    """The key is in no process, driver file or container of the host, in no sandbox, and in no file of the run.

    In a task of each family, the agent searches its own sandbox, including memory, and prints what it finds.
    """
    targets = Targets(api=APIS[program], model=MODEL)
    script = (
        READ_TASK,
        attack("keys", targets=targets),
        Shell(f"env; base64 {LOOT} | tail -c 4000"),
        Say("That is it."),
    )
    with ScriptedProvider(script) as provider, watched() as seen:
        done = run_here(tmp_path, mixed_pack(tmp_path), Agent(program=program, provider=provider), driver)
        assert provider.keys_seen == {CANARY}
    assert len(done.records) == 6
    assert seen.looks > 3
    assert seen.found == set()
    files = contents(tmp_path.rglob("*"))
    assert any(name.endswith(LOOT) for name in files)
    assert any(KEYS[program].encode() in data for name, data in files.items() if name.endswith(LOOT))
    assert holders(CANARY, files) == []
