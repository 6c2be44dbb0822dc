"""Packaging: the files of the wheel, the locked requirements, and the modules that an import loads."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
INDEX = re.compile(r"^\s*(-i|-f|--\S*index\S*|--find-links|--trusted-host)\b|://", re.MULTILINE)
PIN = re.compile(r"^([a-z0-9.-]+)==(\S+?)(?: ;.*)? \\$", re.MULTILINE)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel of this checkout, built as 'pip wheel' builds it."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return zipfile.ZipFile(next(directory.glob("*.whl")))


def _tracked(directory: str) -> set[str]:
    """Return the paths of all files below a directory, relative to it, except those in ``__pycache__``."""
    ignored = {"__pycache__"}
    root = ROOT / directory
    files = (path for path in root.rglob("*") if path.is_file() and not ignored & set(path.parts))
    return {str(path.relative_to(root)) for path in files}


def test_the_wheel_holds_the_package_the_recipes_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """The wheel has only the files of src/securebench, those of images/ as securebench/_recipes, and metadata."""
    metadata = f"securebench-{PROJECT['project']['version']}.dist-info"
    expected = {
        *(f"securebench/{name}" for name in _tracked("src/securebench")),
        *(f"securebench/_recipes/{name}" for name in _tracked("images")),
        *(f"{metadata}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")),
    }
    assert set(wheel.namelist()) == expected


def test_the_wheel_is_typed_and_has_no_data_of_a_benchmark(wheel: zipfile.ZipFile) -> None:
    """The wheel has the marker ``py.typed``, and no file with an extension of benchmark data or documentation."""
    names = wheel.namelist()
    assert "securebench/py.typed" in names
    assert not [name for name in names if name.endswith((".jsonl", ".csv", ".gz", ".md"))]


def test_an_installed_package_finds_its_recipes(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """An installed package lists the image recipe of its own wheel, without a checkout."""
    wheel.extractall(tmp_path)
    code = "from securebench.images.build.recipes import all_recipes; print(*(r.directory for r in all_recipes()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout.split() == [str(tmp_path / "securebench" / "_recipes" / "python-3.11")]


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt"])
def test_a_lock_pins_and_hashes_everything_and_names_no_index(name: str) -> None:
    """A file of locked requirements has one version and the hashes of each requirement.

    It has no URL, so users can choose their own index.
    """
    text = (ROOT / "requirements" / name).read_text()
    assert not INDEX.search(text), "a lock names an index, a mirror or an address"
    blocks = re.split(r"\n(?=\S)", text.strip())
    for block in blocks:
        assert PIN.match(block), block.splitlines()[0]
        assert "--hash=sha256:" in block, block.splitlines()[0]


def test_the_developers_lock_holds_the_other_at_the_same_versions() -> None:
    """dev.txt contains all requirements of runtime.txt at the same versions."""
    runtime, dev = (set(PIN.findall((ROOT / "requirements" / name).read_text())) for name in ("runtime.txt", "dev.txt"))
    assert runtime <= dev


@pytest.mark.parametrize(("name", "groups"), [("runtime.txt", ["build"]), ("dev.txt", ["build", "dev"])])
def test_a_lock_has_all_that_the_project_asks_for(name: str, groups: list[str]) -> None:
    """runtime.txt and dev.txt have all dependencies of the package and of their groups in pyproject.toml.

    'make lock' adds a missing one.
    """
    wanted = [*PROJECT["project"]["dependencies"]]
    wanted += [entry for group in groups for entry in PROJECT["dependency-groups"][group] if isinstance(entry, str)]
    names = {re.split(r"[<>=!~ \[;]", entry)[0].lower().replace("_", "-").replace(".", "-") for entry in wanted}
    locked = {pin[0].replace(".", "-") for pin in PIN.findall((ROOT / "requirements" / name).read_text())}
    assert names <= locked, f"run 'make lock': {sorted(names - locked)} not in requirements/{name}"


@pytest.mark.parametrize("arguments", [["-c", "import securebench"], ["-m", "securebench", "--help"]])
def test_starting_loads_nothing_heavy(arguments: list[str]) -> None:
    """Importing the package, or running it with --help, loads none of the libraries that are slow to import."""
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], check=True, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "securebench" in loaded
    assert not loaded & {"docker", "pydantic", "rich", "ruamel.yaml", "requests", "asyncio"}


def test_every_test_directory_is_collected(pytestconfig: pytest.Config) -> None:
    """No directory with tests matches ``norecursedirs``. By default, pytest skips some names, such as 'build'."""
    skipped = pytestconfig.getini("norecursedirs")
    directories = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    parts = {part for directory in directories for part in directory.relative_to(ROOT).parts}
    assert not [part for part in parts if any(fnmatch(part, pattern) for pattern in skipped)]
