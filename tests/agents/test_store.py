"""The agent store: complete installations, checks of the integrity, concurrent use, and use without a registry."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fake_npm import archive, entry, package
from fake_server import breaks_after, says, waits
from securebench.agents.catalogue import PROGRAMS, machine_platform
from securebench.agents.model import ProgramKey
from securebench.agents.progress import InstallStage
from securebench.agents.registry import NpmRegistry
from securebench.agents.store import AgentStore
from securebench.errors import ConfigError, DiskFullError, InfrastructureError
from securebench.images.store import incoming
from securebench.images.store.archive import RootConfig, add_root
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource, Origin
from securebench.images.store.places import DIRECTORY_VARIABLE
from workspaces.users import as_ordinary_user, open_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_npm import FakeNpm
    from securebench.agents.progress import Progress

CODEX = "@openai/codex"
EXECUTABLE = "vendor/x86_64-unknown-linux-musl/bin/codex"
VERSION = "9.8.7"
X64 = "linux-x64"
REFERENCE = f"securebench/agents/codex:{VERSION}-{X64}"
_PROCESSES = 3


def release(version: str = VERSION, *more: Any, data: bytes = b"#!/bin/sh\n", suffix: str = "-linux-x64") -> bytes:
    """Return the archive of a version of codex, with ``more`` members."""
    return package(CODEX, version + suffix, EXECUTABLE, *more, data=data)


@pytest.fixture
def integrity(npm: FakeNpm) -> str:
    """Publish a version of codex that is not the pinned one, and return its integrity."""
    return npm.publish(CODEX, f"{VERSION}-linux-x64", release())


def left(store: AgentStore) -> list[str]:
    """Return what is in the store.

    Each image is listed by its reference. Each entry of the directories ``trees`` and ``work`` is listed by the name of
    its directory.
    """
    top = store.images.directory
    if not top.exists():
        return []
    found = [path.parent.name for name in ("trees", "work") for path in (top / name).iterdir()]
    return sorted([*(entry.reference for entry in store.images.entries()), *found])


def test_a_program_is_installed(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """The installed program has the requested version and the published content, and no temporary files remain."""
    program = cache.install("codex", VERSION, X64)
    assert (program.name, program.version, program.platform) == ("codex", VERSION, X64)
    assert program.integrity == integrity
    assert program.executable == EXECUTABLE
    assert (program.directory / program.executable).read_bytes() == b"#!/bin/sh\n"
    assert left(cache) == [REFERENCE, "trees"]


def test_a_program_that_is_there_needs_no_registry(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """An installed program is resolved and returned without the registry, by the same store object or a new one."""
    program = cache.install("codex", VERSION, X64)
    requests_before = len(npm.requests)
    assert cache.install("codex", VERSION, X64) == program
    with AgentStore(ImageStore(cache.images.directory), NpmRegistry("http://127.0.0.1:9")) as offline:
        assert offline.resolve("codex", VERSION, X64) == (VERSION, integrity)
        assert offline.install("codex", VERSION, X64) == program
    assert len(npm.requests) == requests_before


def test_a_program_is_held_once(cache: AgentStore, integrity: str) -> None:
    """Repeated calls of ``install`` open no more files. A run may make hundreds of calls, one for each image."""
    cache.install("codex", VERSION, X64)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        cache.install("codex", VERSION, X64)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_latest_is_one_version(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """``latest`` is looked up in the main package, and resolved to an exact version."""
    npm.publish(CODEX, VERSION, b"", tags=("latest",))
    assert cache.resolve("codex", "latest", X64) == (VERSION, integrity)
    assert cache.install("codex", "latest", X64).version == VERSION


def test_a_version_that_a_registry_makes_up_is_refused(cache: AgentStore, npm: FakeNpm) -> None:
    """A tag that the registry resolves to an invalid version is refused, because a version becomes part of a path."""
    npm.publish(CODEX, "../../../etc", b"", tags=("latest",))
    npm.files[f"/{CODEX}/latest"] = npm.files[f"/{CODEX}/../../../etc"]
    with pytest.raises(ConfigError) as caught:
        cache.install("codex", "latest", X64)
    assert caught.value.code == "agent-unknown-version"


def test_the_pinned_version_is_the_default(cache: AgentStore) -> None:
    """Without a version, the pinned version is used, and the integrity is that of the declaration."""
    for known in PROGRAMS.values():
        for variant in known.variants:
            assert cache.resolve(known.name, None, variant.platform) == (known.pinned, variant.integrity)
            assert cache.resolve(known.name, known.pinned, variant.platform).integrity == variant.integrity


def test_a_pinned_version_is_held_to_its_pin(cache: AgentStore, npm: FakeNpm) -> None:
    """An archive of the pinned version must have the pinned hash, even if the registry names another hash."""
    pinned = PROGRAMS["codex"].pinned
    npm.publish(CODEX, f"{pinned}-linux-x64", release(pinned))
    with pytest.raises(InfrastructureError, match="not the expected file") as caught:
        cache.install("codex", None, X64)
    assert caught.value.code == "agent-integrity"
    assert left(cache) == []


def test_an_archive_that_was_exchanged_is_refused(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """An archive that does not have the hash from the registry is refused, and nothing of it stays in the store."""
    npm.faults[".tgz"] = [says(200, release(data=b"#!/bin/sh\nother\n"))]
    with pytest.raises(InfrastructureError) as caught:
        cache.install("codex", VERSION, X64)
    assert caught.value.code == "agent-integrity"
    assert left(cache) == []


def test_an_archive_that_is_cut_short_is_refused(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """A truncated archive is refused, even if the response announces the shorter length."""
    npm.faults[".tgz"] = [says(200, release()[:-1])]
    with pytest.raises(InfrastructureError) as caught:
        cache.install("codex", VERSION, X64)
    assert caught.value.code == "agent-integrity"


def test_a_connection_that_breaks_is_no_trouble(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """After a connection breaks, the rest of the archive is downloaded, and the program is installed."""
    npm.faults[".tgz"] = [breaks_after(50)]
    assert cache.install("codex", VERSION, X64).integrity == integrity


@pytest.mark.parametrize(
    "data",
    [
        release("9.8.6"),
        release(suffix="-linux-arm64"),
        release(VERSION, entry("package/link", kind=b"2", link="/etc/passwd")),
        package(CODEX, f"{VERSION}-linux-x64", "bin/other"),
        package("@somebody/else", f"{VERSION}-linux-x64", EXECUTABLE),
    ],
    ids=["version", "platform", "link", "executable", "package"],
)
def test_an_archive_of_something_else_is_refused(cache: AgentStore, npm: FakeNpm, data: bytes) -> None:
    """An archive with the right hash but unexpected content is refused, and nothing of it stays in the store."""
    npm.publish(CODEX, f"{VERSION}-linux-x64", data)
    with pytest.raises((InfrastructureError, ConfigError)) as caught:
        cache.install("codex", VERSION, X64)
    assert caught.value.code in {"agent-unusable", "agent-unknown"}
    assert left(cache) == []


def test_what_is_not_executable_is_refused(cache: AgentStore, npm: FakeNpm) -> None:
    """A package whose program is not an executable file is refused at installation, before any task fails."""
    described = entry("package/package.json", b'{"name": "@openai/codex", "version": "9.8.7-linux-x64"}')
    npm.publish(CODEX, f"{VERSION}-linux-x64", archive(described, entry(f"package/{EXECUTABLE}", b"x")))
    with pytest.raises(InfrastructureError, match="is not executable"):
        cache.install("codex", VERSION, X64)


def test_without_registry_and_cache_the_error_says_how_to_go_on(tmp_path: Path) -> None:
    """The hint says how to get the archive on another machine, and how to install it from the file."""
    with pytest.raises(InfrastructureError, match="npm registry") as caught:
        AgentStore(ImageStore(tmp_path / "images"), NpmRegistry("http://127.0.0.1:9")).install("codex", None, X64)
    assert caught.value.code == "agent-unavailable"
    assert "securebench agents install --from FILE.tgz" in caught.value.hint
    assert "npm pack" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "version", "platform", "code"),
    [
        ("other", None, None, "agent-unknown"),
        ("codex", None, "linux-x64-musl", "agent-unknown"),
        ("codex", None, "../..", "agent-unknown"),
        ("codex", "1.2", None, "agent-unknown-version"),
        ("codex", "1.2.3/../../x", None, "agent-unknown-version"),
        ("codex", "next", None, "agent-unknown-version"),
        ("codex", "9.9.9", "linux-x64", "agent-unknown-version"),
    ],
)
def test_what_is_not_known_is_refused(
    cache: AgentStore, name: str, version: str | None, platform: str | None, code: str
) -> None:
    """An unknown program, version or platform is refused, and nothing is added to the store."""
    with pytest.raises(ConfigError) as caught:
        cache.install(name, version, platform)
    assert caught.value.code == code
    assert left(cache) == []


def test_a_machine_that_no_program_is_made_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine type for which there are no programs is an error that names the type."""
    assert machine_platform("aarch64") == "linux-arm64"
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    with pytest.raises(ConfigError, match="s390x") as caught:
        machine_platform()
    assert caught.value.code == "agent-unfit"


