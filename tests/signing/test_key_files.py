"""Private key files are readable only by their owner, and no key file is overwritten."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError, StorageError
from securebench.fs.durable import write_all
from securebench.signing import key_files
from securebench.signing.key_files import create_key, default_key_file, load_public, load_signer, public_file
from securebench.signing.keys import PrivateKey

if TYPE_CHECKING:
    from collections.abc import Callable


def none() -> bytes:
    """Fail the test: no passphrase may be requested for a key without one."""
    raise AssertionError


def refused(action: Callable[[], object]) -> str:
    """Return the code of the ``ConfigError`` that ``action`` raises."""
    with pytest.raises(ConfigError) as error:
        action()
    return error.value.code


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Return the path of a new private key."""
    create_key(tmp_path / "key.pem")
    return tmp_path / "key.pem"


def test_a_new_key_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    """A new private key has mode 0600 even if the umask is 0, and its public key is in a file beside it."""
    before = os.umask(0)
    try:
        public = create_key(tmp_path / "key.pem")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    assert load_signer(tmp_path / "key.pem", none).public == public
    assert load_public(public_file(tmp_path / "key.pem"), none) == public
    assert {path.name for path in tmp_path.iterdir()} == {"key.pem", "key.pem.pub"}


def test_a_new_key_can_be_encrypted(tmp_path: Path) -> None:
    """Not even the public key can be read from an encrypted private key without its passphrase."""
    public = create_key(tmp_path / "key.pem", b"open sesame")
    assert load_signer(tmp_path / "key.pem", lambda: b"open sesame").public == public
    assert refused(lambda: load_public(tmp_path / "key.pem", lambda: b"guess")) == "key-passphrase"


@pytest.mark.parametrize("present", ["key.pem", "key.pem.pub"])
@pytest.mark.parametrize("kind", ["file", "dangling link", "directory"])
def test_nothing_is_overwritten(present: str, kind: str, tmp_path: Path) -> None:
    """If the private or the public key file exists, it is not overwritten, and the other file is not created."""
    path = tmp_path / present
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    assert refused(lambda: create_key(tmp_path / "key.pem")) == "key-exists"
    assert [path.name for path in tmp_path.iterdir()] == [present]
    assert kind != "file" or path.read_text() == "precious"


@pytest.mark.parametrize("start", [b"ssh-ed25519 ", b"-----BEGIN PRIVATE KEY-----"])
def test_a_full_disk_leaves_no_half_of_a_key(start: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If writing the public or the private key fails, for example because the disk is full, no file is left."""

    def fail(descriptor: int, data: bytes) -> None:
        if data.startswith(start):
            raise OSError(28, "No space left on device")
        write_all(descriptor, data)

    monkeypatch.setattr(key_files, "write_all", fail)
    with pytest.raises(StorageError, match=r"cannot write .*: No space left on device") as error:
        create_key(tmp_path / "key.pem")
    assert "free some space" in error.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_key_needs_a_directory(tmp_path: Path) -> None:
    """A key cannot be created in a directory that does not exist."""
    with pytest.raises(StorageError, match=r"cannot write .*: No such file or directory"):
        create_key(tmp_path / "none" / "key.pem")


def test_a_passphrase_that_is_too_long_is_named_as_the_cause(tmp_path: Path) -> None:
    """A passphrase that is too long is reported as the problem, and no file is written."""
    assert refused(lambda: create_key(tmp_path / "key.pem", b"x" * 2000)) == "key-passphrase"
    assert list(tmp_path.iterdir()) == []


def test_the_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default key file is in XDG_CONFIG_HOME if that is absolute. Its directory is created with mode 0700."""
    assert default_key_file({"HOME": "/home/a"}) == Path("/home/a/.config/securebench/signing-key.pem")
    assert default_key_file({"HOME": "/home/a", "XDG_CONFIG_HOME": "x"}).is_relative_to("/home/a/.config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    create_key(default_key_file())
    assert stat.S_IMODE((tmp_path / "config/securebench").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777])
def test_a_private_key_that_others_may_use_is_refused(mode: int, key: Path) -> None:
    """A private key that other users may access is refused, with a hint. A public key may have any mode."""
    key.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600") as error:
        load_signer(key, none)
    assert error.value.code == "key-exposed"
    public_file(key).chmod(0o666)
    load_public(public_file(key), none)


def test_a_link_is_not_followed(key: Path) -> None:
    """A symlink to a private key is refused, because other users may be able to change its target."""
    link = key.with_name("link")
    link.symlink_to(key)
    assert refused(lambda: load_signer(link, none)) == "file-not-regular"


def test_what_is_not_a_key(tmp_path: Path) -> None:
    """A missing file, a pipe, a directory, a file that is too large and a text without a key are refused at once."""
    assert refused(lambda: load_signer(tmp_path / "none", none)) == "file-missing"
    os.mkfifo(tmp_path / "pipe")
    assert refused(lambda: load_signer(tmp_path / "pipe", none)) == "file-not-regular"
    assert refused(lambda: load_signer(tmp_path, none)) == "file-not-regular"
    (tmp_path / "large").write_bytes(PrivateKey.new().pem() + b"\n" * 100_000)
    (tmp_path / "large").chmod(0o600)
    assert refused(lambda: load_signer(tmp_path / "large", none)) == "key-invalid"
    (tmp_path / "text").write_text("a key, honestly")
    assert refused(lambda: load_signer(tmp_path / "text", none)) == "key-invalid"
