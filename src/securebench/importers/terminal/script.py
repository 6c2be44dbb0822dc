"""Parse a task's verifier script, command by command: what it installs and which tests it runs.

Such scripts download a test runner, run pytest with it, and write a verdict to a reward file. None of that is run
here: SecureBench's runner replaces the script if every command of it is recognized. A single unknown command rejects
the task. Only a small, unambiguous part of the shell language is understood: plain commands, line continuations and
``if``.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.pack_paths import relative_path_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_ENDS = frozenset({";", "&&", ";;"})
_PUNCTUATION = ";&|<>()"
_UNSUPPORTED: Final = {
    "`": "embedded command (`...`)",
    "$(": "embedded command or calculation ($(...))",
    "<<": "here-document (<<)",
}

TESTS: Final = "/tests"
"""Where the authors' harnesses put a task's tests."""

_DOWNLOADERS: Final = frozenset({"curl", "wget", "ca-certificates"})
_RUNNER_PACKAGES: Final = frozenset({"pytest", "pytest-json-ctrf", "pytest-json-report", "uv", "pip"})
"""Packages that are not taken from a script: SecureBench's runner replaces pytest, its plugins and the installers."""

_PIN = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[[A-Za-z0-9,_-]+\])?(?:==([A-Za-z0-9][A-Za-z0-9._+!]*))?"
)
_APT_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(?:=\S+)?")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_TESTS_VARIABLE = re.compile(r"\$TEST_DIR|\$\{TEST_DIR\}")
_UV_INSTALLER = re.compile(r"https://astral\.sh/uv/(?:[0-9.]+/)?install\.sh")
_CONDITION = re.compile(r"\[{1,2} (?:\$PWD =={0,1} /|\$(?:\?|\w+) (?:-eq|-ne|==|=|!=) [01]) \]{1,2}")
_REWARD = re.compile(r"/logs/verifier/reward\.(?:txt|json)|/logs/\S+")
_QUIET_OPTION = re.compile(
    r"-r[A-Za-z]+|-[vqsxl]+|--tb=\w+|--(?:verbose|quiet|disable-warnings|no-header|color=\w+)|-p|--"
)
_OPTIONS_WITH_VALUE: Final = frozenset({"--ctrf", "--junitxml", "--junit-xml", "--json-report-file", "--tb", "--color"})


