"""The checks that a driver need not pass, and why: it declares a limitation, or gVisor behaves differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.sandboxes.spec_rules import RUNSC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.sandboxes.base import DriverInfo
    from securebench.testing.conformance.bench import Check

GVISOR: Final[Mapping[str, str]] = {
    "processes_are_limited": "the limit counts gVisor's threads, "
    "and reaching it ends the sandbox instead of making a fork fail",
    "sending_after_the_end_breaks_the_pipe": "gVisor keeps the host's end of a pipe open until the sandbox has ended",
    "special_files_are_reported": "FIFOs and sockets exist only in gVisor's memory and are not collected",
    "files_are_described": "the gVisor of Debian 12 does not support AT_NO_AUTOMOUNT, and answers EINVAL",
    "read_only_mounts_stay_as_they_are": "gVisor checks the mode of a file first, and answers EACCES instead of EROFS",
    "privileges_cannot_be_gained": "gVisor filters only system calls of the first process and its children; "
    "this is harmless, because even unfiltered calls reach only gVisor's own kernel",
    "an_ordinary_user_cannot_do_what_is_forbidden": "devices and priorities belong to gVisor's kernel",
    "root_cannot_do_what_is_forbidden": "devices and priorities belong to gVisor's kernel",
}
"""Differences between gVisor's kernel and the host's, by the name of the check. None of them endangers the host."""

FOREIGN_FILES: Final = "files_of_root_can_be_read_and_removed"
"""The name of the check that a driver with ``DriverInfo.foreign_files`` need not pass."""


def expected_failure(check: Check, info: DriverInfo) -> str:
    """Return why the driver described by ``info`` need not pass ``check``, or an empty string if it must."""
    if weak := [name for name in check.needs if name in info.weaker]:
        return f"this driver declares that it does not enforce: {ENFORCEABLE[weak[0]]}"
    if info.foreign_files and check.name == FOREIGN_FILES:
        return "this driver declares that files of root in a sandbox may belong to another user of the host"
    return GVISOR.get(check.name, "") if info.runtime == RUNSC else ""
