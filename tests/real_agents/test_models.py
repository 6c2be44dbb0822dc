"""The warning of a real agent program about a model that is not in the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from real_agents.runs import Agent, run_here, short_answers
from securebench.agents.catalogue import PROGRAMS
from securebench.testing.provider import ScriptedProvider
from securebench.testing.provider.scripts import solve

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.sandboxes.oci import OciDriver

pytestmark = [pytest.mark.agents, pytest.mark.oci, pytest.mark.slow, pytest.mark.usefixtures("_with_ports")]


@pytest.mark.parametrize(("model", "known"), [("gpt-5.5", True), ("gpt-5.5-2026-04-01", True), ("gpt-5-codex", False)])
def test_codex_warns_of_a_model_that_it_does_not_know(
    model: str, known: bool, oci_driver: OciDriver, tmp_path: Path
) -> None:
    """F7: Codex's warning about an unknown model is recorded, and the catalogue knows the same models as Codex."""
    with ScriptedProvider(solve("short_answer", "42")) as provider:
        agent = Agent(program="codex", provider=provider, config={"model": model})
        (record,) = run_here(tmp_path, short_answers(tmp_path), agent, oci_driver).records
    warnings = record["provenance"]["usage"].get("warnings", [])
    assert [text for text in warnings if f"`{model}` not found" in text] == warnings
    assert (warnings == []) is known
    assert PROGRAMS["codex"].knows_model(PROGRAMS["codex"].pinned, model) is known
