"""Image references: their grammar, and what their parts mean to a registry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from securebench.errors import ConfigError

LOCAL_PREFIX: Final = "securebench/"
"""The prefix of images that are built locally from recipes. No registry is asked for them."""

MAX_REFERENCE: Final = 512

DEFAULT_REGISTRY: Final = "docker.io"
"""The registry of a reference that does not name a registry, as in Docker."""
_OLD_DEFAULT = "index.docker.io"

_DOMAIN = r"(?:[a-zA-Z0-9]+(?:[-.]+[a-zA-Z0-9]+)*(?::[0-9]{1,5})?/)?"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
_DIGEST = r"(?:@sha256:[0-9a-f]{64})?"
_REFERENCE = re.compile(rf"(?:sha256:[0-9a-f]{{64}}|{_DOMAIN}{_COMPONENT}(?:/{_COMPONENT})*{_TAG}{_DIGEST})")
_DEFAULT_DOMAIN = re.compile(r"(?:index\.)?docker\.io/(?:library/(?=[^/]+$))?")


@dataclass(frozen=True, slots=True)
class RegistryReference:
    """Where a registry has an image. ``registry`` is a host with an optional port. ``digest`` may be empty."""

    registry: str
    repository: str
    tag: str
    digest: str

    @property
    def version(self) -> str:
        """The version to request from the registry: the digest if there is one, else the tag."""
        return self.digest or self.tag

    def __str__(self) -> str:
        separator = "@" if self.digest else ":"
        return f"{self.registry}/{self.repository}{separator}{self.version}"


def check_reference(reference: str) -> None:
    """Raise :class:`ConfigError` (``image-reference-invalid``) unless ``reference`` is an image reference."""
    if len(reference) > MAX_REFERENCE or not _REFERENCE.fullmatch(reference):
        raise _invalid(f"{reference[:80]!r} is not an image reference")


def is_image_id(reference: str) -> bool:
    """Return whether a checked reference is an image's id rather than a name."""
    return reference.startswith("sha256:")


def canonical(reference: str) -> str:
    """Return the short spelling of a checked reference: ``docker.io/library/debian`` is ``debian:latest``.

    A digest makes the tag meaningless, so the tag is dropped.
    """
    if is_image_id(reference):
        return reference
    name, at, digest = reference.partition("@")
    head, slash, tail = _DEFAULT_DOMAIN.sub("", name, count=1).rpartition("/")
    base, _, tag = tail.partition(":")
    return f"{head}{slash}{base}" + (f"{at}{digest}" if digest else f":{tag or 'latest'}")


def parse_reference(reference: str) -> RegistryReference:
    """Split ``reference`` for a request to its registry, with Docker's defaults for missing parts.

    Raises :class:`ConfigError` (``image-reference-invalid``), even for a bare image id, which registries do not know.
    """
    check_reference(reference)
    if is_image_id(reference):
        raise _invalid(f"{reference} is the id of a local image; registries do not know it")
    name, _, digest = reference.partition("@")
    first, slash, rest = name.partition("/")
    named = bool(slash) and _is_registry(first)
    registry, path = (first.lower(), rest) if named else (DEFAULT_REGISTRY, name)
    registry = DEFAULT_REGISTRY if registry == _OLD_DEFAULT else registry
    repository, _, tag = path.partition(":")
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    return RegistryReference(registry, repository, tag or "latest", digest)


def _is_registry(first: str) -> bool:
    """Return whether the first part of a name is a host rather than part of the repository, by Docker's rule."""
    return "." in first or ":" in first or first == "localhost" or first != first.lower()


def _invalid(message: str) -> ConfigError:
    return ConfigError(
        message,
        code="image-reference-invalid",
        hint="write it as NAME:TAG or NAME@sha256:DIGEST, for example securebench/python:3.11",
    )
