"""What a driver is not held to, and why: where it says itself that it is weaker, and where gVisor is another kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.sandboxes.enforcement import ENFORCEABLE
from securebench.sandboxes.gvisor import RUNSC
from securebench.testing.conformance import forwarding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.sandboxes.base import DriverInfo
    from securebench.testing.conformance.bench import Check

GVISOR: Final[Mapping[str, str]] = {
    "processes_are_limited": "the limit is of gVisor's own threads: meeting it ends the sandbox, no fork is refused",
    "sending_after_the_end_breaks_the_pipe": "gVisor keeps the host's end of a pipe open until the sandbox has ended",
    "special_files_are_told": "FIFOs and sockets are in gVisor's own memory, and not among what is left",
    "files_are_described": "gVisor as Debian 12 has it does not know AT_NO_AUTOMOUNT, and refuses the call with EINVAL",
    "read_only_mounts_stay_as_they_are": "gVisor looks at the mode of a file first, and answers EACCES, not EROFS",
    "privileges_cannot_be_gained": "gVisor filters the first process and its children: no later call reaches the host",
    "nobody_can_do_what_is_forbidden": "devices and priorities are those of gVisor's own kernel, and reach no host",
    **dict.fromkeys(
        (check.name for check in forwarding.CHECKS if check.name != "ports_that_cannot_be_are_refused"),
        "gVisor's network stack is its own: a socket that listens in its namespace is not seen, and this is said",
    ),
    "root_can_do_no_more": "devices and priorities are those of gVisor's own kernel, and reach no host",
}
"""By the name of a check: in what gVisor's kernel differs from the host's. Nothing of it weakens the host's safety."""

FOREIGN_FILES: Final = "what_root_leaves_can_be_read_and_removed"
"""The check that a driver need not pass which declares ``foreign_files``."""


def expected_failure(check: Check, info: DriverInfo) -> str:
    """Return why the driver that ``info`` describes need not pass ``check``, or nothing if it must."""
    if weak := [name for name in check.needs if name in info.weaker]:
        return f"this driver declares that it does not enforce: {ENFORCEABLE[weak[0]]}"
    if info.foreign_files and check.name == FOREIGN_FILES:
        return "this driver says that files may come to belong to another user of the host"
    return GVISOR.get(check.name, "") if info.runtime == RUNSC else ""
