"""``scripts/agents.py`` installs the agent programs, prints why they are not available, or fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scripts.agents import main

from fake_npm import fake_npm, package
from fake_server import says
from securebench.agents.catalogue import PROGRAMS
from securebench.images.store.places import DIRECTORY_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty cache, and a registry that cannot be reached."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "images"))
    monkeypatch.setenv("SECUREBENCH_NPM_REGISTRY", "http://127.0.0.1:9")


def test_a_registry_that_does_not_serve_is_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """If the npm registry cannot be reached, the reason is printed with exit code 0, and tests are skipped."""
    assert main() == 0
    assert capsys.readouterr().out.startswith("the npm registry 127.0.0.1:9 cannot provide @openai/codex")


def test_an_exchanged_archive_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive with a wrong digest is an error. It is not printed as a reason to skip tests."""
    with fake_npm() as npm:
        monkeypatch.setenv("SECUREBENCH_NPM_REGISTRY", npm.url)
        known = PROGRAMS["codex"]
        npm.faults[".tgz"] = [says(200, package("@openai/codex", known.pinned, "codex"))]
        assert main() == 1
    caught = capsys.readouterr()
    assert caught.out == ""
    assert "agent-integrity" in caught.err


@pytest.mark.agents
def test_what_is_there_is_no_reason(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the agent programs are in this user's cache, where 'make test' puts them, no registry is needed."""
    monkeypatch.delenv(DIRECTORY_VARIABLE)
    assert main() == 0
    assert capsys.readouterr().out.strip() == ""
