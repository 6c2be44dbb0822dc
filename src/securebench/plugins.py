"""Extensions: harnesses, verifiers, families, drivers, executors and event parsers, by kind and name.

A package offers an extension by an entry point in the group ``securebench.KIND``, such as::

    [project.entry-points."securebench.harnesses"]
    my-agent = "my_package.agent:MyHarness"

A program that embeds SecureBench calls :func:`register` instead. This module lists the built-in
extensions. They are loaded like entry points and cannot be replaced. Agents that are declared in a file ``NAME.yaml``
are harnesses, too: SecureBench's own, those in :func:`agents_directory`, and those of packages. The code of an
extension runs on the host with the rights of the run, so install only packages that you trust. A pack can name an
installed family, but cannot contain code for the host.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from securebench.errors import ConfigError
from securebench.fs.digest import file_digest, source_digest
from securebench.fs.home import settings_directory
from securebench.fs.safe_open import TreeRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint


class ExtensionKind(StrEnum):
    """The kinds of extensions. The value is part of the name of the entry point group, ``securebench.VALUE``."""

    HARNESS = "harnesses"
    VERIFIER = "verifiers"
    FAMILY = "families"
    DRIVER = "drivers"
    EXECUTOR = "executors"
    EVENT_PARSER = "event_parsers"
    AGENT = "agents"
    """An entry point of this group refers to the path of a declaration file. The agent declared there is a harness."""


AUTO_DRIVER: Final = "auto"
"""The name with which users let SecureBench select the driver."""

DEFAULT_EXECUTOR: Final = "local"
"""The executor of a run whose configuration names no executor."""

_BUILT_IN: Final[Mapping[ExtensionKind, Mapping[str, str]]] = MappingProxyType(
    {
        ExtensionKind.HARNESS: {
            "command": "securebench.harnesses.command:CommandHarnessProducer",
            "model": "securebench.harnesses.model.harness:ModelHarnessProducer",
        },
        ExtensionKind.VERIFIER: {
            "multiple_choice": "securebench.verifiers.text.multiple_choice:MultipleChoiceVerifier",
            "short_answer": "securebench.verifiers.text.short_answer:ShortAnswerVerifier",
            "free_response": "securebench.verifiers.text.free_response:FreeResponseVerifier",
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
        ExtensionKind.EXECUTOR: {
            "local": "securebench.executors.local:LocalExecutor",
            "ray": "securebench.executors.ray:RayExecutor",
        },
        ExtensionKind.EVENT_PARSER: {
            "codex": "securebench.harnesses.provider.events.codex:CodexEventParser",
            "claude_code": "securebench.harnesses.provider.events.claude_code:ClaudeEventParser",
        },
        ExtensionKind.AGENT: {},
    }
)
"""The built-in extensions. A module is imported only when its extension is loaded."""

_OWN_AGENTS: Final = Path(__file__).parent / "agents/programs"
_AGENT_HARNESS: Final = "securebench.harnesses.provider.harness"
_RESERVED: Final = ("command", "model", "node", "python")
"""Names that users cannot give to their agents: those of other harnesses and of language runtimes."""
_AGENT_KINDS: Final = (ExtensionKind.AGENT, ExtensionKind.HARNESS)
_AGENT_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")
AGENTS_VARIABLE: Final = "SECUREBENCH_AGENTS"
"""The environment variable that names the directory with the user's declarations of agents."""

