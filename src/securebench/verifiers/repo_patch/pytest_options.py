"""Find pytest options, in a command or a configuration file, that keep tests from running or from being reported.

With most of these options, no test would run. With ``--pdb``, the first failure would wait in a debugger.
"""

from __future__ import annotations

import configparser
import posixpath
import shlex
import tomllib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from securebench.patches.model import FileTree

_WITHOUT_TESTS_TEXT: Final = """
--collect-only --collectonly --co --setup-only --setuponly --setup-plan --setupplan --fixtures --funcargs
--fixtures-per-test --markers --help -h --version -V --pdb --trace --cache-show
"""
_WITHOUT_TESTS: Final = frozenset(_WITHOUT_TESTS_TEXT.split())
_NEEDED: Final = ("securebench_report", "main", "runner", "python", "mark", "fixtures")
"""Plugins that pytest needs to run tests and to report them to the host."""

_SECTIONS: Final = {
    "pytest.toml": ("pytest",),
    ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",),
    ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool", "pytest", "ini_options"),
    "tox.ini": ("pytest",),
    "setup.cfg": ("tool:pytest",),
}
"""The name of pytest's section in each configuration file, in pytest's search order."""


def refused_option(arguments: Sequence[str]) -> str:
    """Return the first of ``arguments`` that prevents tests from running or being reported, or an empty string."""
    for place, word in enumerate(arguments):
        if word.partition("=")[0] in _WITHOUT_TESTS:
            return word
        if word.startswith("-p") and not word.startswith("--"):
            plugin = word[2:] or "".join(arguments[place + 1 : place + 2])
            if plugin.startswith("no:") and plugin[3:] in _NEEDED:
                return f"-p {plugin}"
    return ""


def configuration_file(arguments: Sequence[str]) -> str:
    """Return the file that ``arguments`` name with ``-c`` or ``--config-file``, or an empty string."""
    for place, word in enumerate(arguments):
        if word in ("-c", "--config-file"):
            return "".join(arguments[place + 1 : place + 2])
        name, _, value = word.partition("=")
        if name == "--config-file":
            return value
        if word.startswith("-c") and len(word) > 2:  # noqa: PLR2004 - the file name follows "-c" directly
            return word[2:].removeprefix("=")
    return ""


def added_options(arguments: Sequence[str], tree: FileTree, directories: Sequence[str]) -> tuple[str, list[str]]:
    """Return pytest's configuration file for a command with ``arguments``, and the options in its ``addopts``.

    Both are empty if there is no such file, or if the command overrides ``addopts``. The file is searched
    for in ``directories`` of ``tree``. A file that cannot be parsed is skipped: pytest reports the error when it runs.
    """
    if any("addopts=" in word for word in arguments):
        return "", []  # the command overrides the configuration file
    named = configuration_file(arguments)
    names = [named] if named else list(_SECTIONS)
    for directory in directories:
        for path in [posixpath.normpath(posixpath.join(directory, name)) for name in names]:
            version = tree.get(path.encode("utf-8", "surrogateescape"))
            if version is None or version.link:
                continue
            section = _section(path, version.content.decode("utf-8", "replace"))
            if section is not None:
                return path, list(_words(section.get("addopts", "")))
    return "", []


def _section(path: str, text: str) -> Any:
    """Return pytest's section of a file; ``None`` if it is missing or an empty TOML table, or the file is invalid."""
    name = PurePosixPath(path).name
    try:
        if name.endswith(".toml"):
            found: Any = tomllib.loads(text)
            for key in _SECTIONS.get(name, _SECTIONS["pyproject.toml"]):
                found = found.get(key, {})
            return found if isinstance(found, dict) and found else None
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(text)
        return next((dict(parser[key]) for key in ("pytest", "tool:pytest") if parser.has_section(key)), None)
    except (tomllib.TOMLDecodeError, configparser.Error, AttributeError):
        return None


def _words(options: object) -> Iterator[str]:
    if isinstance(options, list):
        yield from (str(word) for word in options)
    elif isinstance(options, str):
        try:
            yield from shlex.split(options)
        except ValueError:
            return
