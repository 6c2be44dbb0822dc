"""Key files: a private key is a regular file that only its owner can read, and is never overwritten."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, SourceLocation, StorageError
from securebench.fs.durable import sync_directory, write_all
from securebench.fs.home import settings_directory
from securebench.signing.keys import PrivateKey, decode_private, decode_public, is_private
from securebench.signing.ssh_agent import AgentKey
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from securebench.signing.keys import Passphrase, PublicKey, Signer

_MAX_BYTES: Final = 64 * 1024
"""Maximum size of a key file, in bytes. A key is smaller than one KiB. The rest is for comments."""
_MAKE: Final = "pass the path of a key file, or create a key with 'securebench keys new'"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def default_key_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of this user's key: ``securebench/signing-key.pem`` in the user's configuration directory."""
    return settings_directory(environ) / "signing-key.pem"


def public_file(path: Path) -> Path:
    """Return the path of the public key for the private key ``path``. Like ``ssh-keygen``, append ``.pub``."""
    return path.with_name(f"{path.name}.pub")


def create_key(path: Path, passphrase: bytes = b"") -> PublicKey:
    """Write a new private key to ``path`` with mode 0600, and its public key to ``path.pub``.

    Raises :class:`ConfigError`: ``key-exists`` if one of the files exists, ``key-passphrase`` if the passphrase is too
    long. Raises :class:`StorageError` if the files cannot be written.
    """
    key, public = PrivateKey.new(), public_file(path)
    try:
        pem = key.pem(passphrase)
    except ValueError as error:
        problem = f"the passphrase cannot be used: {error}"
        raise ConfigError(problem, code="key-passphrase", hint="choose a shorter passphrase") from None
    try:
        if path == default_key_file():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Write the public key first: if its file exists already, this fails before the private key is written.
        _write_new(public, f"{key.public.openssh} securebench\n".encode("ascii"), 0o644)
        try:
            _write_new(path, pem, 0o600)
        except BaseException:
            public.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    except FileExistsError as error:
        hint = "a key is never overwritten: choose another file, or move this one away"
        raise ConfigError(f"{error.filename} already exists", code="key-exists", hint=hint) from None
    except OSError as error:
        hint = "choose a file in a writable directory, or free some space if the disk is full"
        raise StorageError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
    return key.public


def load_signer(path: Path, passphrase: Passphrase) -> Signer:
    """Return the signer for the key in ``path``. A public key needs an ssh-agent that has the private key.

    Raises :class:`ConfigError`: ``key-invalid``, ``key-exposed``, ``key-passphrase``, ``key-unusable``, or the errors
    of :func:`open_regular`.
    """
    data = _read(path)
    try:
        return decode_private(data, passphrase) if is_private(data) else AgentKey.find(decode_public(data))
    except ValueError as error:
        raise _invalid(path, error) from None


def load_public(path: Path, passphrase: Passphrase) -> PublicKey:
    """Return the public key for the public or private key in ``path``. Raises the errors of :func:`load_signer`."""
    data = _read(path)
    try:
        return decode_private(data, passphrase).public if is_private(data) else decode_public(data)
    except ValueError as error:
        raise _invalid(path, error) from None


def _read(path: Path) -> bytes:
    """Return the content of a key file. Raises :class:`ConfigError`, for example if others may use a private key."""
    if not os.path.lexists(path):
        raise ConfigError(f"there is no key {path}", code="file-missing", hint=_MAKE)
    with open_regular(path, "key") as file:
        mode = os.fstat(file.fileno()).st_mode
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise _invalid(path, ValueError(f"it has more than {_MAX_BYTES} bytes"))
    # If the file has an access control list, the group bits of the mode are the mask of the list. They therefore also
    # show access of users who are named only in the list.
    if is_private(data) and mode & _OTHERS:
        raise ConfigError(
            f"other users may use this private key: its mode is {stat.S_IMODE(mode):04o}",
            code="key-exposed",
            hint=f"run 'chmod 600 {path}'; if others had access to the file, create another key",
            location=SourceLocation(str(path)),
        )
    return data


def _invalid(path: Path, error: ValueError) -> ConfigError:
    return ConfigError(
        f"not a usable key: {error}",
        code="key-invalid",
        hint=_MAKE,
        location=SourceLocation(str(path)),
    )


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Create ``path`` with ``data`` and sync it. Raises ``FileExistsError``, also if ``path`` is a dangling link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)
