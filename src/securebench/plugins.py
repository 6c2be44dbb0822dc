"""Extensions: harnesses, verifiers, families and drivers, by kind and name.

A package offers an extension by an entry point in the group ``securebench.KIND``, such as::

    [project.entry-points."securebench.harnesses"]
    my-agent = "my_package.agent:MyHarness"

A program that embeds SecureBench calls :func:`register`. Our own are found the same way, and cannot be replaced. An
extension's code runs on the host with the rights of the run. Installing its package is how a tester trusts it: a pack
can name a family that is installed, and nothing else.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError
from securebench.fs.digest import file_digest, source_digest
from securebench.fs.safe_open import TreeRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint


class ExtensionKind(StrEnum):
    """What an extension may be. The value names its entry point group, ``securebench.VALUE``."""

    HARNESS = "harnesses"
    VERIFIER = "verifiers"
    FAMILY = "families"
    DRIVER = "drivers"


AUTO_DRIVER: Final = "auto"
"""The name that users give where the run should choose a driver of its own."""


_OURS: Final[Mapping[ExtensionKind, Mapping[str, str]]] = MappingProxyType(
    {
        ExtensionKind.HARNESS: {
            "command": "securebench.harnesses.command:CommandHarnessProducer",
            "codex": "securebench.harnesses.provider.codex:CodexHarnessProducer",
            "claude_code": "securebench.harnesses.provider.claude_code:ClaudeCodeHarnessProducer",
        },
        ExtensionKind.VERIFIER: {
            "multiple_choice": "securebench.verifiers.multiple_choice:MultipleChoiceVerifier",
            "short_answer": "securebench.verifiers.short_answer:ShortAnswerVerifier",
            "free_response": "securebench.verifiers.free_response:FreeResponseVerifier",
            "code_completion": "securebench.verifiers.code_completion:CodeCompletionVerifier",
            "repo_patch": "securebench.verifiers.repo_patch:RepoPatchVerifier",
            "terminal_task": "securebench.verifiers.terminal_task:TerminalTaskVerifier",
        },
        ExtensionKind.FAMILY: {
            "multiple_choice": "securebench.families.multiple_choice:FAMILY",
            "short_answer": "securebench.families.short_answer:FAMILY",
            "free_response": "securebench.families.free_response:FAMILY",
            "code_completion": "securebench.families.code_completion:FAMILY",
            "repo_patch": "securebench.families.repo_patch:FAMILY",
            "terminal_task": "securebench.families.terminal_task:FAMILY",
            "tool_call": "securebench.families.deferred:TOOL_CALL",
            "browser_task": "securebench.families.deferred:BROWSER_TASK",
            "desktop_task": "securebench.families.deferred:DESKTOP_TASK",
            "artifact_task": "securebench.families.deferred:ARTIFACT_TASK",
            "multimodal_qa": "securebench.families.deferred:MULTIMODAL_QA",
            "preference_pair": "securebench.families.deferred:PREFERENCE_PAIR",
        },
        ExtensionKind.DRIVER: {
            "docker": "securebench.sandboxes.docker.driver:DockerDriver",
            "oci": "securebench.sandboxes.oci:OciDriver",
        },
    }
)
"""What this package offers itself. A module is imported only when its name is asked for."""

_registered: Final[dict[tuple[ExtensionKind, str], Any]] = {}


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose code an extension is: a distribution and its version, and the sha256 (hex) of its source files.

    ``distribution`` and ``version`` are empty for code that no installed distribution owns.
    """

    name: str
    distribution: str
    version: str
    digest: str

    def to_json(self) -> dict[str, str]:
        """Return it as it stands in ``run.json`` and in records."""
        return asdict(self)


class Extension:
    """What a package may add as a class: it says whose code it is."""

    def identity(self) -> Identity | None:
        """Return the identity of this code, for ``run.json`` and every record: a run only resumes with an equal one.

        ``None`` means SecureBench itself. Raises :class:`ConfigError` (``plugin-no-source``).
        """
        return identity_of(type(self))


