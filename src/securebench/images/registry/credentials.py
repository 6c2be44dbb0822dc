"""Credentials for a registry, as ``docker login`` stores them."""

from __future__ import annotations

import base64
import binascii
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from securebench.fs.home import home_directory
from securebench.images.reference import DEFAULT_REGISTRY

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_BYTES: Final = 1024 * 1024
_DEFAULT_KEYS: Final = ("https://index.docker.io/v1/", "index.docker.io")
"""Names, besides ``docker.io``, under which the default registry's credentials may be stored."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The user's login at one registry. Never part of a message."""

    user: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The value of an ``Authorization`` header."""
        return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"


def find_credentials(registry: str, environ: Mapping[str, str] = os.environ) -> Credentials | None:
    """Return the login for ``registry`` in the file of ``docker login``, or ``None``. Credential helpers are not run.

    An unreadable file and an invalid entry are ignored.
    """
    directory = environ.get("DOCKER_CONFIG") or home_directory(environ) / ".docker"
    entries = _entries(Path(directory) / "config.json")
    keys = (registry, f"https://{registry}", *(_DEFAULT_KEYS if registry == DEFAULT_REGISTRY else ()))
    return next(filter(None, (_credentials(entries.get(key)) for key in keys)), None)


def _entries(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            settings = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    entries = settings.get("auths") if isinstance(settings, dict) else None
    return entries if isinstance(entries, dict) else {}


def _credentials(entry: object) -> Credentials | None:
    if not isinstance(entry, dict):
        return None
    user, password = entry.get("username"), entry.get("password")
    if isinstance(entry.get("auth"), str):
        user, _, password = _decoded(entry["auth"]).partition(":")
    if isinstance(user, str) and isinstance(password, str) and user and password:
        return Credentials(user, password)
    return None


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode()
    except (binascii.Error, ValueError):
        return ""
