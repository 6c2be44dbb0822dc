"""Fetching a commit: the only use of git on the host, in a new repository, without the user's settings."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from git_repositories import commit, git, repository
from securebench.errors import ImageError
from securebench.images.build.derived.sources import fetch_commit
from securebench.images.build.git.reading import read_commit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def server(tmp_path: Path) -> tuple[str, str]:
    """Return the address of a local repository with two commits, and the id of the first."""
    top = repository(tmp_path / "server")
    (top / "a").write_text("first\n")
    wanted = commit(top)
    (top / "a").write_text("second\n")
    commit(top)
    git(top, "tag", "v1")
    git(top, "config", "uploadpack.allowAnySHA1InWant", "true")
    return f"file://{top}", wanted


def test_the_commit_comes_alone(server: tuple[str, str], tmp_path: Path) -> None:
    """The fetched repository has the files of the commit, and no refs, ``FETCH_HEAD`` or hooks."""
    url, wanted = server
    fetched = fetch_commit(url, wanted, tmp_path / "fetched.git", "file")
    assert read_commit(fetched, wanted).files[b"a"].data == b"first\n"
    assert git(fetched, "for-each-ref") == ""
    assert not (fetched / "FETCH_HEAD").exists()
    assert not (fetched / "hooks").exists()


def test_nothing_of_the_users_settings_holds(
    server: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git settings, templates and hooks in the user's home or environment run nothing and redirect nothing."""
    canary = tmp_path / "canary"
    home = tmp_path / "home"
    (home / "template" / "hooks").mkdir(parents=True)
    hook = home / "template" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[init]\n\ttemplateDir = {home}/template\n[core]\n\thooksPath = {home}/template/hooks\n"
        f"[uploadpack]\n\tpackObjectsHook = touch {canary};\n"
        '[url "file:///nowhere/"]\n\tinsteadOf = file:///\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", f"{home}/template/hooks")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "server" / ".git"))
    url, wanted = server
    fetch_commit(url, wanted, tmp_path / "fetched.git", "file")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ext::sh -c 'touch canary'", "transport 'ext' not allowed"),
        ("file:///nowhere", "transport 'file' not allowed"),
        ("ssh://example.invalid/x", "transport 'ssh' not allowed"),
        ("-oops", "strange pathname '-oops' blocked"),
    ],
)
def test_only_one_protocol_is_spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, why: str) -> None:
    """Git accepts only https addresses, and never takes an address for an option."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImageError, match=why) as caught:
        fetch_commit(url, "0" * 40, tmp_path / "fetched.git")
    assert caught.value.code == "source-unavailable"
    assert not (tmp_path / "canary").exists()


def test_git_is_asked_for_nothing_but_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git fetches one commit in a fixed environment, without password prompts, tags or a checkout."""
    noted = tmp_path / "noted"
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"open({str(noted)!r}, 'a').write(json.dumps([sys.argv[1:], dict(os.environ)]) + '\\n')\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SECRET", "x")
    fetch_commit("https://example.org/x.git", "a" * 40, tmp_path / "fetched.git")
    (init, _), (fetch, environment) = map(json.loads, noted.read_text().splitlines())
    assert init[-5:] == ["init", "--quiet", "--bare", "--template=", str(tmp_path / "fetched.git")]
    assert fetch[-3:] == ["--end-of-options", "https://example.org/x.git", "a" * 40]
    assert {"--depth=1", "--no-tags"} <= set(fetch)
    assert "checkout" not in fetch
    assert environment["GIT_TERMINAL_PROMPT"] == "0"
    assert environment["GIT_ALLOW_PROTOCOL"] == "https"
    assert "SECRET" not in environment


def test_without_git_a_clone_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git, the error has the code ``image-tool-missing``."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError) as caught:
        fetch_commit("https://example.org/x.git", "a" * 40, tmp_path / "fetched.git")
    assert caught.value.code == "image-tool-missing"
