"""References to images: their grammar, and what each part of one means to a registry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from securebench.errors import ConfigError

LOCAL_PREFIX: Final = "securebench/"
"""References that are built here from recipes: no registry is ever asked for them."""

MAX_REFERENCE: Final = 512

DEFAULT_REGISTRY: Final = "docker.io"
"""The registry of a reference that names none, as every tool has it."""
_OLD_DEFAULT = "index.docker.io"

_DOMAIN = r"(?:[a-zA-Z0-9]+(?:[-.]+[a-zA-Z0-9]+)*(?::[0-9]{1,5})?/)?"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
_DIGEST = r"(?:@sha256:[0-9a-f]{64})?"
_REFERENCE = re.compile(rf"(?:sha256:[0-9a-f]{{64}}|{_DOMAIN}{_COMPONENT}(?:/{_COMPONENT})*{_TAG}{_DIGEST})")
_DEFAULT_DOMAIN = re.compile(r"(?:index\.)?docker\.io/(?:library/(?=[^/]+$))?")


@dataclass(frozen=True, slots=True)
class RegistryReference:
    """Where an image is to be had: ``registry`` is a host with an optional port. ``digest`` may be empty."""

    registry: str
    repository: str
    tag: str
    digest: str

    @property
    def version(self) -> str:
        """What a manifest is asked for by: the digest where there is one, else the tag."""
        return self.digest or self.tag

    def __str__(self) -> str:
        separator = "@" if self.digest else ":"
        return f"{self.registry}/{self.repository}{separator}{self.version}"


def check_reference(reference: str) -> None:
    """Raise :class:`ConfigError` (``image-reference-invalid``) unless ``reference`` is one, and nothing else."""
    if len(reference) > MAX_REFERENCE or not _REFERENCE.fullmatch(reference):
        raise _invalid(f"{reference[:80]!r} is not an image reference")


def is_image_id(reference: str) -> bool:
    """Say whether a checked reference is an image's id rather than a name."""
    return reference.startswith("sha256:")


def canonical(reference: str) -> str:
    """Return the short spelling of a checked reference: ``docker.io/library/debian`` is ``debian:latest``.

    With a digest the tag says nothing any more, and is left out.
    """
    if is_image_id(reference):
        return reference
    name, at, digest = reference.partition("@")
    head, slash, tail = _DEFAULT_DOMAIN.sub("", name, count=1).rpartition("/")
    base, _, tag = tail.partition(":")
    return f"{head}{slash}{base}" + (f"{at}{digest}" if digest else f":{tag or 'latest'}")


def parse_reference(reference: str) -> RegistryReference:
    """Return where a registry has ``reference``, with the defaults that every tool fills in.

    Raises :class:`ConfigError` (``image-reference-invalid``), also for a bare image id: no registry knows those.
    """
    check_reference(reference)
    if is_image_id(reference):
        raise _invalid(f"{reference} is an image id of this machine, which no registry can be asked for")
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
    """Tell the host of ``host/name`` from the first part of a repository's name, as every tool does."""
    return "." in first or ":" in first or first == "localhost" or first != first.lower()


def _invalid(message: str) -> ConfigError:
    return ConfigError(
        message,
        code="image-reference-invalid",
        hint="write it as NAME:TAG or NAME@sha256:DIGEST, for example securebench/python:3.11",
    )
