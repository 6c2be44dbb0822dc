"""The home of this user, also where nothing names it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.fs.home import home_directory, in_closed_home
from workspaces.users import as_ordinary_user


def test_the_home_is_what_the_environment_or_the_list_of_users_says() -> None:
    """A relative ``HOME`` counts as none."""
    assert home_directory({"HOME": "/somewhere"}) == Path("/somewhere")
    assert home_directory({"HOME": "relative"}) == Path.home()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_user_without_any_home_gets_one_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user often has no entry, and no ``HOME``: that is no reason to end with a traceback."""
    monkeypatch.delenv("HOME")

    def look() -> None:
        assert home_directory() == Path("/nonexistent")
        assert not in_closed_home(Path("/nonexistent/x"))

    as_ordinary_user(look)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_home_is_closed_only_to_whom_may_not_enter_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what lies below it counts, however deep, and root may enter each."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    def look() -> None:
        assert in_closed_home(tmp_path / "home/.local/share")
        assert not in_closed_home(tmp_path / "other")

    as_ordinary_user(look)
    assert not in_closed_home(tmp_path / "home/.local/share")
