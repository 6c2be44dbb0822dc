"""Field types of a tester YAML."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationInfo, WrapValidator
from pydantic_core import PydanticKnownError

from securebench.families.fields import MAX_ARGUMENTS, Argument, source
from securebench.limits import MIB
from securebench.pack_paths import RESERVED_MOUNTS, folded, is_at_or_below, relative_path_fault
from securebench.strict_input.models import describe, matching, refusal

if TYPE_CHECKING:
    from pydantic import ValidatorFunctionWrapHandler

SCHEMA_VERSION: Final = "0.2"

AUTO: Final = "auto"
"""The value of ``run.max_workers`` that lets SecureBench choose how many tasks run at once."""

MAX_WORKERS: Final = 256
"""Maximum number of tasks at once. More would only wait for one another."""

MAX_TRIALS: Final = 1000
"""Maximum number of trials of each task. With more, the confidence interval of a pass rate hardly gets narrower."""

MAX_LABEL: Final = 200
"""Maximum characters of a label, which must fit into a line of a table."""

TIB: Final = 1024 * 1024 * MIB

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_MAX_DOMAIN_LENGTH = 253
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}", re.ASCII)
_VERSION = re.compile(r"latest|[0-9]{1,9}(?:\.[0-9]{1,9}){2}(?:-[0-9A-Za-z.-]{1,60})?", re.ASCII)
_API_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-preview)?|preview|latest", re.ASCII)
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,99}", re.ASCII)
_SERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15})([kmg])", re.ASCII | re.IGNORECASE)
_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}


def _schema_version(version: Any) -> Any:
    hint = f'write schema_version: "{SCHEMA_VERSION}", in quotes'
    if isinstance(version, (int, float)) and not isinstance(version, bool):
        raise refusal("schema-version", "is a number", hint)
    if isinstance(version, str) and version != SCHEMA_VERSION:
        raise refusal("schema-version", "is not a supported version", hint)
    return version


def _host_path(path: str) -> str:
    if not path or not path.isprintable():
        raise refusal("path-unsafe", "is empty or contains a control character")
    if path.startswith("~"):
        raise refusal("path-unsafe", "begins with '~', which is not expanded", "write the full path")
    return path


def place_from(base: Path, text: str) -> Path:
    """Return ``text``, a path relative to ``base``, as an absolute path.

    Resolve symlinks in all parts but the last. If the last part is ``..``, resolve the whole path.
    """
    path = base / text
    if path.name == "..":
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent), path.name)


def _resolved_path(path: Any, info: ValidationInfo) -> Any:
    """Return the absolute :class:`Path` for a path in a file. The path is relative to the file's directory.

    A path that is set in Python is returned unchanged.
    """
    if info.context is None:
        return path
    if not isinstance(path, str):
        raise PydanticKnownError("string_type")
    return place_from(info.context["base"], _host_path(path))


def _given(value: Any, info: ValidationInfo) -> Any:
    """Return the value. In a file, reject ``null``: the key can be left out. In Python, ``None`` is a valid default."""
    if value is None and info.context is not None:
        raise refusal("field-type", "is null", "remove the key")
    return value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _argv(command: Any) -> Any:
    """Return a command as an argument vector. A string becomes an argument of ``/bin/sh -c``."""
    if isinstance(command, str):
        return ("/bin/sh", "-c", source(command))
    if not isinstance(command, (list, tuple)):
        raise refusal("field-type", f"must be a string or a list, but is {describe(command)}")
    return tuple(command)


def _workspace_path(path: str) -> str:
    if fault := relative_path_fault(path):
        raise refusal("path-unsafe", fault, "use a path inside the agent's workspace")
    taken = [root for root in RESERVED_MOUNTS if root != "task.json" and is_at_or_below(folded(path), root)]
    if taken:
        raise refusal("path-unsafe", f"is at or below {taken[0]!r}, which is reserved", "use another path")
    return path


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        hint = "use letters, digits and '_', but no digit first; in harness.env, list only names, without values"
        raise refusal("env-name", "is not the name of an environment variable", hint)
    return name


def domain_fault(name: str) -> str:
    """Return why ``name`` cannot be an allowed domain; empty if it can be one. ``name`` must be in lower case."""
    labels = name.split(".")
    if any(mark in name for mark in ("://", "/", ":", "*", "@")):
        return "contains '/', ':', '*' or '@', which no host name has"
    if len(name) > _MAX_DOMAIN_LENGTH or not all(map(_LABEL.fullmatch, labels)):
        return "is not a DNS name"
    if labels[-1] == "localhost" or len(labels) == 1:
        return "is 'localhost' or a subdomain of it, or has only one label"
    return "is an IP address" if labels[-1].isdecimal() else ""


def _domain(name: str) -> str:
    if fault := domain_fault(name.lower()):
        raise refusal("domain-invalid", fault, "use a host name such as 'api.example.com'; its subdomains are included")
    return name.lower()


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise refusal("field-duplicate", "contains the same name twice")
    return names


def _label(text: str) -> str:
    if not text.isprintable() or text != text.strip() or not 0 < len(text) <= MAX_LABEL:
        hint = f"use 1 to {MAX_LABEL} printable characters, without a space at either end, such as 'my-agent v2'"
        raise refusal("field-value", "is not a label", hint)
    return text


def _size(value: Any) -> Any:
    """Parse a number of bytes, or a number with the suffix ``k``, ``m`` or ``g`` (powers of 1024)."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(match[1]) * _UNITS[match[2].lower()]
    return value