def test_an_archive_of_this_machine_is_installed(cache: AgentStore, npm: FakeNpm, tmp_path: Path) -> None:
    """An archive file identifies its program, whatever its name is, and is installed without the registry."""
    path = tmp_path / "any-name.tgz"
    path.write_bytes(package("@anthropic-ai/claude-code-linux-x64-musl", "9.0.0", "claude"))
    program = cache.install_file(path)
    assert (program.name, program.version, program.platform) == ("claude_code", "9.0.0", "linux-x64-musl")
    assert cache.install("claude_code", "9.0.0", "linux-x64-musl") == program
    assert cache.install_file(path) == program
    assert npm.requests == []
    assert cache.installed()[0].source == "file"


def test_an_archive_of_another_program_than_was_named_is_refused(cache: AgentStore, tmp_path: Path) -> None:
    """An archive of codex is refused if the caller asked for Claude Code."""
    path = tmp_path / "codex.tgz"
    path.write_bytes(release())
    with pytest.raises(ConfigError, match="not claude_code"):
        cache.install_file(path, "claude_code")
    assert left(cache) == []


def test_an_archive_of_a_pinned_version_must_be_the_pinned_one(cache: AgentStore, tmp_path: Path) -> None:
    """An archive file of the pinned version must have the pinned hash. A missing file is reported."""
    path = tmp_path / "codex.tgz"
    path.write_bytes(release(PROGRAMS["codex"].pinned))
    with pytest.raises(InfrastructureError) as caught:
        cache.install_file(path)
    assert caught.value.code == "agent-integrity"
    with pytest.raises(ConfigError) as missing:
        cache.install_file(tmp_path / "nothing.tgz")
    assert missing.value.code == "file-missing"


