"""Which capabilities a sandbox has: as Docker takes away and adds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from securebench.sandboxes.base import SandboxSpec

_OF_DOCKER: Final = frozenset(
    {
        *("CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD"),
        *("CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"),
        "CAP_SYS_CHROOT",
    }
)
"""What a container of Docker has from which nothing is taken."""


def granted_capabilities(spec: SandboxSpec) -> list[str]:
    """Return the capabilities that root has in a sandbox of ``spec``, sorted; another user has none of them.

    Raises :class:`ConfigError` (``sandbox-unsupported``) for ``ALL`` as an addition: they are asked for by name.
    """
    added = {_full_name(name) for name in spec.cap_add}
    if "CAP_ALL" in added:
        raise ConfigError(
            "a sandbox was asked to have all capabilities",
            code="sandbox-unsupported",
            hint="name those that are needed in cap_add",
        )
    dropped = {_full_name(name) for name in spec.cap_drop}
    kept = frozenset[str]() if "CAP_ALL" in dropped else _OF_DOCKER - dropped
    return sorted(kept | added)


def _full_name(name: str) -> str:
    return "CAP_" + name.upper().removeprefix("CAP_")
