"""The model harness with a scripted model behind the real relay: tasks of every family, in several images."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.authors_data import data_folder
from benchmarks.packs import BENCHMARKS
from pack_files import row, write_pack
from real_agents.mixed import FAMILIES, answering_all, mixed_pack, solving_all
from real_agents.runs import CANARY, MODEL, PLAIN_MODEL, Agent, run, run_here
from real_agents.searching import contents, holders
from securebench.images.store.archive import RootConfig, add_root
from securebench.images.store.index import ImageSource, Origin
from securebench.tasks import DEFAULT_IMAGE
from securebench.testing.provider import Say, ScriptedProvider, Shell
from tiny_root import tiny_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from securebench.images.store.image_store import ImageStore
    from securebench.sandboxes.base import SandboxDriver
    from securebench.testing.provider import ModelConversation, Script

pytestmark = [pytest.mark.usefixtures("_with_ports", "base_image")]

PRICES = {"input": 0.25, "output": 2}


@pytest.mark.oci
def test_a_question(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """A right answer in one turn passes. Usage, cost and steps are recorded, and no file of the run has the key."""
    with ScriptedProvider((), texts=answering_all()) as provider:
        agent = Agent(program=PLAIN_MODEL, provider=provider, config={"prices": PRICES, "temperature": 0})
        done = run(tmp_path, mixed_pack(tmp_path, ("multiple_choice",)), agent, oci_driver)
        assert provider.keys_seen == {CANARY}
    assert done.code == 0, done.output
    (record,) = done.records
    assert record["verification_status"] == "passed", record
    assert record["producer_metadata"]["outcome"] == "worked"
    usage = record["provenance"]["usage"]
    assert (usage["input_tokens"], usage["turns"], usage["relay"]["models"]) == (1200, 1, {MODEL: 1})
    assert usage["cost_usd"] == pytest.approx((1200 * 0.25 + 34 * 2) / 1e6)
    assert json.loads((done.directory / "run.json").read_text())["decisive"]["agent"]["settings"]["temperature"] == 0
    (steps,) = (done.directory / "trajectories").iterdir()
    assert [json.loads(line)["kind"] for line in steps.read_text().splitlines()] == ["prompt", "message", "usage"]
    files = (path.read_text(errors="replace") for path in done.directory.rglob("*") if path.is_file())
    assert not any(CANARY in text for text in files)


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("dialect", ["chat_completions", "responses", "messages", "gemini"])
def test_every_family_is_solved(dialect: str, driver: SandboxDriver, tmp_path: Path) -> None:
    """A task of each family passes, and no file contains the key.

    The task of the family ``repo_patch`` runs in a repository's image, which has another Python version.
    """
    with ScriptedProvider(solving_all(), texts=answering_all()) as provider:
        agent = Agent(
            program=PLAIN_MODEL, provider=provider, config={"dialect": dialect, "api_key_env": "OPENAI_API_KEY"}
        )
        done = run_here(tmp_path, mixed_pack(tmp_path), agent, driver)
        assert provider.keys_seen == {CANARY}
    assert set(done.statuses.values()) == {"passed"}, done.records
    assert len(done.records) == len(FAMILIES)
    assert holders(CANARY, contents(tmp_path.rglob("*"))) == []


@pytest.mark.long
@pytest.mark.oci
def test_a_loop_that_never_ends(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """A model loop ends after ``max_turns`` turns, its workspace is judged, and its outcome is ``out_of_turns``."""
    script: Script = (Shell("sort -n numbers.txt > sorted.txt"), *(Shell("true") for _ in range(9)), Say("unreachable"))
    with ScriptedProvider(script) as provider:
        agent = Agent(program=PLAIN_MODEL, provider=provider, config={"max_turns": 3})
        done = run_here(tmp_path, mixed_pack(tmp_path, ("terminal_task",)), agent, oci_driver)
    record: dict[str, Any] = done.records[0]
    assert (record["verification_status"], record["producer_metadata"]["outcome"]) == ("passed", "out_of_turns")
    assert record["provenance"]["usage"]["turns"] == 3


@pytest.mark.long
@pytest.mark.oci
def test_an_image_without_python(
    oci_driver: SandboxDriver, store: ImageStore, doomed_images: list[str], tmp_path: Path
) -> None:
    """A model can run commands in an image that contains a shell and no Python."""
    reference = f"tests/shell:{os.getpid()}"  # after the base image: the first is inspected with cat, which this lacks
    with store.incoming(Origin(ImageSource.ARCHIVE, "tests")) as incoming:
        incoming.name(add_root(incoming, [tiny_root()], RootConfig({"PATH": "/bin"}), "tests"), reference)
    doomed_images.append(reference)
    task = row(
        "terminal_task",
        environment={"image": reference, "workdir": "/app"},
        eval={"checker": {"command": ["grep", "-qx", "here", "made"], "image": DEFAULT_IMAGE}},
    )
    (tmp_path / "pack").mkdir()
    script = (Shell("type python3 || echo here > made"), Say("Done."))
    with ScriptedProvider(script, texts=lambda _conversation: Say("4")) as provider:
        agent = Agent(program=PLAIN_MODEL, provider=provider)
        files = write_pack(tmp_path / "pack", row("short_answer"), task)
        done = run_here(tmp_path, files, agent, oci_driver)
    assert set(done.statuses.values()) == {"passed"}, done.records


@pytest.mark.long
@pytest.mark.oci
@pytest.mark.timeout(300)
def test_the_commands_of_the_readme(oci_driver: SandboxDriver, tmp_path: Path) -> None:
    """The commands of the README's section "Measure a model" run as printed.

    They use the authors' data. The model answers every third row wrong.
    """
    del oci_driver
    data = data_folder()
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 8000)) == 0:
            pytest.skip("port 8000, which the page names, is in use")
    shutil.copytree(BENCHMARKS, tmp_path / "benchmarks", ignore=shutil.ignore_patterns("tasks.jsonl"))
    shutil.copy(data / "mmlu" / "abstract_algebra_test.csv", tmp_path)
    shutil.copy(data / "gsm8k" / "test-first100.jsonl", tmp_path / "test.jsonl")
    known = list(_right_answers(tmp_path))

    def reply(conversation: ModelConversation) -> Say:
        place, answer = next(
            (place, answer) for place, (question, answer) in enumerate(known) if question in conversation.question
        )
        return Say("Answer: E, or 0.5" if place % 3 == 2 else f"Answer: {answer}")

    page = (
        (BENCHMARKS.parent / "README.md").read_text(encoding="utf-8").split("## Measure a model")[1].split("\n## ")[0]
    )
    commands = [shlex.split(line) for line in re.findall(r"^\$ securebench (.*)$", page, re.MULTILINE)]
    assert [command[0] for command in commands] == ["import", "run", "import", "run"]
    with ScriptedProvider((), texts=reply, models=("my-model",), port=8000):
        for command in commands:
            argv = [sys.executable, "-m", "securebench", *command]
            done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    found = {path.parent.name: path.read_text().splitlines() for path in tmp_path.glob("runs/*/candidates.jsonl")}
    passed = {name: sum(json.loads(line)["passed"] for line in lines) for name, lines in found.items()}
    assert passed == {"mmlu-abstract-algebra-mini-model": 7, "gsm8k-first100-model": 67}


def _right_answers(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the question and answer of the first ten rows of MMLU, and of all rows of the GSM8K file."""
    with (root / "abstract_algebra_test.csv").open(encoding="utf-8") as file:
        yield from ((row[0], row[-1]) for row in list(csv.reader(file))[:10])
    for line in (root / "test.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        yield record["question"], record["answer"].rpartition("#### ")[2]