def touch(path: Path) -> None:
    """Change the modification time of a file, and not its content."""
    os.utime(path)


def rewrite(path: Path) -> None:
    """Change the content of a file, but not its size, permissions or modification time."""
    status, data = path.stat(), path.read_bytes()
    path.chmod(0o755)
    path.write_bytes(bytes(reversed(data)))
    path.chmod(stat.S_IMODE(status.st_mode))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def exchange(path: Path) -> None:
    """Move a file, and put a symbolic link to it in its place."""
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def let_write(path: Path) -> None:
    """Make a file writable for all users."""
    path.chmod(0o777)


def add_a_file(path: Path) -> None:
    """Add a file that the package does not contain, in the same directory."""
    path.with_name("added").write_text("x")


DAMAGES = [rewrite, exchange, let_write, add_a_file, Path.unlink]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_changed_program_is_unpacked_again(cache: AgentStore, npm: FakeNpm, integrity: str, damage: Any) -> None:
    """A program whose files were changed is unpacked again from the archive in the store, without a download."""
    program = cache.install("codex", VERSION, X64)
    cache.close()
    damage(program.directory / program.executable)
    assert not cache.installed()[0].intact
    assert cache.install("codex", VERSION, X64) == program
    assert (program.directory / program.executable).read_bytes() == b"#!/bin/sh\n"
    assert not (program.directory / program.executable).with_name("added").exists()
    assert cache.installed(verify=True)[0].intact
    assert len(npm.requests_for(".tgz")) == 1


