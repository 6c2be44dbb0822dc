"""Building from Debian's packages: the mirrors, the command of mmdebstrap, and the stream of its archive."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fake_programs import FakePrograms, only_these_programs
from securebench.errors import ImageError
from securebench.images.build import debian
from securebench.images.build.bootstrap import Bootstrap
from securebench.images.build.debian import machine_mirrors, mmdebstrap_command, root_file_system
from securebench.images.build.recipe_kinds import SystemRecipe

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = Bootstrap((), "auto", signal.SIGTERM)
RECIPE = SystemRecipe(
    name="tool",
    directory=Path("/nowhere"),
    reference="securebench/tool:1",
    summary="A tool.",
    base="debian:bookworm-slim",
    suite="bookworm",
    packages=("python3", "git"),
    environment={},
    command=("bash",),
    checks=(),
)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Return a PATH with a shell and a few programs, and hide Debian's keyring."""
    monkeypatch.setattr(debian, "KEYRING", tmp_path / "no-keyring.gpg")
    programs = only_these_programs(tmp_path, monkeypatch)
    programs.borrow("env", "sh", "printf", "cat", "sleep", "head")
    return programs


def _apt_knows(programs: FakePrograms, *rows: str) -> None:
    programs.add("apt-get", "\n".join(f"echo '{row}'" for row in rows))


def test_the_mirrors_are_those_of_this_machine(programs: FakePrograms) -> None:
    """This machine's Debian mirrors of the recipe's suite, its updates and its security updates are used.

    Only the component ``main`` is used. Backports and other vendors' repositories are not used.
    """
    _apt_knows(
        programs,
        "http://mirror.example/debian/ bookworm main Debian",
        "http://mirror.example/debian/ bookworm contrib Debian",
        "http://mirror.example/debian/ bookworm-updates main Debian",
        "http://mirror.example/debian/ bookworm-backports main Debian",
        "http://security.example/debian-security/ bookworm-security main Debian",
        "https://vendor.example/apt/ bookworm main Vendor",
    )
    assert machine_mirrors("bookworm") == (
        "deb http://mirror.example/debian/ bookworm main",
        "deb http://mirror.example/debian/ bookworm-updates main",
        "deb http://security.example/debian-security/ bookworm-security main",
    )


def test_another_suite_is_found_on_the_same_mirrors(programs: FakePrograms) -> None:
    """On a machine with a newer Debian, its mirrors are used for the recipe's suite."""
    _apt_knows(
        programs,
        "http://mirror.example/debian/ trixie main Debian",
        "http://mirror.example/debian/ trixie-updates main Debian",
        "http://security.example/debian-security/ trixie-security main Debian",
    )
    assert machine_mirrors("bookworm") == (
        "deb http://mirror.example/debian/ bookworm main",
        "deb http://mirror.example/debian/ bookworm-updates main",
        "deb http://security.example/debian-security/ bookworm-security main",
    )


def test_the_recipes_suite_is_preferred_to_others_of_the_machine(programs: FakePrograms) -> None:
    """On a machine with several suites, only the mirrors of the recipe's suite are used, each once."""
    _apt_knows(
        programs,
        "http://mirror.example/debian/ trixie main Debian",
        "http://mirror.example/debian/ bookworm main Debian",
        "http://mirror.example/debian/ bookworm main Debian",
    )
    assert machine_mirrors("bookworm") == ("deb http://mirror.example/debian/ bookworm main",)


def test_a_machine_that_never_updated_its_lists_has_mirrors_too(programs: FakePrograms) -> None:
    """A mirror of unknown origin is used: before the first 'apt-get update', apt prints '$(ORIGIN)' for it."""
    _apt_knows(programs, "http://mirror.example/debian/ bookworm main $(ORIGIN)")
    assert machine_mirrors("bookworm") == ("deb http://mirror.example/debian/ bookworm main",)


def test_a_machine_that_is_no_debian_leaves_the_choice_to_mmdebstrap(programs: FakePrograms) -> None:
    """No mirrors are returned on Ubuntu, whose mirrors do not have Debian, and on a machine without apt."""
    assert machine_mirrors("bookworm") == ()
    _apt_knows(programs, "http://mirror.example/ubuntu/ noble main Ubuntu")
    assert machine_mirrors("bookworm") == ()


def test_debians_keys_are_named_where_they_are_installed(programs: FakePrograms) -> None:
    """If Debian's keyring is installed, each mirror's line names it: apt may not trust Debian's keys by default."""
    debian.KEYRING.write_text("")
    _apt_knows(programs, "http://mirror.example/debian/ bookworm main Debian")
    assert machine_mirrors("bookworm") == (
        f"deb [signed-by={debian.KEYRING}] http://mirror.example/debian/ bookworm main",
    )


