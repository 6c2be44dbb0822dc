"""The capabilities that a spec grants to root in its sandbox."""

from __future__ import annotations

from typing import Any

import pytest

from securebench.errors import ConfigError
from securebench.images.model import ResolvedImage
from securebench.sandboxes.base import SandboxSpec
from securebench.sandboxes.spec_rules import granted_capabilities

IMAGE = ResolvedImage(reference="tool:1", id="sha256:" + "a" * 64)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"cap_add": ("SYS_CHROOT",)}, ["CAP_SYS_CHROOT"]),
        ({"cap_add": ("cap_chown", "KILL")}, ["CAP_CHOWN", "CAP_KILL"]),
        ({"cap_drop": ("all",), "cap_add": ("KILL",)}, ["CAP_KILL"]),
    ],
)
def test_nothing_is_had_that_was_not_named(options: dict[str, Any], expected: list[str]) -> None:
    """I02: if a spec drops all capabilities, as by default, the sandbox has only those that the spec adds.

    Names may have the prefix ``CAP_``.
    """
    assert granted_capabilities(SandboxSpec(image=IMAGE, **options)) == expected


def test_what_is_not_dropped_is_dockers() -> None:
    """A spec that drops some capabilities by name keeps Docker's other default capabilities."""
    kept = granted_capabilities(SandboxSpec(image=IMAGE, cap_drop=("NET_RAW", "CAP_MKNOD")))
    assert len(kept) == 12
    assert not {"CAP_NET_RAW", "CAP_MKNOD", "CAP_SYS_ADMIN"} & set(kept)


def test_all_cannot_be_added() -> None:
    """I02: a spec that adds ``ALL`` capabilities is refused."""
    with pytest.raises(ConfigError) as caught:
        granted_capabilities(SandboxSpec(image=IMAGE, cap_add=("ALL",)))
    assert caught.value.code == "sandbox-unsupported"
