"""The options for signing: the key or Sigstore, and where the passphrase comes from (a file or the terminal)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from securebench.signing.keys import Passphrase
    from securebench.signing.signers import StatementSigner

_MAX_BYTES: Final = 4096

passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="SECUREBENCH_PASSPHRASE_FILE",
    show_envvar=True,
    help="Read the passphrase of the key from the first line of FILE.",
)

sign_option = click.option(
    "--sign", metavar="KEY", help="Sign the run with a key ('securebench keys new'), or with 'sigstore'."
)


def signer_of(sign: str | None, passphrase_file: Path | None) -> StatementSigner | None:
    """Return the signer that ``--sign`` names, a key or Sigstore; ``None`` without ``--sign``.

    Raises :class:`ConfigError` for an unusable key.
    """
    if sign is None:
        return None
    if sign == "sigstore":  # for a key file with this name, pass ./sigstore
        from securebench.signing.sigstore_bundle import SigstoreSigner

        return SigstoreSigner()
    from securebench.signing.key_files import load_signer
    from securebench.signing.signers import KeySigner

    key = Path(sign)
    return KeySigner(load_signer(key, passphrase_of(key, passphrase_file)), filter(None, (key, passphrase_file)))


def passphrase_of(key: Path, file: Path | None) -> Passphrase:
    """Return the function that reads the passphrase of ``key`` from ``file``, or else from the terminal."""

    def passphrase() -> bytes:
        if file is not None:
            return read_passphrase(file)
        if not on_terminal():
            hint = "pass --passphrase-file FILE, or run the command on a terminal; to check a run, pass the public key"
            raise ConfigError(
                f"{key} is encrypted, and there is no terminal to ask for its passphrase",
                code="key-passphrase",
                hint=hint,
            )
        entered: str = click.prompt(f"Passphrase of {key}", hide_input=True, err=True)
        return entered.encode()

    return passphrase


def read_passphrase(file: Path) -> bytes:
    """Return the first line of ``file``, which may be a pipe. Raises :class:`ConfigError` (``key-passphrase``)."""
    try:
        with file.open("rb") as opened:
            line = opened.readline(_MAX_BYTES).rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}", code="key-passphrase", hint="check the path"
        ) from error
    if not line:
        raise ConfigError(
            f"the first line of {file} is empty", code="key-passphrase", hint="write the passphrase there"
        )
    return line


def on_terminal() -> bool:
    """Return whether there is a terminal on which to ask the user."""
    return sys.stdin.isatty() and sys.stderr.isatty()
