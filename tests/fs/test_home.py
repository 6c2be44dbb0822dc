"""The home directory of this user, even if neither ``HOME`` nor the list of users names it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from securebench.fs.home import home_directory, in_closed_home
from workspaces.users import as_ordinary_user


def test_the_home_is_what_the_environment_or_the_list_of_users_says() -> None:
    """If ``HOME`` is an absolute path, it is the home. A relative ``HOME`` is ignored."""
    assert home_directory({"HOME": "/somewhere"}) == Path("/somewhere")
    assert home_directory({"HOME": "relative"}) == Path.home()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_user_without_any_home_gets_one_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with neither ``HOME`` nor an entry in the list of users, as in many containers, causes no traceback."""
    monkeypatch.delenv("HOME")

    def look() -> None:
        assert home_directory() == Path("/nonexistent")
        assert not in_closed_home(Path("/nonexistent/x"))

    as_ordinary_user(look)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_home_is_closed_only_to_whom_may_not_enter_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path is in a closed home if it is below the home and this user cannot enter the home. Root always can."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    def look() -> None:
        assert in_closed_home(tmp_path / "home/.local/share")
        assert not in_closed_home(tmp_path / "other")

    as_ordinary_user(look)
    assert not in_closed_home(tmp_path / "home/.local/share")
