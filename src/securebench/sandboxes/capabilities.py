"""The capabilities of a sandbox: Docker's defaults with those that a spec adds and drops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from securebench.sandboxes.base import SandboxSpec

_DOCKER_DEFAULTS: Final = frozenset(
    {
        *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD"),
        *("CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"),
        "CAP_SYS_CHROOT",
    }
)
"""The default capabilities of a Docker container."""


def granted_capabilities(spec: SandboxSpec) -> list[str]:
    """Return the sorted capabilities of root in a sandbox of ``spec``. Other users have none.

    Raises :class:`ConfigError` (``sandbox-unsupported``) if ``ALL`` is added: capabilities must be added by name.
    """
    added = {_full_name(name) for name in spec.cap_add}
    if "CAP_ALL" in added:
        raise ConfigError(
            "a sandbox was asked to have all capabilities",
            code="sandbox-unsupported",
            hint="list the needed ones in cap_add",
        )
    dropped = {_full_name(name) for name in spec.cap_drop}
    kept = frozenset[str]() if "CAP_ALL" in dropped else _DOCKER_DEFAULTS - dropped
    return sorted(kept | added)


def _full_name(name: str) -> str:
    return "CAP_" + name.upper().removeprefix("CAP_")