def test_a_program_without_its_archive_is_downloaded_again(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """If the files of a program and its archive in the store are damaged, it is downloaded again."""
    program = cache.install("codex", VERSION, X64)
    cache.close()
    rewrite(program.directory / program.executable)
    blob = cache.images.directory / "blobs/sha256" / hashlib.sha256(release()).hexdigest()
    blob.write_bytes(blob.read_bytes()[:-9])
    assert not cache.installed(verify=True)[0].intact
    assert cache.install("codex", VERSION, X64) == program
    assert cache.installed(verify=True)[0].intact
    assert len(npm.requests_for(".tgz")) == 2


def test_a_copy_of_the_store_is_good(cache: AgentStore, npm: FakeNpm, integrity: str, tmp_path: Path) -> None:
    """A copied store works without a registry. Its inodes and times differ, so the programs are unpacked again."""
    cache.install("codex", VERSION, X64)
    requests_before = len(npm.requests)
    shutil.copytree(cache.images.directory, tmp_path / "copy")
    with AgentStore(ImageStore(tmp_path / "copy"), NpmRegistry("http://127.0.0.1:9")) as copy:
        assert copy.install("codex", VERSION, X64).integrity == integrity
        assert copy.installed(verify=True)[0].intact
    assert len(npm.requests) == requests_before


def test_a_touched_file_is_right_when_all_is_read(cache: AgentStore, integrity: str) -> None:
    """A file with a new modification time fails the quick check of metadata, but passes the check of the content."""
    program = cache.install("codex", VERSION, X64)
    touch(program.directory / program.executable)
    assert not cache.installed()[0].intact
    assert cache.installed(verify=True)[0].intact


def test_an_image_with_the_name_of_a_program_is_none(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """An image built from a recipe does not count as a program, even with the reference and labels of one."""
    program = cache.install("codex", VERSION, X64)
    labels = dict(cache.images.labels(REFERENCE))
    cache.close()
    with cache.images.incoming(Origin(ImageSource.RECIPE)) as arriving:
        forged = add_root(
            arriving, [archive(entry(f"package/{EXECUTABLE}", b"evil", 0o755))], RootConfig(labels=labels), "x"
        )
        arriving.name(forged, REFERENCE)
    assert cache.installed() == ()
    assert cache.install("codex", VERSION, X64) == program
    assert (program.directory / program.executable).read_bytes() == b"#!/bin/sh\n"
    assert len(npm.requests_for(".tgz")) == 2


def test_programs_count_in_a_prune(cache: AgentStore, integrity: str) -> None:
    """Like any image, a program in use is not pruned. Otherwise it may be removed to keep the store below a size."""
    cache.install("codex", VERSION, X64)
    assert cache.images.prune(0).removed == ()
    cache.close()
    assert [entry.reference for entry in cache.images.prune(0).removed] == [REFERENCE]
    assert left(cache) == []


def test_a_damaged_program_that_a_run_uses_is_left_to_it(cache: AgentStore, integrity: str) -> None:
    """A damaged program that a run uses is not replaced, because it may be mounted in a sandbox."""
    program = cache.install("codex", VERSION, X64)
    rewrite(program.directory / program.executable)
    with (
        AgentStore(ImageStore(cache.images.directory), cache._registry) as other,
        pytest.raises(InfrastructureError) as caught,
    ):
        other.install("codex", VERSION, X64)
    assert caught.value.code == "agent-in-use"


def test_what_is_removed_is_gone_but_for_what_is_used(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """Programs are removed by name and version, except those that a store object has returned and not yet released."""
    npm.publish(CODEX, "9.8.6-linux-x64", release("9.8.6"))
    cache.install("codex", VERSION, X64)
    cache.install("codex", "9.8.6", X64)
    with AgentStore(ImageStore(cache.images.directory)) as other:
        used = ProgramKey("codex", VERSION, X64)
        assert other.remove("codex", VERSION) == ((), (used,))
        cache.close()
        assert other.remove("codex", VERSION) == ((used,), ())
        assert left(cache) == [f"securebench/agents/codex:9.8.6-{X64}", "trees"]
        with pytest.raises(ConfigError, match="is not installed"):
            other.remove("codex", VERSION)
        other.remove("codex")
    assert left(cache) == []


def test_what_is_listed(cache: AgentStore, integrity: str) -> None:
    """``installed`` returns program, source, size and state. It does not create a store that does not exist."""
    assert cache.installed() == ()
    assert not cache.images.directory.exists()
    program = cache.install("codex", VERSION, X64)
    (found,) = cache.installed()
    assert (found.program, found.source, found.pinned, found.intact) == (program, "registry", False, True)
    assert found.size_bytes == sum(path.stat().st_size for path in program.directory.rglob("*") if path.is_file())
    assert found.installed_at == pytest.approx(time.time(), abs=60)


def test_an_installation_tells_what_it_does(cache: AgentStore, integrity: str) -> None:
    """Each stage of an installation is reported, and has a readable text."""
    reported: list[Progress] = []
    cache.install("codex", VERSION, X64, reported.append)
    assert [progress.stage for progress in reported] == [
        InstallStage.DOWNLOADING,
        InstallStage.UNPACKING,
        InstallStage.INSTALLED,
    ]
    assert str(reported[0]) == f"codex {VERSION} {X64}: downloading"
    assert str(replace(reported[0], done=2_500_000, size=167_000_000)).endswith("downloading, 2 of 167 MB")


def test_many_threads_install_once(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """If several threads install a program, one downloads it, and the others wait and use the result."""
    stores = [AgentStore(ImageStore(cache.images.directory), NpmRegistry(npm.url)) for _ in range(8)]
    with ThreadPoolExecutor(len(stores)) as pool:
        programs = list(pool.map(lambda store: store.install("codex", VERSION, X64), stores))
    for store in stores:
        store.close()
    assert len(set(programs)) == 1
    assert len(npm.requests_for(".tgz")) == 1
    assert left(cache) == [REFERENCE, "trees"]


_INSTALL = """
import sys
from pathlib import Path
from securebench.agents.registry import NpmRegistry
from securebench.agents.store import AgentStore
from securebench.images.store.image_store import ImageStore
with AgentStore(ImageStore(Path(sys.argv[1])), NpmRegistry(sys.argv[2])) as store:
    print(store.install("codex", "9.8.7", "linux-x64").integrity)
"""


def start(cache: AgentStore, npm: FakeNpm) -> subprocess.Popen[str]:
    """Start an installation in another process."""
    return subprocess.Popen(
        [sys.executable, "-c", _INSTALL, str(cache.images.directory), npm.url], stdout=subprocess.PIPE, text=True
    )


def test_many_processes_install_once(cache: AgentStore, npm: FakeNpm, integrity: str) -> None:
    """If several processes install a program at once, it is downloaded once."""
    running = [start(cache, npm) for _ in range(_PROCESSES)]
    assert [process.communicate(timeout=60)[0].strip() for process in running] == [integrity] * _PROCESSES
    assert len(npm.requests_for(".tgz")) == 1
    assert left(cache) == [REFERENCE, "trees"]


def test_a_killed_installation_leaves_only_work_that_the_next_removes(
    cache: AgentStore, npm: FakeNpm, integrity: str
) -> None:
    """A killed installation holds no lock, is not listed as a program, and its files are removed by the next one."""
    reached = threading.Event()
    npm.faults[".tgz"] = [waits(reached, sent=60)]
    with start(cache, npm) as process:
        assert reached.wait(30)
        while not left(cache):
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert left(cache) == ["work"]
    assert cache.installed() == ()
    cache.install("codex", VERSION, X64)
    assert left(cache) == [REFERENCE, "trees"]


def test_a_full_disk_is_told_of_as_one(cache: AgentStore, integrity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is reported as :class:`DiskFullError`, and nothing of the program stays in the store."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(incoming, "write_all", full)
    with pytest.raises(DiskFullError, match="has no room"):
        cache.install("codex", VERSION, X64)
    assert left(cache) == []


def test_a_cache_that_cannot_be_made_is_told_of(tmp_path: Path, registry: NpmRegistry, integrity: str) -> None:
    """A store whose path is a file is reported as unusable."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="cannot be used") as caught:
        AgentStore(ImageStore(tmp_path / "file"), registry).install("codex", VERSION, X64)
    assert caught.value.code == "image-store-unusable"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_cache_of_somebody_else_is_not_used(tmp_path: Path, registry: NpmRegistry, integrity: str) -> None:
    """A store of another user is refused, because its owner could replace the programs."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    with pytest.raises(InfrastructureError, match="not a directory of this user"):
        AgentStore(ImageStore(theirs), registry).install("codex", VERSION, X64)


def test_an_ordinary_user_has_a_cache_too(npm: FakeNpm, integrity: str) -> None:
    """The default store of an ordinary user is in the user's data directory. Its programs have the mode 755."""
    with open_directory() as home:

        def install() -> None:
            os.environ.pop(DIRECTORY_VARIABLE, None)
            os.environ |= {"XDG_DATA_HOME": str(home / "data")}
            os.umask(0o022)
            with AgentStore(registry=NpmRegistry(npm.url)) as store:
                program = store.install("codex", VERSION, X64)
                store.close()
                assert program.directory.is_relative_to(home / "data" / "securebench" / "images")
                assert (program.directory / program.executable).stat().st_mode & 0o777 == 0o755
                assert store.remove("codex")

        as_ordinary_user(install)


def test_what_is_mounted_is_behind_no_link(npm: FakeNpm, tmp_path: Path, integrity: str) -> None:
    """The directory of a program has no link in its path: engines follow links on the host, so mounts refuse them."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with AgentStore(ImageStore(tmp_path / "link" / "images"), NpmRegistry(npm.url)) as store:
        program = store.install("codex", VERSION, X64)
    assert program.directory == program.directory.resolve()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("where", ["home", "named"])
def test_a_closed_directory_holds_no_programs(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the home cannot be entered, the list of programs is empty, and an installation fails.

    If a configured store cannot be entered, listing and installation both fail.
    """
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path if where == "home" else "/nonexistent"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    if where == "named":
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "images"))

    def look() -> None:
        with AgentStore(registry=NpmRegistry("http://127.0.0.1:9")) as store:
            if where == "home":
                assert store.installed() == ()
            calls: list[Callable[[], object]] = [lambda: store.install("codex")]
            calls += [store.installed] if where == "named" else []
            for call in calls:
                with pytest.raises(InfrastructureError) as raised:
                    call()
                assert raised.value.code == "image-store-unusable"
                assert DIRECTORY_VARIABLE in raised.value.hint

    as_ordinary_user(look)
