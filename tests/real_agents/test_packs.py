"""The example packs, run by the real agent programs with the tester configurations from the packs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from real_agents.runs import CANARY, Agent, run
from real_agents.solutions import CODE, REPOSITORY, TERMINAL, TEXT, solving
from securebench.testing.provider import ScriptedProvider

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.oci import OciDriver

pytestmark = [pytest.mark.agents, pytest.mark.oci, pytest.mark.slow, pytest.mark.usefixtures("_with_ports")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("program", "pack"),
    [
        ("codex", CODE),
        pytest.param("claude_code", TERMINAL, marks=pytest.mark.long),
        pytest.param("codex", REPOSITORY, marks=pytest.mark.long),
        pytest.param("claude_code", TEXT, marks=pytest.mark.long),
        pytest.param("codex", TEXT, marks=pytest.mark.long),
        pytest.param("codex", TERMINAL, marks=pytest.mark.long),
        pytest.param("claude_code", CODE, marks=pytest.mark.long),
        pytest.param("claude_code", REPOSITORY, marks=pytest.mark.long),
    ],
)
def test_a_pack_is_solved(program: str, pack: str, oci_driver: OciDriver, images: None, tmp_path: Path) -> None:
    """A model that knows the answers passes every task of a pack, and the provider receives no key but the real one."""
    with ScriptedProvider(solving(pack)) as provider:
        done = run(tmp_path, pack, Agent(program=program, provider=provider), oci_driver)
        assert done.code == 0, done.output
        assert set(done.statuses.values()) == {"passed"}, done.records
        assert provider.keys_seen == {CANARY}
    for record in done.records:
        assert record["producer_metadata"]["outcome"] == "worked"
        assert record["provenance"]["usage"]["input_tokens"] > 0
