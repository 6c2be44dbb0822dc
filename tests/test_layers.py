"""The import contracts, which import-linter checks: the source keeps them, and violations are reported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINT = Path(sys.executable).with_name("lint-imports")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a directory with a copy of the source that a test may change."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def _lint(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [str(LINT), "--config", "pyproject.toml", "--no-cache", "--no-logo"]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=directory, env={"PYTHONPATH": str(directory / "src")}
    )


def test_the_source_keeps_its_layers(copy: Path) -> None:
    """The source keeps every import contract in pyproject.toml."""
    done = _lint(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        ("errors.py", "securebench.cli", "Imports go one way"),
        ("harnesses/base.py", "securebench.verifiers.base", "Imports go one way"),
        ("verifiers/base.py", "securebench.harnesses.base", "Imports go one way"),
        ("sandboxes/base.py", "securebench.testing", "Imports go one way"),
        ("importers/__init__.py", "securebench.sandboxes.base", "Importers make packs, and know nothing of runs"),
        ("execution/__init__.py", "docker", "Only the driver and the images know the engine's library"),
        ("sandboxes/base.py", "docker.errors", "Only the driver and the images know the engine's library"),
        ("importers/__init__.py", "urllib3", "Downloads use one HTTP client"),
    ],
)
def test_a_forbidden_import_is_caught(copy: Path, module: str, imported: str, contract: str) -> None:
    """An import that breaks a contract is reported, even if it is inside a function."""
    path = copy / "src" / "securebench" / module
    path.write_text(f"{path.read_text()}\n\ndef late() -> None:\n    import {imported}\n")
    done = _lint(copy)
    assert done.returncode == 1, done.stdout
    assert f"{contract} BROKEN" in " ".join(done.stdout.split())


def test_an_import_for_the_type_checker_is_caught(copy: Path) -> None:
    """An import that breaks a contract is reported even if only the type checker executes it."""
    path = copy / "src" / "securebench" / "errors.py"
    path.write_text(f"{path.read_text()}\n\nif TYPE_CHECKING:\n    import securebench.cli\n")
    done = _lint(copy)
    assert done.returncode == 1, done.stdout
    assert "Imports go one way BROKEN" in " ".join(done.stdout.split())


def test_a_module_without_a_layer_is_caught(copy: Path) -> None:
    """A module that is not assigned to a layer is reported."""
    (copy / "src" / "securebench" / "attic.py").write_text("")
    done = _lint(copy)
    assert done.returncode == 1
    assert "attic" in done.stdout