class UnreadableScriptError(ValueError):
    """A script contains unsupported syntax or an unknown command, at ``line``."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command or pipeline, as words. Operators such as ``|`` and ``>`` are separate words."""

    line: int
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The first word."""
        return self.words[0]


def commands(script: str) -> Iterator[ShellCommand]:
    """Yield the commands of a script in order. Raises :class:`UnreadableScriptError` for unsupported syntax."""
    for number, text in _logical_lines(script):
        for sign, meaning in _UNSUPPORTED.items():
            if sign in text:
                raise UnreadableScriptError(number, f"unsupported {meaning}: {text.strip()[:60]}")
        words: list[str] = []
        for word in [*_words(number, text), ";"]:
            if word not in _ENDS:
                words.append(word)
            elif words:
                yield ShellCommand(number, tuple(words))
                words = []


def _logical_lines(script: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, with its continuations joined to it."""
    start, joined = 1, ""
    for number, line in enumerate(script.split("\n"), start=1):
        start = start if joined else number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _words(number: int, text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.commenters = "#"
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError as error:
        raise UnreadableScriptError(number, f"{error}: {text.strip()[:60]}") from None


@dataclass(slots=True)
class VerifierScript:
    """A parsed script. ``tests`` are paths below the directory of tests."""

    tests: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    """Python packages besides the runner's: name to version. A version that the script does not pin is empty."""
    pytest_version: str = ""
    system_packages: list[str] = field(default_factory=list)
    own_environment: bool = False
    """Whether pytest runs in its own environment (uv). Otherwise it sees the image's packages."""
    writes_reward: bool = False
    runs: int = 0
    """The number of commands that run pytest."""
    replaced: int = 0
    """The number of commands that SecureBench's runner replaces."""


def read_script(text: str) -> VerifierScript:
    """Parse a script. Raises :class:`UnreadableScriptError` if any part of it is unsupported or unknown."""
    found = VerifierScript()
    open_ifs: list[int] = []
    for command in commands(text):
        words = command.words
        if words[0] == "if":
            open_ifs.append(command.line)
        elif words[0] == "fi":
            if not open_ifs:
                raise UnreadableScriptError(command.line, "'fi' without 'if'")
            open_ifs.pop()
        if words[0] in ("if", "then", "else", "elif", "fi"):
            words = words[1:]
        if words:
            _read(command.line, words, found, inside=bool(open_ifs))
            found.replaced += 1
    if open_ifs:
        raise UnreadableScriptError(open_ifs[-1], "'if' without 'fi'")
    if not found.tests:
        raise UnreadableScriptError(1, "no pytest command found")
    return found


def _read(line: int, words: Sequence[str], found: VerifierScript, *, inside: bool) -> None:
    """Recognize one command. An ``if`` may contain only harmless commands and those for the reward file."""
    if _is_harmless(words) or _is_verdict(words, found):
        return
    given = " ".join(words)[:80]
    if inside:
        raise UnreadableScriptError(line, f"unsupported command in an 'if': {given}")
    words = _without_environment(words)
    if not words:
        raise UnreadableScriptError(line, f"unsupported assignment: {given}")
    name = PurePosixPath(words[0]).name
    handler = _HANDLERS.get(name)
    if handler is None:
        raise UnreadableScriptError(line, f"unknown command: {given}")
    if not handler(words, found):
        raise UnreadableScriptError(line, f"unsupported use of {name}: {given}")
    if found.runs > 1:
        raise UnreadableScriptError(line, f"a second run of pytest: {given}")


def _is_harmless(words: Sequence[str]) -> bool:
    """Whether a command cannot affect the tests, such as one that prints, exits, or sets a shell option."""
    if {">", ">>", "|", "<", "||", "&"} & set(words):
        return False
    text = " ".join(words)
    return (
        words[0] == "echo"
        or (
            words[0] == "set" and all(re.fullmatch(r"[-+][euxo]+|pipefail|errexit|nounset", word) for word in words[1:])
        )
        or bool(_CONDITION.fullmatch(text))
        or bool(re.fullmatch(r"exit(?: (?:[01]|\$\?|\$\w+))?", text))
        or bool(re.fullmatch(r"(?:export )?\w+=\$\?", text))
        or text in ("export TEST_DIR=/tests", "TEST_DIR=/tests", "TEST_DIR=${TEST_DIR:-/tests}")
        or bool(re.fullmatch(r"(?:export )?PATH=\S*\.local/bin\S*", text))
        or bool(re.fullmatch(r"(?:source|\.) (?:\$HOME|\$\{HOME\}|~|/root)/\.(?:local/bin|cargo)/env", text))
        or text in ("source .venv/bin/activate", ". .venv/bin/activate")
        or bool(re.fullmatch(r"export DEBIAN_FRONTEND=\w+", text))
    )


def _is_verdict(words: Sequence[str], found: VerifierScript) -> bool:
    """Whether a command writes the reward file or creates its directory. SecureBench does not read that file."""
    if words[0] == "mkdir" and all(_REWARD.fullmatch(f"{word}/") or word == "-p" for word in words[1:]):
        return True
    if words[0] == "echo" and words[2:3] in ([">"], [">>"], (">",), (">>",)) and _REWARD.fullmatch(" ".join(words[3:])):
        found.writes_reward = True
        return True
    return False


def _without_environment(words: Sequence[str]) -> Sequence[str]:
    """Return ``words`` without ``sudo`` and without assignments to variables of apt, uv and pip."""
    rest = list(words)
    while rest and (rest[0] == "sudo" or re.fullmatch(r"(?:DEBIAN_FRONTEND|UV_\w+|PIP_\w+)=\S*", rest[0])):
        rest = rest[1:]
    return rest


def _apt(words: Sequence[str], found: VerifierScript) -> bool:
    arguments = [word for word in words[1:] if not word.startswith("-")]
    if arguments in (["update"], ["clean"], ["upgrade"]):
        return True
    packages = arguments[1:]
    if arguments[:1] != ["install"] or not all(map(_APT_PACKAGE.fullmatch, packages)):
        return False
    found.system_packages += [name for name in packages if name not in found.system_packages]
    return True


def _download(words: Sequence[str], _found: VerifierScript) -> bool:
    """Recognize the installer of uv, downloaded and piped into a shell."""
    source, bar, shell = words[:-2], words[-2:-1], words[-1:]
    addresses = [word for word in source[1:] if not word.startswith("-")]
    return (
        bar == ["|"]
        and shell[0] in ("sh", "bash")
        and len(addresses) == 1
        and bool(_UV_INSTALLER.fullmatch(addresses[0]))
    )


def _remove(words: Sequence[str], _found: VerifierScript) -> bool:
    return all(word.startswith(("-", "/var/lib/apt/lists")) for word in words[1:])


def _pip(words: Sequence[str], found: VerifierScript) -> bool:
    arguments = [word for word in words[1:] if not word.startswith("-")]
    return arguments[:1] == ["install"] and _add_packages(arguments[1:], found)


def _python(words: Sequence[str], found: VerifierScript) -> bool:
    if list(words[1:3]) == ["-m", "pip"]:
        return _pip(words[2:], found)
    if list(words[1:3]) == ["-m", "pytest"]:
        return _pytest(words[2:], found)
    return list(words[1:3]) == ["-m", "venv"]


def _uv(words: Sequence[str], found: VerifierScript) -> bool:
    found.own_environment = True
    verb, rest = (words[1], words[2:]) if len(words) > 1 else ("", ())
    if verb in ("init", "venv", "sync"):
        return all(word.startswith("-") or re.fullmatch(r"[\w./]+", word) for word in rest)
    if verb == "add":
        return _add_packages([word for word in rest if not word.startswith("-")], found)
    if verb == "pip":
        return _pip(words[1:], found)
    return verb == "run" and _uvx(words[1:], found)


def _uvx(words: Sequence[str], found: VerifierScript) -> bool:
    """Recognize ``uvx`` or ``uv run``: options, packages to add, then pytest."""
    found.own_environment = True
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option, _, value = rest.pop(0).partition("=")
        if option in ("-p", "--python", "-w", "--with", "--from"):
            value = value or (rest.pop(0) if rest else "")
            if option in ("-w", "--with", "--from") and not _add_packages(value.split(","), found):
                return False
        elif option not in ("--no-project", "--isolated", "-q", "--quiet", "--refresh"):
            return option == "-m" and rest[:1] == ["pytest"] and _pytest(rest, found)
    if rest and rest[0] in ("python", "python3"):
        return rest[1:3] == ["-m", "pytest"] and _pytest(rest[2:], found)
    name, _, version = (rest[0] if rest else "").partition("@")
    found.pytest_version = version or found.pytest_version
    return name == "pytest" and _pytest(rest, found)


def _pytest(words: Sequence[str], found: VerifierScript) -> bool:
    """Recognize a run of pytest on paths, with options that do not affect the verdict."""
    found.runs += 1
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word.partition("=")[0] in _OPTIONS_WITH_VALUE:
            rest = rest if "=" in word else rest[1:]
        elif word.startswith("-"):
            if not _QUIET_OPTION.fullmatch(word) or word in ("-p", "--"):
                return False
        elif (path := _test_path(word)) is not None:
            found.tests.append(path)
        else:
            return False
    return bool(found.tests)


def _test_path(word: str) -> str | None:
    """Return a test's path below the directory of tests (``.`` for the directory), or ``None`` if it is elsewhere."""
    plain = _TESTS_VARIABLE.sub(TESTS, word).rstrip("/")
    if plain == TESTS:
        return "."
    path = plain.removeprefix(f"{TESTS}/")
    return None if path == plain or relative_path_fault(path) or "$" in path else path


def _add_packages(requirements: Sequence[str], found: VerifierScript) -> bool:
    for requirement in requirements:
        match = _PIN.fullmatch(requirement)
        if match is None:
            return False
        name, version = match[1].lower().replace("_", "-"), match[2] or ""
        if name == "pytest":
            found.pytest_version = version
        if name not in _RUNNER_PACKAGES:
            found.packages[name] = version
    return True


_HANDLERS: Final[Mapping[str, Callable[[Sequence[str], VerifierScript], bool]]] = {
    "apt-get": _apt,
    "apt": _apt,
    "curl": _download,
    "wget": _download,
    "rm": _remove,
    "pip": _pip,
    "pip3": _pip,
    "python": _python,
    "python3": _python,
    "uv": _uv,
    "uvx": _uvx,
    "pytest": _pytest,
}


def needed_system_packages(script: VerifierScript, tests: str) -> list[str]:
    """Return the system packages that the script installs. Download tools are included only if the tests name them."""
    return [
        name
        for name in script.system_packages
        if name not in _DOWNLOADERS or re.search(rf"\b{re.escape(name)}\b", tests)
    ]
