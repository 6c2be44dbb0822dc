"""Where a verdict comes from: digests of everything that could change it."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from securebench import __version__
from securebench.errors import ConfigError
from securebench.families.registry import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.families.base import Family
    from securebench.harnesses.base import HarnessProducer
    from securebench.resources import JsonValue
    from securebench.results.commitment import Commitment
    from securebench.sandboxes.base import DriverInfo, SandboxDriver
    from securebench.tasks import SecureBenchTask
    from securebench.tester_config import HarnessConfig
    from securebench.verifiers.base import Verifier


def json_digest(value: JsonValue) -> str:
    """Return the sha256 (hex) of ``value`` as JSON with sorted keys and no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def tree_digest(root: Path) -> str:
    """Return the sha256 (hex) of a directory: the names, contents, executable bits and links of all that is in it.

    No link is followed. Raises :class:`ConfigError` (``agent-dir-unreadable``) for what is neither a file, a
    directory nor a link, and for what cannot be read.
    """
    try:
        return json_digest([list(entry) for entry in _entries(root)])
    except OSError as error:
        raise ConfigError(
            f"cannot read {error.filename}: {error.strerror}",
            code="agent-dir-unreadable",
            hint="the agent's directory must hold only files that this user can read",
        ) from error


def extension_provenance(part: HarnessProducer | Verifier | Family | SandboxDriver) -> dict[str, JsonValue]:
    """Return whose code ``part`` of a run is, under the key ``extension``; nothing for this framework's own.

    Raises :class:`ConfigError` (``plugin-no-source``).
    """
    identity = part.identity()
    return {"extension": dict(identity.to_json())} if identity else {}


def harness_provenance(config: HarnessConfig, producer: HarnessProducer) -> dict[str, JsonValue]:
    """Return the harness's name, and the digest of its configuration and of its agent's files.

    Of the variables in ``harness.env`` only the names count: their values are nobody's business. Raises
    :class:`ConfigError`, as :func:`extension_provenance` and :func:`tree_digest` do.
    """
    fields = config.config.model_dump(mode="json", exclude={"agent_dir"})
    agent_dir = getattr(config.config, "agent_dir", None)
    fields["agent"] = tree_digest(agent_dir) if agent_dir else None
    return {
        "type": producer.name,
        "digest": json_digest({"type": config.type, "env": list(config.env), "config": fields}),
        **extension_provenance(producer),
    }


def row_provenance(task: SecureBenchTask, commitment: Commitment) -> dict[str, JsonValue]:
    """Return what is published of a task's row: a commitment to all of it, and a digest of its public part.

    With a family of an installed package, it also says whose code that is.
    """
    family = FAMILIES.get(task.task_type)
    return {
        "commitment": commitment.to(task.row_digest),
        "public_digest": task.public_digest,
        **(extension_provenance(family) if family else {}),
    }


@cache
def framework_provenance() -> Mapping[str, JsonValue]:
    """Return this framework's version, and the digest of its source files as they are installed."""
    package = Path(__file__).parent.parent
    sources = sorted(path for path in package.rglob("*.py") if path.is_file())
    digests: list[JsonValue] = [[str(path.relative_to(package)), _file_digest(path)] for path in sources]
    return {"version": __version__, "digest": json_digest(digests)}


def verifier_provenance(verifier: Verifier | None) -> dict[str, JsonValue] | None:
    """Return what a record says of the verifier of its family."""
    if verifier is None:
        return None
    return {"family": verifier.family, "version": verifier.version, **extension_provenance(verifier)}


def driver_provenance(info: DriverInfo) -> dict[str, JsonValue]:
    """Return what a record says of the sandbox driver: what it is, what it holds every sandbox to, and what not."""
    return {
        "name": info.name,
        "runtime": info.runtime,
        "version": info.version,
        "enforced": list(info.enforced),
        "weaker": list(info.weaker),
    }


def _entries(root: Path) -> Iterator[tuple[str, str, str]]:
    for directory, names, files in os.walk(root, followlinks=False, onerror=_raise):
        names.sort()
        for name in sorted([*names, *files]):
            path = Path(directory, name)
            relative = os.fsencode(path.relative_to(root)).hex()
            if path.is_symlink():
                yield relative, "link", os.fsencode(path.readlink()).hex()
            elif path.is_dir():
                yield relative, "directory", ""
            elif path.is_file():
                kind = "program" if path.stat().st_mode & 0o100 else "file"
                yield relative, kind, _file_digest(path)
            else:
                raise ConfigError(f"{path} is not a regular file", code="agent-dir-unreadable")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _raise(error: OSError) -> None:
    raise error