def test_the_command_names_the_packages_and_writes_to_stdout(programs: FakePrograms) -> None:
    """The command builds a minimal system with the recipe's packages, and writes it to stdout as a tar archive."""
    _apt_knows(programs, "http://mirror.example/debian/ bookworm main Debian")
    command = mmdebstrap_command(RECIPE, "root")
    assert command[0] == "mmdebstrap"
    assert {"--mode=root", "--variant=minbase", "--format=tar", "--include=python3,git"} <= set(command)
    assert command[-3:] == ("bookworm", "-", "deb http://mirror.example/debian/ bookworm main")


def test_the_machines_proxies_are_used_and_not_left_in_the_image(programs: FakePrograms) -> None:
    """Only apt's settings for reaching mirrors are passed on, and a hook removes them from the image."""
    programs.add(
        "apt-config",
        """printf '%s\\n' 'Acquire::http::Proxy "http://proxy.example:3128";' 'Acquire::Check-Valid-Until "false";' \
        'Acquire::https "";' 'APT::Install-Recommends "1";' 'Acquire::Languages "none";'""",
    )
    command = mmdebstrap_command(RECIPE, "root")
    assert [option for option in command if option.startswith("--aptopt")] == [
        '--aptopt=Acquire::http::Proxy "http://proxy.example:3128";',
        '--aptopt=Acquire::Check-Valid-Until "false";',
    ]
    assert any(option.startswith("--customize-hook=rm") and "99mmdebstrap" in option for option in command)


def _run(tmp_path: Path, report: Callable[[str], None] = lambda _stage: None) -> bytes:
    with root_file_system(PLAIN, RECIPE, tmp_path, tmp_path / "log", report) as pieces:
        return b"".join(pieces)


def test_the_archive_is_given_as_it_is_made_and_the_stages_are_told(programs: FakePrograms, tmp_path: Path) -> None:
    """The archive is read from stdout. All of stderr goes to the log.

    A line of stderr such as ``I: extracting archives...`` is reported as a stage, unless it contains a path.
    """
    log = "I: using /some/place as tempdir...\nI: extracting archives...\nI: done\nother...\n"
    programs.add("mmdebstrap", f"printf '{log}' >&2; printf archive")
    stages: list[str] = []
    assert _run(tmp_path, stages.append) == b"archive"
    assert stages == ["extracting archives"]
    assert (tmp_path / "log").read_text() == log


def test_its_temporary_files_go_into_the_builds_own_directory(programs: FakePrograms, tmp_path: Path) -> None:
    """L25: ``mmdebstrap`` puts temporary files in the build directory, so the next build removes them after a kill."""
    programs.add("mmdebstrap", 'printf %s "$TMPDIR"')
    assert _run(tmp_path) == str(tmp_path).encode()


def test_a_failure_after_the_whole_archive_is_still_a_failure(programs: FakePrograms, tmp_path: Path) -> None:
    """L25: if ``mmdebstrap`` writes its archive and then fails, an error is raised.

    The error has the last lines of stderr, and its hint has the path of the log.
    """
    programs.add("mmdebstrap", "printf archive; echo 'E: it broke' >&2; exit 25")
    with pytest.raises(ImageError, match="exit code 25") as caught:
        _run(tmp_path)
    assert caught.value.code == "image-build-failed"
    assert "E: it broke" in caught.value.message
    assert str(tmp_path / "log") in caught.value.hint


@pytest.mark.timeout(20)
def test_it_is_ended_when_its_archive_is_not_wanted_any_more(programs: FakePrograms, tmp_path: Path) -> None:
    """``mmdebstrap`` is ended at once if reading its archive stops early, such as by Ctrl-C."""
    programs.add("mmdebstrap", "printf archive; exec sleep 300")
    with (
        pytest.raises(KeyboardInterrupt),
        root_file_system(PLAIN, RECIPE, tmp_path, tmp_path / "log", lambda _stage: None),
    ):
        raise KeyboardInterrupt


@pytest.mark.timeout(20)
def test_a_talkative_program_does_not_block(programs: FakePrograms, tmp_path: Path) -> None:
    """More output on stderr than a pipe's buffer holds, before the archive's first byte, causes no deadlock."""
    programs.add("mmdebstrap", "head -c 1000000 /dev/zero >&2; printf archive")
    assert _run(tmp_path) == b"archive"
    assert (tmp_path / "log").stat().st_size == 1_000_000
