"""``securebench keys``: make and show the keys that sign runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from securebench.cli.signing_options import on_terminal, passphrase_of, passphrase_option, read_passphrase

if TYPE_CHECKING:
    from securebench.signing.keys import PublicKey

_FILE = click.argument("file", required=False, type=click.Path(path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(name="keys")
def command() -> None:
    """Make and show the keys that sign runs.

    'securebench run --sign KEY' signs with an Ed25519 key. KEY is a key file that 'keys new' made, a key file of
    OpenSSH such as ~/.ssh/id_ed25519, or a public key whose private key is in the ssh-agent.
    """


EXAMPLES: Final = """\b
Examples:
  securebench keys new
  securebench keys new ci-key.pem --no-passphrase
"""


@command.command(short_help="Make a key.", epilog=EXAMPLES)
@_FILE
@passphrase_option
@click.option("--no-passphrase", is_flag=True, help="Do not ask for a passphrase, and do not encrypt the key.")
@_JSON
def new(file: Path | None, *, passphrase_file: Path | None, no_passphrase: bool, as_json: bool) -> None:
    """Write a new private key to FILE, and its public key to FILE.pub. Existing files are never overwritten.

    FILE is by default ~/.config/securebench/signing-key.pem. Only its owner can read it. On a terminal, the command
    asks for a passphrase. Elsewhere the key is encrypted only with --passphrase-file or SECUREBENCH_PASSPHRASE_FILE.
    """
    from securebench.signing.key_files import create_key, default_key_file, public_file

    if no_passphrase and passphrase_file is not None:
        raise click.UsageError("--no-passphrase and --passphrase-file contradict each other")
    path = file or default_key_file()
    passphrase = b""
    if passphrase_file is not None:
        passphrase = read_passphrase(passphrase_file)
    elif on_terminal() and not no_passphrase:
        prompt = "Passphrase (if empty, the key is not encrypted)"
        passphrase = click.prompt(
            prompt, default="", show_default=False, hide_input=True, confirmation_prompt=True, err=True
        ).encode()
    key = create_key(path, passphrase)
    if as_json:
        click.echo(json.dumps({"file": str(path), "public_file": str(public_file(path)), **_as_dict(key)}, indent=2))
        return
    click.echo(f"private key  {path} (keep it secret)")
    click.echo(f"public key   {public_file(path)} (publish it)")
    _print(key)


@command.command(short_help="Show the public key of a key file.")
@_FILE
@passphrase_option
@_JSON
def show(file: Path | None, *, passphrase_file: Path | None, as_json: bool) -> None:
    """Show the public key of FILE, its id and its fingerprint. FILE may be a private key or a public key.

    FILE is by default the public key of ~/.config/securebench/signing-key.pem. Signatures contain the id, which is
    the SHA-256 of the public key's DER form. The fingerprint is the one that 'ssh-keygen -l' prints.
    """
    from securebench.signing.key_files import default_key_file, load_public, public_file

    path = file or public_file(default_key_file())
    key = load_public(path, passphrase_of(path, passphrase_file))
    if as_json:
        click.echo(json.dumps(_as_dict(key), indent=2))
    else:
        click.echo(key.openssh)
        _print(key)


def _print(key: PublicKey) -> None:
    click.echo(f"id           {key.id}")
    click.echo(f"fingerprint  {key.fingerprint}")


def _as_dict(key: PublicKey) -> dict[str, str]:
    return {"id": key.id, "fingerprint": key.fingerprint, "openssh": key.openssh, "pem": key.pem}
