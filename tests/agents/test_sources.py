"""Programs that do not come from npm: archives beside a declaration, and packages from PyPI."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from securebench import plugins
from securebench.agents import pypi
from securebench.agents.catalogue import find
from securebench.agents.model import integrity_of
from securebench.errors import ConfigError, InfrastructureError

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.agents.store import AgentStore

DECLARATION = """schema_version: "0.1"
source: {source}
runtime: python
dialect: chat_completions
arguments: ["{{prompt}}"]
"""


@pytest.fixture(autouse=True)
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's directory of declarations, which is empty."""
    directory = tmp_path / "agents"
    directory.mkdir()
    monkeypatch.setenv(plugins.AGENTS_VARIABLE, str(directory))
    return directory


def _linked(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.type, member.size, member.linkname = tarfile.SYMTYPE, 0, "other.py"
    return member


def _private(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(mode=0o600, deep=False)


def archived(agents: Path, *tops: str) -> None:
    """Write the archive ``mine.tgz`` and its declaration ``mine.yaml``.

    The archive has a file ``run.py`` in each directory of ``tops``. By default, the only directory is ``mine``.
    """
    (agents / "run.py").write_text("print('hello')\n")
    (agents / "run.py").chmod(0o644)
    with tarfile.open(agents / "mine.tgz", "w:gz") as tar:
        for top in tops or ("mine",):
            tar.add(agents / "run.py", f"{top}/run.py")
    integrity = integrity_of(hashlib.sha512((agents / "mine.tgz").read_bytes()).digest())
    source = f"{{archive: mine.tgz, version: '2.0', integrity: {integrity}, executable: run.py}}"
    (agents / "mine.yaml").write_text(DECLARATION.format(source=source))


def test_an_archive_beside_the_file_is_installed(agents: Path, cache: AgentStore) -> None:
    """A program is installed from an archive next to its declaration. With a runtime, it need not be executable."""
    archived(agents)
    program = cache.install("mine")
    assert (program.version, program.executable) == ("2.0", "run.py")
    assert (program.directory / "run.py").read_text() == "print('hello')\n"
    assert [one.source for one in cache.installed()] == ["declaration"]
    assert cache.install_file(agents / "mine.tgz", "mine").integrity == program.integrity


def test_an_exchanged_archive_is_refused(agents: Path, cache: AgentStore) -> None:
    """An archive that does not have the hash in its declaration is refused."""
    archived(agents)
    with (agents / "mine.tgz").open("ab") as file:
        file.write(b"more")
    with pytest.raises(InfrastructureError) as caught:
        cache.install("mine")
    assert caught.value.code == "agent-integrity"
    assert cache.installed() == ()


@pytest.mark.parametrize(
    ("tops", "why"), [(("..",), "invalid path"), (("mine", "other"), "an entry outside its top-level directory 'mine'")]
)
def test_an_archive_must_have_one_top_directory(
    tops: tuple[str, ...], why: str, agents: Path, cache: AgentStore
) -> None:
    """An archive whose top directory is ``..``, or which has two top directories, is refused."""
    archived(agents, *tops)
    with pytest.raises(InfrastructureError, match=why):
        cache.install("mine")


@pytest.mark.parametrize(
    ("changes", "why", "hint"),
    [
        ({"arcname": "mine/main.py"}, "has no executable run.py", "in the archive. Files to choose from: main.py"),
        ({"filter": _linked}, "neither a file nor a directory: 'mine/run.py'", "tar --dereference"),
        ({"filter": _private}, "not readable by all users", "chmod -R a+rX"),
        ({"arcname": "./run.py"}, "an invalid path: './run.py'", "below one directory, as 'tar -czf NAME.tgz NAME'"),
    ],
)
def test_a_bad_archive_is_explained(
    changes: dict[str, Any], why: str, hint: str, agents: Path, cache: AgentStore
) -> None:
    """The error for a wrong hash shows the hash of the archive. The error for bad content says how to correct it."""
    archived(agents)
    with tarfile.open(agents / "mine.tgz", "w:gz") as tar:
        tar.add(agents / "run.py", **{"arcname": "mine/run.py", **changes})
    integrity = integrity_of(hashlib.sha512((agents / "mine.tgz").read_bytes()).digest())
    with pytest.raises(InfrastructureError) as caught:
        cache.install("mine")
    assert f"set 'integrity: {integrity}' in {agents / 'mine.yaml'}" in caught.value.hint
    text = (agents / "mine.yaml").read_text()
    (agents / "mine.yaml").write_text(re.sub(r"sha512-[^,]*", integrity, text))
    with pytest.raises(InfrastructureError) as caught:
        cache.install("mine")
    assert why in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("is_invalid", [False, True])
def test_a_program_without_a_declaration_is_removed(is_invalid: bool, agents: Path, cache: AgentStore) -> None:
    """A program whose declaration was deleted or became invalid can still be listed and removed by name."""
    archived(agents)
    cache.install("mine")
    cache.close()
    if is_invalid:
        (agents / "mine.yaml").write_text("source: 7\n")
    else:
        (agents / "mine.yaml").unlink()
    assert [(found.program.name, found.pinned) for found in cache.installed()] == [("mine", False)]
    assert [key.name for key in cache.remove("mine").removed] == ["mine"]
    assert cache.installed() == ()
    with pytest.raises(ConfigError) as caught:
        cache.remove("nobody")
    assert caught.value.code == "agent-unknown"


def test_other_versions_are_only_on_npm(agents: Path, cache: AgentStore) -> None:
    """A program that is not on npm has only its declared version, because the declaration has only one hash."""
    archived(agents)
    with pytest.raises(ConfigError, match=r"only in version 2\.0"):
        cache.install("mine", "3.0.0")


def test_wheels_become_a_program(agents: Path, cache: AgentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels are unpacked into a program. Its integrity is the digest of the requirements file."""
    pin = f"mine==1.0 --hash=sha256:{'0' * 64}"

    def fetch(requirements: tuple[str, ...], python: str, directory: Path) -> None:
        assert (requirements, python) == ((pin,), "3.11")
        with zipfile.ZipFile(directory / "mine-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("mine/cli.py", "raise SystemExit(7)\n")
            wheel.writestr("mine-1.0.dist-info/WHEEL", "Root-Is-Purelib: true\n")

    monkeypatch.setattr(pypi, "fetch_wheels", fetch)
    (agents / "mine.txt").write_text(f"{pin}\n")
    source = "{pypi: mine, version: '1.0', requirements: mine.txt, module: mine.cli}"
    (agents / "mine.yaml").write_text(DECLARATION.format(source=source))
    program = cache.install("mine")
    assert (program.directory / "mine/cli.py").read_text() == "raise SystemExit(7)\n"
    assert "'mine.cli'" in (program.directory / program.executable).read_text()
    assert program.integrity == integrity_of(hashlib.sha512((agents / "mine.txt").read_bytes()).digest())
    (agents / "mine.txt").write_text(f"{pin} # the same\n")
    assert find("mine").variants[0].integrity != program.integrity


def test_a_hostile_wheel_writes_nothing_on_the_host(
    agents: Path, cache: AgentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I25: a wheel with a path as the name of a console script is refused, and writes nothing to this path."""

    def fetch(_requirements: object, _python: str, directory: Path) -> None:
        with zipfile.ZipFile(directory / "mine-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("mine-1.0.dist-info/WHEEL", "Root-Is-Purelib: true\n")
            points = f"[console_scripts]\n{tmp_path}/evil.pth = x\n import os; os.abort()\n y:main\n"
            wheel.writestr("mine-1.0.dist-info/entry_points.txt", points)

    monkeypatch.setattr(pypi, "fetch_wheels", fetch)
    (agents / "mine.txt").write_text(f"mine==1.0 --hash=sha256:{'0' * 64}\n")
    source = "{pypi: mine, version: '1.0', requirements: mine.txt, module: mine.cli}"
    (agents / "mine.yaml").write_text(DECLARATION.format(source=source))
    with pytest.raises(InfrastructureError, match="unsafe program") as caught:
        cache.install("mine")
    assert caught.value.code == "agent-unusable"
    assert not (tmp_path / "evil.pth").exists()


def test_no_source_archive_runs_on_the_host(agents: Path, cache: AgentStore, tmp_path: Path) -> None:
    """I26: a requirement with a URL is refused: pip would run code of a source archive, even with ``--only-binary``."""
    data = f"open({str(tmp_path / 'canary')!r}, 'w')\n".encode()
    with tarfile.open(agents / "evil-1.0.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("evil-1.0/setup.py")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    digest = hashlib.sha256((agents / "evil-1.0.tar.gz").read_bytes()).hexdigest()
    line = f"evil @ {(agents / 'evil-1.0.tar.gz').as_uri()} --hash=sha256:{digest}\n"
    (agents / "mine.txt").write_text(f"# pinned\n{line}")
    source = "{pypi: mine, version: '1.0', requirements: mine.txt, module: mine.cli}"
    (agents / "mine.yaml").write_text(DECLARATION.format(source=source))
    with pytest.raises(ConfigError, match="is not an exact requirement") as caught:
        cache.install("mine")
    assert caught.value.code == "agent-requirements"
    assert "mine.txt:2" in str(caught.value)
    assert not (tmp_path / "canary").exists()
