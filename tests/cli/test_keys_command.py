"""``securebench keys``: what it prints, and where a passphrase comes from."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from pseudo_terminals import shown_pieces
from securebench.cli.keys_command import command
from securebench.errors import ConfigError
from securebench.signing.key_files import default_key_file, load_public

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def invoke(*arguments: str) -> Result:
    """Run a subcommand. Exceptions that it raises are not caught."""
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_a_key_is_made_and_shown(tmp_path: Path) -> None:
    """``keys show`` prints the key that ``keys new`` printed, for the private file and for the public file."""
    path = tmp_path / "key.pem"
    made = invoke("new", str(path)).stdout.splitlines()
    assert made[:2] == [f"private key  {path} (keep it secret)", f"public key   {path}.pub (publish it)"]
    for file in (path, f"{path}.pub"):
        shown = invoke("show", str(file)).stdout.splitlines()
        assert shown[1:] == made[2:]
        assert f"{shown[0]} securebench\n" == (tmp_path / "key.pem.pub").read_text()


def test_json(tmp_path: Path) -> None:
    """With ``--json``, ``new`` and ``show`` print the same key, and ``new`` also prints the files that it wrote."""
    path = tmp_path / "key.pem"
    made = json.loads(invoke("new", str(path), "--json").stdout)
    assert (made.pop("file"), made.pop("public_file")) == (str(path), f"{path}.pub")
    assert json.loads(invoke("show", str(path), "--json").stdout) == made
    assert list(made) == ["id", "fingerprint", "openssh", "pem"]


def test_the_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without FILE, the commands use the key in the user's configuration directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no key") as missing:
        invoke("show")
    assert "securebench keys new" in str(missing.value)
    invoke("new")
    assert invoke("show").stdout.startswith("ssh-ed25519 ")
    assert default_key_file().is_relative_to(tmp_path)


def test_a_passphrase_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option or an environment variable names the file with the passphrase.

    Without both, and without a terminal, the error names the option.
    """
    key, file = str(tmp_path / "key.pem"), tmp_path / "passphrase"
    file.write_text("open sesame\nanother line\n")
    made = invoke("new", key, "--passphrase-file", str(file), "--json").stdout
    assert json.loads(made)["id"] == load_public(tmp_path / "key.pem", lambda: b"open sesame").id
    monkeypatch.setenv("SECUREBENCH_PASSPHRASE_FILE", str(file))
    invoke("show", key)
    monkeypatch.delenv("SECUREBENCH_PASSPHRASE_FILE")
    with pytest.raises(ConfigError, match="no terminal") as refused:
        invoke("show", key)
    assert "--passphrase-file" in str(refused.value)


@pytest.mark.parametrize("content", [None, "", "\nsecond line\n"])
def test_a_file_without_a_passphrase(content: str | None, tmp_path: Path) -> None:
    """A missing file or an empty passphrase is an error; otherwise the key would silently be left unencrypted."""
    file = tmp_path / "passphrase"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError) as refused:
        invoke("new", str(tmp_path / "key.pem"), "--passphrase-file", str(file))
    assert refused.value.code == "key-passphrase"
    assert not (tmp_path / "key.pem").exists()


def test_contradicting_options(tmp_path: Path) -> None:
    """``--no-passphrase`` with ``--passphrase-file`` is wrong usage, and no file is written."""
    done = invoke("new", str(tmp_path / "key.pem"), "--no-passphrase", "--passphrase-file", "x")
    assert done.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_is_asked(tmp_path: Path) -> None:
    """On a terminal, the passphrase of a new key is asked for twice, and it is not shown."""
    key = tmp_path / "key.pem"
    shown = _on_a_terminal(["new", str(key)], ["open sesame", "open sesame"])
    assert "not encrypted): " in shown
    assert "Repeat for confirmation: " in shown
    assert "sesame" not in shown
    load_public(key, lambda: b"open sesame")
    assert "ssh-ed25519" in _on_a_terminal(["show", str(key)], ["open sesame"])
    assert "the passphrase is wrong" in _on_a_terminal(["show", str(key)], ["guess"])


def _on_a_terminal(arguments: list[str], answers: list[str]) -> str:
    """Run ``keys`` on a pseudo-terminal, answer each prompt, and return everything that it shows."""
    ours, theirs = pty.openpty()
    command_line = [sys.executable, "-m", "securebench", "keys", *arguments]
    with subprocess.Popen(command_line, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True):
        os.close(theirs)
        shown, prompts = b"", 0
        for read in shown_pieces(ours):
            shown += read
            if shown.count(b": ") > prompts and prompts < len(answers):  # input before a prompt is discarded
                os.write(ours, f"{answers[prompts]}\n".encode())
                prompts += 1
    os.close(ours)
    return shown.decode()
