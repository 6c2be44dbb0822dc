"""Where a verdict comes from: digests of everything that could change it."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from securebench import __version__
from securebench.errors import ConfigError
from securebench.families.registry import FAMILIES
from securebench.fs.digest import source_digest, tree_digest
from securebench.fs.safe_open import TreeRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def agent_digest(directory: Path) -> str:
    """Return the digest of an agent's directory. Raises :class:`ConfigError` (``agent-dir-unreadable``)."""
    try:
        return tree_digest(directory)
    except (OSError, TreeRefusedError) as error:
        raise ConfigError(
            f"cannot read the agent's directory {directory}: {error}",
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
    :class:`ConfigError`, as :func:`extension_provenance` and :func:`agent_digest` do.
    """
    fields = config.config.model_dump(mode="json", exclude={"agent_dir"})
    agent_dir = getattr(config.config, "agent_dir", None)
    fields["agent"] = agent_digest(agent_dir) if agent_dir else None
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
    return {"version": __version__, "digest": source_digest(Path(__file__).parent.parent)}


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
