"""Field types shared by several families."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from securebench.dangerous_commands import DANGEROUS_COMMANDS
from securebench.families.normalization import normalize_text
from securebench.pack_paths import container_directory_fault
from securebench.strict_input.faults import did_you_mean
from securebench.strict_input.models import OPTIONAL, WireModel, refusal

MAX_TIMEOUT_SECONDS: Final = 86_400.0
"""The longest time limit that a row may set: one day."""

MAX_ARGUMENTS: Final = 256
"""The maximum number of arguments of one command."""


MAX_ID_LENGTH: Final = 200
"""The maximum number of characters in an id, which appears in every record and progress line."""


def _identifier(text: str) -> str:
    if fault := identifier_fault(text):
        raise refusal("id-invalid", fault, "use letters, digits and '-', '_', '.', '/', such as 'my-benchmark/task-1'")
    return text


def identifier_fault(text: str) -> str:
    """Return why ``text`` is not a valid id, or an empty string."""
    if not text:
        return "is empty"
    if len(text) > MAX_ID_LENGTH:
        return f"is longer than {MAX_ID_LENGTH} characters"
    if not text.isprintable() or text != text.strip():
        return "contains a control or invisible character, or begins or ends with a space"
    if text.startswith("-"):
        return "begins with '-'"
    names = text.split("/")
    if "\\" in text or {"", ".", ".."} & set(names):
        return "contains a backslash, or an empty, '.' or '..' part between slashes"
    return ""


def _visible(text: str) -> str:
    if not normalize_text(text):
        raise refusal("field-empty", "is empty or has no visible characters")
    return text


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise refusal("field-value", "contains a NUL")
    return text


def source(text: str) -> str:
    """Return ``text``: code, a patch or a command line. Raises a validation error if it is blank or contains a NUL."""
    return _visible(_without_nul(text))


def _finite_timeout(seconds: Any) -> Any:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return seconds
    if not (math.isfinite(seconds) and 0 < seconds <= MAX_TIMEOUT_SECONDS):
        raise refusal("timeout-invalid", f"must be more than 0 and at most {MAX_TIMEOUT_SECONDS:.0f} seconds")
    return seconds


def _directory(path: str) -> str:
    if fault := container_directory_fault(path):
        raise refusal("workdir-unsafe", fault, "use a directory such as '/app'")
    return path


def _dangerous_command(name: str) -> str:
    if name not in DANGEROUS_COMMANDS:
        raise refusal("command-unknown", "must be a known dangerous command", did_you_mean(name, DANGEROUS_COMMANDS))
    return name


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise refusal("field-duplicate", "contains the same name twice")
    return names


Identifier: TypeAlias = Annotated[str, AfterValidator(_identifier)]
"""The id of a pack, task, run or suite."""

Text: TypeAlias = Annotated[str, AfterValidator(_visible)]
"""A text with visible characters."""

Source: TypeAlias = Annotated[str, AfterValidator(source)]
"""A text that a program reads: code, a patch, a command line."""

SourceOrNothing: TypeAlias = Annotated[str, AfterValidator(_without_nul)]
"""A text that a program reads. An empty text counts as absent."""

Argument: TypeAlias = Annotated[str, AfterValidator(_without_nul)]

ShellOrArgv: TypeAlias = Source | Annotated[list[Argument], Field(min_length=1, max_length=MAX_ARGUMENTS)]
"""A command: a line for ``/bin/sh``, or the list of a program and its arguments."""

TextOrObject: TypeAlias = Text | dict[str, Any]

Seconds: TypeAlias = Annotated[float, BeforeValidator(_finite_timeout, json_schema_input_type=float)]
"""A time limit in seconds: positive, finite and at most a day."""

ContainerDirectory: TypeAlias = Annotated[str, AfterValidator(_directory)]
"""The absolute path of a directory in a container. It is neither a system directory nor reserved for SecureBench."""

DangerousCommands: TypeAlias = Annotated[
    list[Annotated[str, AfterValidator(_dangerous_command)]], AfterValidator(_distinct)
]
"""Names of known dangerous commands, without duplicates."""


class FileReferenceModel(WireModel):
    """A file or directory of the pack. ``path`` is relative to an asset root, such as ``assets/``.

    ``mount`` is the path at which the file or directory appears in a workspace.
    """

    path: str
    mount: str = OPTIONAL
    read_only: bool = OPTIONAL