def _workers(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, str) and value != AUTO:
        raise refusal("field-value", f"is neither a number nor {AUTO!r}, but {describe(value)}")
    return value if value == AUTO else validate(value)


SchemaVersion: TypeAlias = Annotated[str, BeforeValidator(_schema_version, json_schema_input_type=str)]
HostPath: TypeAlias = Annotated[str, AfterValidator(_host_path)]
ResolvedPath: TypeAlias = Annotated[Path, BeforeValidator(_resolved_path, json_schema_input_type=str)]
"""A path on this machine. In a file it is relative to the file's directory."""
WorkspacePath: TypeAlias = Annotated[str, AfterValidator(_workspace_path)]
Command: TypeAlias = Annotated[
    tuple[Argument, ...],
    Field(min_length=1, max_length=MAX_ARGUMENTS),
    BeforeValidator(_argv, json_schema_input_type=str | list[str]),
]
"""A command: a string for ``/bin/sh -c``, or a list of arguments."""
Variable: TypeAlias = Annotated[str, AfterValidator(_variable)]
"""The name of an environment variable."""
Variables: TypeAlias = Annotated[
    tuple[Variable, ...],
    BeforeValidator(_tuple, json_schema_input_type=list[str]),
    AfterValidator(_distinct),
]
Domains: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_domain)], ...],
    BeforeValidator(_tuple, json_schema_input_type=list[str]),
    AfterValidator(_distinct),
]
Names: TypeAlias = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_tuple, json_schema_input_type=list[str]),
    AfterValidator(_distinct),
]
Arguments: TypeAlias = Annotated[
    tuple[Argument, ...],
    Field(max_length=MAX_ARGUMENTS),
    BeforeValidator(_tuple, json_schema_input_type=list[str]),
]
ToolNames: TypeAlias = Annotated[
    tuple[Annotated[str, matching(_TOOL, "the name of a tool")], ...],
    BeforeValidator(_tuple, json_schema_input_type=list[str]),
    AfterValidator(_distinct),
]
ServerName: TypeAlias = Annotated[str, matching(_SERVER, "the name of a server: letters, digits, '_' and '-'")]
Label: TypeAlias = Annotated[str, AfterValidator(_label)]
"""A short text for people."""
Model: TypeAlias = Annotated[str, matching(_MODEL, "the name of a model")]
Version: TypeAlias = Annotated[str, matching(_VERSION, "an exact version such as '1.2.3', or 'latest'")]
ApiVersion: TypeAlias = Annotated[str, matching(_API_VERSION, "an API version such as '2024-10-21'")]
_Count: TypeAlias = Annotated[int, Field(ge=1, le=MAX_WORKERS)]
Workers: TypeAlias = Annotated[
    _Count,
    WrapValidator(_workers, json_schema_input_type=_Count | Literal["auto"]),
    PlainSerializer(lambda workers: workers),
]
"""The maximum number of tasks that run at once, or ``auto``."""
Trials: TypeAlias = Annotated[int, Field(ge=1, le=MAX_TRIALS)]
Size: TypeAlias = Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str)]
"""A size in bytes, which may be written as ``512m``."""

T = TypeVar("T")
Maybe: TypeAlias = Annotated[T | None, BeforeValidator(_given)]
"""An optional setting. Its default is ``None``."""
