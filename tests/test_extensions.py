"""Extensions: the examples in the documentation work as printed, and name conflicts and broken packages are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from securebench import plugins
from securebench.errors import ConfigError
from securebench.plugins import ExtensionKind
from securebench.results.records.record import comparable

if TYPE_CHECKING:
    from collections.abc import Iterator

HOW_TO = Path(__file__).parents[1] / "docs" / "how-to"
_BLOCK = re.compile(r"(?:`(?P<file>[\w./-]+)`:\n\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Return the code blocks of a page: for each, its file name or an empty string, its language and its text."""
    found = _BLOCK.finditer((HOW_TO / page).read_text(encoding="utf-8"))
    return [(match["file"] or "", match["language"], match["text"]) for match in found]


def write_files(page: str, root: Path, package: str = "") -> None:
    """Write the code blocks that have a file name. Files of the package go into the directory ``package``."""
    for name, _, text in blocks(page):
        if name:
            of_package = name.startswith("guessing_game/") or name == "pyproject.toml"
            path = root / package / name if of_package else root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def securebench(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a ``securebench`` command in ``root``, with the packages in ``root/site``."""
    environment = {**os.environ, "PYTHONPATH": str(root / "site")}
    argv = [sys.executable, "-m", "securebench", *arguments]
    return subprocess.run(argv, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install the package of extend.md with pip, and write the page's pack and tester YAML. Return their directory."""
    write_files("extend.md", tmp_path, "guessing-game")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", tmp_path / "site", tmp_path / "guessing-game"], check=True, capture_output=True)
    return tmp_path


def records(root: Path) -> dict[str, dict[str, Any]]:
    """Return the records of the run in ``root/results`` by task id."""
    lines = (root / "results" / "candidates.jsonl").read_text().splitlines()
    return {record["task_id"]: record for record in map(json.loads, lines)}


def key_free(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records sorted by task id, without the commitments, which depend on the key of each run."""
    for record in found:
        for part in ("pack", "row"):
            record["provenance"][part].pop("commitment", None)
    return sorted(found, key=lambda record: str(record["task_id"]))


@pytest.mark.oci
@pytest.mark.slow
@pytest.mark.usefixtures("oci_driver", "base_image")
def test_the_package_of_the_documentation_works(installed: Path) -> None:
    """A pack is run and judged with the harness, family, verifier, driver and executor of the package in extend.md.

    The records are those that the built-in executor gives. A run is not resumed with another executor, or after the
    code of the package has changed.
    """
    commands = [text for _, language, text in blocks("extend.md") if language == "console"]
    for line in commands[0].splitlines()[1:]:
        done = securebench(installed, *line.removeprefix("$ securebench ").split())
        assert done.returncode == 0, done.stderr
    assert "sandbox of " in done.stdout
    found = records(installed)
    assert {name: record["passed"] for name, record in found.items()} == {
        "guesses/six-times-seven": True,
        "guesses/dozen": False,
    }
    for record in found.values():
        provenance = record["provenance"]
        parts = [provenance[name]["extension"] for name in ("harness", "row", "verifier", "driver", "executor")]
        assert [(part["distribution"], part["version"]) for part in parts] == [("guessing-game", "1.0.0")] * 5
        assert [part["name"].rpartition(":")[2] for part in parts] == [
            "FixedAnswerHarness",
            "GuessEval",
            "GuessVerifier",
            "TracedDriver",
            "ProcessExecutor",
        ]
        assert provenance["harness"]["type"] == "fixed_answer"
    ours = securebench(installed, "run", "tester.yaml", "--executor", "local", "--output-dir", "ours")
    assert ours.returncode == 0, ours.stderr
    theirs = [comparable(record) for record in found.values()]
    for record in theirs:
        del record["provenance"]["executor"]
    lines = (installed / "ours" / "candidates.jsonl").read_text().splitlines()
    assert key_free(theirs) == key_free([comparable(json.loads(line)) for line in lines])
    other = securebench(installed, "run", "tester.yaml", "--resume", "--executor", "local")
    assert "executor" in other.stderr
    assert other.returncode == 1
    with (installed / "site" / "guessing_game" / "verifier.py").open("a", encoding="utf-8") as file:
        file.write("# a new comment\n")
    changed = securebench(installed, "run", "tester.yaml", "--resume")
    assert changed.returncode == 1
    assert "verifiers.guess_number.extension.digest" in changed.stderr


def test_the_unit_test_of_the_documentation_passes() -> None:
    """The example test with a scripted sandbox in extend.md passes."""
    (text,) = (text for name, _, text in blocks("extend.md") if name == "test_scripted.py")
    names: dict[str, Any] = {}
    exec(text, names)
    names["test_a_scripted_command"]()


@pytest.mark.slow
def test_a_change_of_a_package_is_noticed(installed: Path) -> None:
    """The digest of an extension changes if a file is added to its package, unless the file is bytecode."""
    code = (
        "from securebench import plugins; harness = plugins.load(plugins.ExtensionKind.HARNESS, 'fixed_answer');"
        "print(plugins.identity_of(harness).digest)"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed / "site")}

    def digest() -> str:
        argv = [sys.executable, "-c", code]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout

    first = digest()
    cache = installed / "site" / "guessing_game" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "new.pyc").write_bytes(b"bytecode")
    assert digest() == first
    (installed / "site" / "guessing_game" / "data.txt").write_text("new")
    assert digest() != first


def test_the_settings_of_an_extension_are_strict(installed: Path) -> None:
    """A wrong value and an unknown key in ``harness.config`` are reported with their line and column."""
    text = (installed / "tester.yaml").read_text()
    (installed / "tester.yaml").write_text(text.replace("answer: 42", "answer: '42'\n    answr: 1"))
    done = securebench(installed, "run", "tester.yaml")
    assert done.returncode == 1
    assert "tester.yaml:12:13" in done.stderr
    assert "answer must be a whole number" in done.stderr
    assert "tester.yaml:13:5" in done.stderr
    assert "did you mean 'answer'?" in done.stderr


@pytest.mark.oci
@pytest.mark.usefixtures("oci_driver", "base_image")
def test_the_page_on_embedding_works(tmp_path: Path) -> None:
    """The Python examples in embed.md, run in order in one process, print the expected lines."""
    write_files("embed.md", tmp_path)
    rows = [
        {"id": f"pack/{n}", "family": "multiple_choice", "input": {"question": "?", "choices": ["a", "b"]}}
        | {"eval": {"answer": "B"}}
        for n in range(2)
    ]
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "manifest.yaml").write_text("id: pack\nversion: 1\n")
    (tmp_path / "pack" / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = (
        'schema_version: "0.2"\nrun: {id: run, output_dir: %s}\nsandbox: {driver: oci}\n'
        "benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}\nharness: "
    )
    (tmp_path / "tester.yaml").write_text(common % "one" + "{type: command, config: {command: 'echo Answer: B'}}\n")
    (tmp_path / "my-tester.yaml").write_text(common % "two" + "{type: my_fixed_answer}\n")
    script = "\n".join(text for name, language, text in blocks("embed.md") if language == "python" and not name)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "2 of 2 passed",
        done.stdout.splitlines()[1],
        "pack/0 passed",
        "pack/1 passed",
        "pack command the whole benchmark",
        "pack/0 passed full Answer: B",
        "pack/1 passed full Answer: B",
        "1.0",
        "2 tasks have a verdict",
    ]
    assert done.stdout.splitlines()[1].startswith("file-missing ")


@pytest.fixture
def _no_registrations() -> Iterator[None]:
    before = dict(plugins._registered)
    yield
    plugins._registered.clear()
    plugins._registered.update(before)


class Thing:
    """A class to register as an extension."""


@pytest.mark.usefixtures("_no_registrations")
def test_a_name_of_ours_cannot_be_registered() -> None:
    """An extension cannot replace a built-in extension or another registered one.

    Registering the same class twice is allowed.
    """
    with pytest.raises(ConfigError) as refused:
        plugins.register("verifiers", "short_answer", Thing)
    assert refused.value.code == "plugin-conflict"
    plugins.register("verifiers", "thing", Thing)
    plugins.register("verifiers", "thing", Thing)
    with pytest.raises(ConfigError):
        plugins.register("verifiers", "thing", object)
    assert plugins.load(ExtensionKind.VERIFIER, "thing") is Thing


def site(root: Path, monkeypatch: pytest.MonkeyPatch, **packages: str) -> None:
    """Put a distribution for each of ``packages`` on the import path. Each consists of one module.

    ``packages`` maps the names of the modules to their source. Each distribution declares the harness ``odd``, which
    is the class ``Odd`` of its module.
    """
    for name, text in packages.items():
        (root / f"{name}.py").write_text(text)
        info = root / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[securebench.harnesses]\nodd = {name}:Odd\n")
    monkeypatch.syspath_prepend(root)
    plugins._entry_points.cache_clear()
    monkeypatch.setattr(plugins, "_entry_points", plugins._entry_points.__wrapped__)


def test_a_name_of_securebench_is_found_without_searching_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are not searched for built-in extensions and agents, because a search slows down each start."""

    def search(kind: ExtensionKind) -> NoReturn:
        raise AssertionError(f"packages were searched for {kind}")

    monkeypatch.setattr(plugins, "_entry_points", search)
    for name in ("command", "codex"):
        assert plugins.is_known(ExtensionKind.HARNESS, name)
        plugins.load(ExtensionKind.HARNESS, name)
    assert plugins.agent_file("codex").name == "codex.yaml"
    assert plugins.is_known(ExtensionKind.VERIFIER, "short_answer")
    with pytest.raises(AssertionError, match=r"for (?:harnesses|agents)"):
        plugins.is_known(ExtensionKind.HARNESS, "odd")


def test_two_packages_cannot_offer_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages with the same extension name are refused: the choice would depend on the order of installation."""
    site(tmp_path, monkeypatch, first_odd="class Odd: pass", second_odd="class Odd: pass")
    with pytest.raises(
        ConfigError, match=r"first_odd 1\.0, second_odd 1\.0|second_odd 1\.0, first_odd 1\.0"
    ) as refused:
        plugins.load(ExtensionKind.HARNESS, "odd")
    assert refused.value.code == "plugin-conflict"


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a package that cannot be imported names the package and the reason."""
    site(tmp_path, monkeypatch, broken_odd="raise RuntimeError('no such service')")
    with pytest.raises(ConfigError, match=r"broken_odd 1\.0.*RuntimeError: no such service") as refused:
        plugins.load(ExtensionKind.HARNESS, "odd")
    assert refused.value.code == "plugin-broken"
    with pytest.raises(ConfigError) as unknown:
        plugins.load(ExtensionKind.HARNESS, "odder")
    assert unknown.value.code == "plugin-unknown"


def test_code_without_a_file_has_no_identity() -> None:
    """A class without a source file is refused, because a record must contain the digest of its code."""
    code = "class Odd: pass\nfrom securebench import plugins\nplugins.identity_of(Odd)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "plugin-no-source" in done.stderr


@pytest.mark.parametrize("name", ["node", "python"])
def test_a_package_cannot_give_a_reserved_name_to_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A package whose agent has the name of a language runtime is refused, and the error names the package."""
    site(tmp_path, monkeypatch, greedy="")
    points = tmp_path / "greedy-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[securebench.agents]\n{name} = greedy:path\n")
    for kind in (ExtensionKind.AGENT, ExtensionKind.HARNESS):
        expected = rf"'{name}' is reserved, but it is the name of an agent in greedy 1\.0"
        with pytest.raises(ConfigError, match=expected) as refused:
            plugins.load(kind, name)
        assert refused.value.code == "plugin-conflict"
