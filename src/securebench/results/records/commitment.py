"""Commitments: a run publishes them instead of digests of hidden content.

With a plain digest of a row, any reader of a record could test guesses: the hidden part of a multiple-choice row often
has only four possible values. A commitment is an HMAC of the digest with a random key of the run. The runs of a suite
share a key. The key is in a file that is not published with the records. With the key and the pack, anyone can check
which rows were run. With the records alone, no guess can be tested. See ADR 0016.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.fs.durable import write_durably
from securebench.strict_input.files import open_regular

if TYPE_CHECKING:
    from pathlib import Path

KEY_FILE: Final = "commitment.key"
"""The file in the directory of a run or a suite that contains its key in hex. Only the owner can read this file."""

_KEY_BYTES: Final = 32
_MAX_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Commitment:
    """The key of a run or a suite, with which commitments are made. The ``repr`` does not show the key."""

    _key: bytes

    def __repr__(self) -> str:
        return "Commitment(...)"

    @classmethod
    def new(cls) -> Commitment:
        """Return a ``Commitment`` with a new random key."""
        return cls(secrets.token_bytes(_KEY_BYTES))

    @classmethod
    def read(cls, directory: Path) -> Commitment:
        """Return the key of the run or suite in ``directory``.

        Raises :class:`ConfigError` (``commitment-key``).
        """
        return cls.read_file(directory / KEY_FILE)

    @classmethod
    def read_file(cls, path: Path) -> Commitment:
        """Return the key in the file ``path``. Raises the errors of :meth:`read`."""
        try:
            with open_regular(path, "commitment key") as file:
                key = bytes.fromhex(file.read(_MAX_BYTES).decode("ascii").strip())
        except (ConfigError, OSError, ValueError) as error:
            raise _unusable(path, error.message if isinstance(error, ConfigError) else str(error)) from error
        if len(key) != _KEY_BYTES:
            raise _unusable(path, f"expected a key of {_KEY_BYTES} bytes, got {len(key)}")
        return cls(key)

    def write(self, directory: Path) -> None:
        """Write the key. Raises :class:`StorageError`."""
        write_durably(directory / KEY_FILE, self._key.hex().encode("ascii") + b"\n", mode=0o600)

    def to(self, digest: str) -> str:
        """Return the commitment (hex) to the content with this ``digest``."""
        return hmac.digest(self._key, digest.encode("ascii"), "sha256").hex()


def _unusable(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot read {path}: {reason}",
        code="commitment-key",
        hint="without this file, the run cannot be compared with its pack: restore the file, or start a new run",
    )
