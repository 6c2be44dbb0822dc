"""An agent that is added with one declaration file, in a directory outside the source tree."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from benchmarks.packs import BENCHMARKS
from pack_files import row, write_pack
from real_agents.runs import CANARY, MODEL, Agent, run, short_answers
from securebench import plugins
from securebench.images.store.archive import RootConfig, add_root
from securebench.images.store.index import ImageSource, Origin
from securebench.tasks import DEFAULT_IMAGE
from securebench.testing.provider import Say, ScriptedProvider, Shell
from securebench.testing.provider.scripts import solve
from tiny_root import tiny_root

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.images.store.image_store import ImageStore
    from securebench.sandboxes.base import SandboxDriver

pytestmark = [pytest.mark.oci, pytest.mark.usefixtures("_with_ports", "base_image")]

PAGE = BENCHMARKS.parent / "docs/how-to/declare-an-agent.md"


def documented_files() -> dict[str, str]:
    """Return the contents of the files that the guide prints, by file name."""
    page = PAGE.read_text(encoding="utf-8")
    return dict(re.findall(r"`([\w./-]+)`:\n\n```\w+\n(.*?)```", page, re.DOTALL))


def declare(root: Path) -> str:
    """Write the documented agent and its declaration below ``root``, as the guide says, and return the declaration."""
    files = documented_files()
    (root / "tiny").mkdir(mode=0o755)
    (root / "tiny/tiny.py").write_text(files["tiny/tiny.py"])
    (root / "tiny/tiny.py").chmod(0o644)
    subprocess.run(["tar", "-czf", "tiny.tgz", "tiny"], cwd=root, check=True)
    digest = base64.b64encode(hashlib.sha512((root / "tiny.tgz").read_bytes()).digest()).decode()
    declaration = re.sub(r"sha512-\S+", f"sha512-{digest}", files["tiny.yaml"])
    (root / "tiny.yaml").write_text(declaration)
    return declaration


def test_one_short_file_adds_an_agent(
    oci_driver: SandboxDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that is declared in a short file solves a task. Its usage and steps are recorded."""
    agents = tmp_path / "agents"
    agents.mkdir()
    monkeypatch.setenv(plugins.AGENTS_VARIABLE, str(agents))
    assert len(declare(agents).splitlines()) < 40
    with ScriptedProvider(solve("short_answer", "391"), models=(MODEL,)) as provider:
        agent = Agent(program="tiny", provider=provider)
        done = run(tmp_path, short_answers(tmp_path), agent, oci_driver)
        assert provider.keys_seen == {CANARY}, done.output
    (record,) = done.records
    assert done.code == 0, done.output
    assert record["candidate_text"].strip() == "391"
    assert record["producer_metadata"]["outcome"] == "worked"
    assert record["producer_metadata"]["agent"] == {"program": "tiny", "version": "1.0.0"}
    assert record["provenance"]["usage"]["relay"]["answered"] == 3
    identity = json.loads((done.directory / "run.json").read_text())["decisive"]["agent"]
    assert (identity["program"], identity["runtime"], len(identity["declaration"])) == ("tiny", "python", 64)
    steps = [json.loads(line) for line in next((done.directory / "trajectories").iterdir()).read_text().splitlines()]
    assert [step["kind"] for step in steps] == ["command", "result", "command", "result", "message"]


@pytest.mark.long
def test_an_image_without_python(
    oci_driver: SandboxDriver,
    store: ImageStore,
    doomed_images: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A declared agent brings its own Python to an image that has none. Its commands do not find that Python."""
    monkeypatch.setenv(plugins.AGENTS_VARIABLE, str(tmp_path))
    declare(tmp_path)
    reference = f"tests/shell-of-declared:{os.getpid()}"
    with store.incoming(Origin(ImageSource.ARCHIVE, "tests")) as incoming:
        incoming.name(add_root(incoming, [tiny_root()], RootConfig({"PATH": "/bin"}), "tests"), reference)
    doomed_images.append(reference)
    task = row(
        "terminal_task",
        environment={"image": reference, "workdir": "/app"},
        eval={"checker": {"command": ["grep", "-qx", "here", "made"], "image": DEFAULT_IMAGE}},
    )
    (tmp_path / "pack").mkdir()
    with ScriptedProvider((Shell("type python3 || echo here > made"), Say("Done.")), models=(MODEL,)) as provider:
        done = run(tmp_path, write_pack(tmp_path / "pack", task), Agent(program="tiny", provider=provider), oci_driver)
    assert set(done.statuses.values()) == {"passed"}, (done.records, done.output)