_registered: Final[dict[tuple[ExtensionKind, str], Any]] = {}


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies the code of an extension: its distribution and version, and the sha256 (hex) of its source files.

    ``distribution`` and ``version`` are empty for code that no installed distribution owns.
    """

    name: str
    distribution: str
    version: str
    digest: str

    def to_json(self) -> dict[str, str]:
        """Return the JSON value for ``run.json`` and records."""
        return asdict(self)


class Extension:
    """The base of extension classes, with the identity of their code."""

    def identity(self) -> Identity | None:
        """Return the identity of this code, for ``run.json`` and every record.

        A run can only be resumed with the same identity.

        Returns ``None`` if the class is part of SecureBench. Raises the error of :func:`identity_of`.
        """
        return identity_of(type(self))


def register(kind: ExtensionKind | str, name: str, extension: Any) -> None:
    """Make ``extension`` available as ``name`` in this process, like an installed entry point.

    Raises :class:`ConfigError` (``plugin-conflict``) if another extension has this name.
    """
    kind = ExtensionKind(kind)
    is_used = (
        name in _BUILT_IN[kind]
        or (kind is ExtensionKind.HARNESS and _is_agent(name))
        or name in _entry_points(kind)
        or _registered.get((kind, name), extension) is not extension
    )
    if is_used:
        raise ConfigError(
            f"{kind.value}: the name {name!r} is already used", code="plugin-conflict", hint="choose another name"
        )
    _registered[kind, name] = extension


def own_names(kind: ExtensionKind) -> tuple[str, ...]:
    """Return the names of the built-in extensions of this kind."""
    return tuple(_BUILT_IN[kind])


def names(kind: ExtensionKind) -> tuple[str, ...]:
    """Return every name of this kind, the built-in ones first."""
    own = (*_BUILT_IN[kind], *(agent_names() if kind is ExtensionKind.HARNESS else ()))
    others = {name for of, name in _registered if of is kind} | set(_entry_points(kind))
    return (*own, *sorted(others - set(own)))


def is_known(kind: ExtensionKind, name: str) -> bool:
    """Whether an extension has this name. Installed packages are searched last, because that takes time."""
    return (
        name in _BUILT_IN[kind]
        or (kind, name) in _registered
        or (kind is ExtensionKind.HARNESS and _is_agent(name))
        or name in _entry_points(kind)
    )


def agents_directory() -> Path:
    """Return the directory with the user's declarations of agents. The directory may be missing."""
    if named := os.environ.get(AGENTS_VARIABLE, ""):
        return Path(named)
    return settings_directory() / "agents"


def agent_names() -> tuple[str, ...]:
    """Return the names of all declared agents, SecureBench's own first."""
    own = sorted(_declarations(_OWN_AGENTS))
    others = {*_user_declarations(), *_entry_points(ExtensionKind.AGENT)}
    return (*own, *sorted(others - set(own)))


def _is_agent(name: str) -> bool:
    """Whether ``name`` is one of :func:`agent_names`. Installed packages are searched last."""
    is_file = name in _declarations(_OWN_AGENTS) or name in _user_declarations()
    return is_file or name in _entry_points(ExtensionKind.AGENT)


def agent_file(name: str) -> Path:
    """Return the path of an agent's declaration.

    Raises the errors of :func:`load`. Also raises :class:`ConfigError` (``plugin-conflict``) if a user's file has the
    name of another agent or harness.
    """
    own, given = _declarations(_OWN_AGENTS).get(name), _user_declarations().get(name)
    if given is not None and (own is not None or any(name in _entry_points(kind) for kind in _AGENT_KINDS)):
        raise ConfigError(
            f"the name of the agent in {given} is already used", code="plugin-conflict", hint="rename the file"
        )
    return own or given or Path(load(ExtensionKind.AGENT, name))


def ignored_agents() -> dict[Path, str]:
    """Return the declarations in the user's directory that are ignored because of their names, each with the reason."""
    return {path: why for path in _files(agents_directory()) if (why := _name_fault(path))}


def _name_fault(path: Path) -> str:
    """Return what is wrong with the name of a user's declaration, or an empty text."""
    if path.suffix not in {".yaml", ".yml"}:
        return ""  # not a declaration, but a declaration may refer to this file
    if path.suffix == ".yml":
        return "the name of a declaration must end in .yaml"
    if _AGENT_NAME.fullmatch(path.stem) is None:
        return "the name of an agent may contain only a-z, 0-9, _ and -, and must begin with a letter or a digit"
    return f"the name {path.stem!r} is reserved" if path.stem in _RESERVED else ""


