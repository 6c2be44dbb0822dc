"""The provenance of a verdict: digests of everything that could affect it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from securebench import __version__
from securebench.errors import ConfigError
from securebench.families.registry import FAMILIES
from securebench.fs.digest import source_digest, tree_digest
from securebench.fs.safe_open import TreeRefusedError
from securebench.results.records.chain import expressible, value_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.families.base import Family
    from securebench.harnesses.base import HarnessProducer
    from securebench.plugins import Extension
    from securebench.resources import JsonValue
    from securebench.results.records.commitment import Commitment
    from securebench.sandboxes.base import DriverInfo
    from securebench.tasks import SecureBenchTask
    from securebench.tester_config import HarnessConfig
    from securebench.verifiers.base import Verifier


def json_digest(value: JsonValue) -> str:
    """Return the sha256 (hex) of ``value`` in its canonical form."""
    return value_digest(expressible(value))


def agent_digest(directory: Path) -> str:
    """Return the digest of an agent's directory. Raises :class:`ConfigError` (``agent-dir-unreadable``)."""
    try:
        return tree_digest(directory)
    except (OSError, TreeRefusedError) as error:
        raise ConfigError(
            f"cannot read the agent's directory {directory}: {error}",
            code="agent-dir-unreadable",
            hint="make sure that it contains only files and directories that you can read",
        ) from error


def extension_provenance(part: Extension | Family) -> dict[str, JsonValue]:
    """Return the package that provides ``part``, under the key ``extension``; an empty dict for a built-in part.

    Raises :class:`ConfigError` (``plugin-no-source``).
    """
    identity = part.identity()
    return {"extension": dict(identity.to_json())} if identity else {}


def harness_fields(config: HarnessConfig) -> dict[str, JsonValue]:
    """Return the settings of the harness, without paths of files and directories whose digests are recorded instead."""
    return config.config.model_dump(mode="json", exclude={"agent_dir", *config.config.identified_by_content})


def harness_provenance(config: HarnessConfig, producer: HarnessProducer) -> dict[str, JsonValue]:
    """Return the agent's name, the harness's type, and the digests of its configuration and of the agent's files.

    The path of the agent's directory is not included, only the digest of its files. The digests of other files
    are in the result of :meth:`HarnessProducer.prepare`. Of ``harness.env``, only the names of the variables are
    included, because the values may be secret. If an installed package provides the harness, the package is included.

    Raises :class:`ConfigError`, as :func:`extension_provenance` and :func:`agent_digest` do.
    """
    fields = harness_fields(config)
    agent_dir = getattr(config.config, "agent_dir", None)
    agent = agent_digest(agent_dir) if agent_dir else None
    fields["agent"] = agent
    return {
        "type": producer.name,
        **({"name": config.name} if config.name else {}),
        "digest": json_digest({"type": config.type, "env": list(config.env), "config": fields}),
        **({"agent_digest": agent} if agent else {}),
        **extension_provenance(producer),
    }


def row_provenance(task: SecureBenchTask, commitment: Commitment) -> dict[str, JsonValue]:
    """Return what a record shows of a task's row: a commitment to the whole row, and a digest of its public part.

    If an installed package provides the family, the package is included.
    """
    family = FAMILIES.get(task.task_type)
    return {
        "commitment": commitment.to(task.row_digest),
        "public_digest": task.public_digest,
        **(extension_provenance(family) if family else {}),
    }


@cache
def framework_provenance() -> Mapping[str, JsonValue]:
    """Return SecureBench's version and the digest of its installed source files."""
    return {"version": __version__, "digest": source_digest(Path(__file__).parents[2])}


def verifier_provenance(verifier: Verifier | None) -> dict[str, JsonValue] | None:
    """Return the provenance of a verifier for a record; ``None`` without a verifier."""
    if verifier is None:
        return None
    return {"family": verifier.family, "version": verifier.version, **extension_provenance(verifier)}


def driver_provenance(info: DriverInfo) -> dict[str, JsonValue]:
    """Return the provenance of the sandbox driver: name, runtime, version, and what it does and does not enforce."""
    return {
        "name": info.name,
        "runtime": info.runtime,
        "version": info.version,
        "enforced": list(info.enforced),
        "weaker": list(info.weaker),
    }
