"""Types of fields of a tester YAML."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from securebench.pack_paths import RESERVED_MOUNTS, folded, is_at_or_below, relative_path_fault
from securebench.strict_input.models import refusal

SCHEMA_VERSION: Final = "0.2"

MAX_WORKERS: Final = 256
"""Tasks in flight: more would only wait for one another."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_MAX_DOMAIN_LENGTH = 253
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}", re.ASCII)
_VERSION = re.compile(r"latest|[0-9]{1,9}(?:\.[0-9]{1,9}){2}(?:-[0-9A-Za-z.-]{1,60})?", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15})([kmg])", re.ASCII | re.IGNORECASE)
_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}


def _schema_version(version: Any) -> Any:
    hint = f'write schema_version: "{SCHEMA_VERSION}", in quotes'
    if isinstance(version, (int, float)) and not isinstance(version, bool):
        raise refusal("schema-version", "is a number", hint)
    if isinstance(version, str) and version != SCHEMA_VERSION:
        raise refusal("schema-version", "is not a version that is known here", hint)
    return version


def _host_path(path: str) -> str:
    if not path or not path.isprintable():
        raise refusal("path-unsafe", "is empty, or holds a control character")
    if path.startswith("~"):
        raise refusal("path-unsafe", "begins with '~', which is not expanded", "write the path out")
    return path


def _workspace_path(path: str) -> str:
    if fault := relative_path_fault(path):
        raise refusal("path-unsafe", fault, "give a path inside the agent's workspace")
    taken = [root for root in RESERVED_MOUNTS if root != "task.json" and is_at_or_below(folded(path), root)]
    if taken:
        raise refusal("path-unsafe", f"lies at {taken[0]!r}, which is the framework's own", "give another path")
    return path


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        hint = "names only: values come from the environment or the env file"
        raise refusal("env-name", "is not the name of an environment variable", hint)
    return name


def domain_fault(name: str) -> str:
    """Return why ``name``, in lower case, is not a domain that can be allowed, or nothing."""
    labels = name.split(".")
    if any(mark in name for mark in ("://", "/", ":", "*", "@")):
        return "has a scheme, port, path, user or wildcard"
    if len(name) > _MAX_DOMAIN_LENGTH or not all(map(_LABEL.fullmatch, labels)):
        return "is not a DNS name"
    if labels[-1] == "localhost" or len(labels) == 1:
        return "has one label only, or is this host"
    return "is an IP address" if labels[-1].isdecimal() else ""


def _domain(name: str) -> str:
    if fault := domain_fault(name.lower()):
        raise refusal(
            "domain-invalid", fault, "give a host name such as 'api.example.com'; its subdomains are admitted"
        )
    return name.lower()


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise refusal("field-duplicate", "holds the same name twice")
    return names


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise refusal("field-value", f"is not {what}")
        return text

    return AfterValidator(check)


def _size(value: Any) -> Any:
    """Take a number of bytes, or a number with ``k``, ``m`` or ``g`` behind it (1024, its square, its cube)."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(match[1]) * _UNITS[match[2].lower()]
    return value


SchemaVersion: TypeAlias = Annotated[str, BeforeValidator(_schema_version, json_schema_input_type=str)]
HostPath: TypeAlias = Annotated[str, AfterValidator(_host_path)]
WorkspacePath: TypeAlias = Annotated[str, AfterValidator(_workspace_path)]
Variables: TypeAlias = Annotated[list[Annotated[str, AfterValidator(_variable)]], AfterValidator(_distinct)]
Domains: TypeAlias = Annotated[list[Annotated[str, AfterValidator(_domain)]], AfterValidator(_distinct)]
Model: TypeAlias = Annotated[str, _matching(_MODEL, "the name of a model")]
Version: TypeAlias = Annotated[str, _matching(_VERSION, "an exact version such as '1.2.3', or 'latest'")]
Workers: TypeAlias = Annotated[int, Field(ge=1, le=MAX_WORKERS)]
Size: TypeAlias = Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str)]
"""A size in bytes, which may be written as ``512m``."""