def register(kind: ExtensionKind | str, name: str, extension: Any) -> None:
    """Offer ``extension`` under ``name`` in this process, as an installed entry point would.

    Raises :class:`ConfigError` (``plugin-conflict``) for a name that something else has.
    """
    kind = ExtensionKind(kind)
    taken = (
        name in _OURS[kind] or name in _entry_points(kind) or _registered.get((kind, name), extension) is not extension
    )
    if taken:
        raise ConfigError(
            f"{kind.value}: the name {name!r} is taken", code="plugin-conflict", hint="choose another name"
        )
    _registered[kind, name] = extension


def own_names(kind: ExtensionKind) -> tuple[str, ...]:
    """Return the names of this kind that this package offers itself."""
    return tuple(_OURS[kind])


def names(kind: ExtensionKind) -> tuple[str, ...]:
    """Return every name of this kind, our own first."""
    others = {name for of, name in _registered if of is kind} | set(_entry_points(kind))
    return (*_OURS[kind], *sorted(others - _OURS[kind].keys()))


def is_known(kind: ExtensionKind, name: str) -> bool:
    """Whether something has this name. Installed packages are looked at only for a name that is not ours."""
    return name in _OURS[kind] or (kind, name) in _registered or name in _entry_points(kind)


def choices(kind: ExtensionKind) -> tuple[str, ...]:
    """Return every name that a user may give: :func:`names`, and for a driver :data:`AUTO_DRIVER` first."""
    return ((AUTO_DRIVER,) if kind is ExtensionKind.DRIVER else ()) + names(kind)


def is_choice(kind: ExtensionKind, name: str) -> bool:
    """Whether ``name`` is one of :func:`choices`."""
    return (kind is ExtensionKind.DRIVER and name == AUTO_DRIVER) or is_known(kind, name)


def load(kind: ExtensionKind, name: str) -> Any:
    """Return the extension of this name.

    Raises :class:`ConfigError`: ``plugin-unknown``; ``plugin-conflict`` where two packages offer the name;
    ``plugin-broken`` where it cannot be imported. A package cannot replace an extension of ours.
    """
    if name in _OURS[kind]:
        module, _, attribute = _OURS[kind][name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    if (kind, name) in _registered:
        return _registered[kind, name]
    found = _entry_points(kind).get(name, ())
    if not found:
        raise ConfigError(
            f"no {kind.value} extension is called {name!r}; known: {', '.join(names(kind))}",
            code="plugin-unknown",
            hint="install the package that provides it into the environment of securebench",
        )
    if len(found) > 1:
        raise ConfigError(
            f"{kind.value}: more than one package offers {name!r}: {', '.join(map(_owner, found))}",
            code="plugin-conflict",
            hint="remove all but one of them",
        )
    try:
        return found[0].load()
    except Exception as error:
        raise ConfigError(
            f"cannot load {name!r} of {_owner(found[0])} ({found[0].value}): {type(error).__name__}: {error}",
            code="plugin-broken",
            hint="update or remove that package",
        ) from error


def identity_of(owner: type) -> Identity | None:
    """Return whose code a class is, ``None`` for our own.

    The digest is over all files of the top-level package, or of the module, that defines it.

    Raises :class:`ConfigError` (``plugin-no-source``) where there is no file to digest.
    """
    top = owner.__module__.partition(".")[0]
    if top == __package__:
        return None
    distribution, version = _distribution_of(top)
    return Identity(f"{owner.__module__}:{owner.__qualname__}", distribution, version, _source_digest(top))


@cache
def _entry_points(kind: ExtensionKind) -> Mapping[str, tuple[EntryPoint, ...]]:
    from importlib.metadata import entry_points  # 20 ms that most commands never need

    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=f"securebench.{kind.value}"):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


def _owner(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


@cache
def _distribution_of(top: str) -> tuple[str, str]:
    from importlib.metadata import packages_distributions, version

    owners = packages_distributions().get(top, [])
    return (owners[0], version(owners[0])) if owners else ("", "")


@cache
def _source_digest(top: str) -> str:
    module = sys.modules[top]
    roots = [Path(root) for root in sorted(getattr(module, "__path__", ()))]  # a namespace package has several
    try:
        if roots:
            digests = [source_digest(root) for root in roots]
            return digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()
        return file_digest(Path(module.__file__ or ""))
    except (AttributeError, OSError, TreeRefusedError) as error:
        raise ConfigError(
            f"the source of {top!r} cannot be read, so a record could not say what code ran",
            code="plugin-no-source",
            hint="put the extension into a module or a package",
        ) from error