def _user_declarations() -> dict[str, Path]:
    found = _declarations(agents_directory())
    return {name: path for name, path in found.items() if not _name_fault(path)}


def _declarations(directory: Path) -> dict[str, Path]:
    """Return the declarations in a directory by name."""
    return {path.stem: path for path in _files(directory) if path.suffix == ".yaml"}


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def choices(kind: ExtensionKind) -> tuple[str, ...]:
    """Return every name that a user can select: :func:`names`, and for a driver :data:`AUTO_DRIVER` first."""
    return ((AUTO_DRIVER,) if kind is ExtensionKind.DRIVER else ()) + names(kind)


def is_choice(kind: ExtensionKind, name: str) -> bool:
    """Whether ``name`` is one of :func:`choices`."""
    return (kind is ExtensionKind.DRIVER and name == AUTO_DRIVER) or is_known(kind, name)


def load(kind: ExtensionKind, name: str) -> Any:
    """Return the extension of this name.

    Raises :class:`ConfigError`: ``plugin-unknown``; ``plugin-conflict`` if two packages provide the name, or if a
    package gives a reserved name to an agent; ``plugin-broken`` if the extension cannot be imported. A package
    cannot replace a built-in extension.
    """
    if name in _BUILT_IN[kind]:
        module, _, attribute = _BUILT_IN[kind][name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    if kind in _AGENT_KINDS:
        _require_not_reserved(name)
    if kind is ExtensionKind.HARNESS and _is_agent(name):
        return importlib.import_module(_AGENT_HARNESS).AgentType(name)
    if (kind, name) in _registered:
        return _registered[kind, name]
    found = _entry_points(kind).get(name, ())
    if not found:
        raise ConfigError(
            f"{kind.value}: no extension is called {name!r}; known: {', '.join(names(kind))}",
            code="plugin-unknown",
            hint="in the Python environment of SecureBench, install the package that provides it",
        )
    if len(found) > 1:
        raise ConfigError(
            f"{kind.value}: more than one package provides {name!r}: {', '.join(map(_owner, found))}",
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


def _require_not_reserved(name: str) -> None:
    """Raise :class:`ConfigError` (``plugin-conflict``) if ``name`` is reserved and a package gives it to an agent."""
    found = _entry_points(ExtensionKind.AGENT).get(name, ()) if name in _RESERVED else ()
    if found:
        raise ConfigError(
            f"the name {name!r} is reserved, but it is the name of an agent in {', '.join(map(_owner, found))}",
            code="plugin-conflict",
            hint="remove the package, or rename the agent in it",
        )


def identity_of(owner: type) -> Identity | None:
    """Return the identity of a class's code, or ``None`` if the class is part of SecureBench.

    The digest covers all files of the top-level package or module that defines the class, except bytecode.

    Raises :class:`ConfigError` (``plugin-no-source``) if the source files are missing or cannot be read.
    """
    top = owner.__module__.partition(".")[0]
    if top == __package__:
        return None
    distribution, version = _distribution_of(top)
    return Identity(f"{owner.__module__}:{owner.__qualname__}", distribution, version, _source_digest(top))


@cache
def _entry_points(kind: ExtensionKind) -> Mapping[str, tuple[EntryPoint, ...]]:
    from importlib.metadata import entry_points  # takes 20 ms, and most commands never need it

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
    roots = [Path(root) for root in sorted(getattr(module, "__path__", ()))]  # a namespace package can have several
    try:
        if roots:
            digests = [source_digest(root) for root in roots]
            return digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()
        return file_digest(Path(module.__file__ or ""))
    except (AttributeError, OSError, TreeRefusedError) as error:
        raise ConfigError(
            f"cannot read the source of {top!r}: without its digest, records cannot identify the code that ran",
            code="plugin-no-source",
            hint="define the extension in a module or package whose files can be read",
        ) from error
