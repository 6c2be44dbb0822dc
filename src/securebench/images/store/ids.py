"""The host's user and group ids that own the files of unpacked images, and that sandboxes map to their own ids."""

from __future__ import annotations

import os
from typing import Final

SHIFT: Final = 0x7000_0000
"""The host's id for root in a sandbox, if SecureBench runs as root.

It is above every range that systemd allocates (524288 to 1879048191) and below the signed 32-bit limit, so no account
of the host has it.
"""

COUNT: Final = 65536
"""The number of ids in a sandbox, if SecureBench runs as root."""


def tree_shift() -> int:
    """Return the number that is added to each owner id when this process unpacks an image.

    If the process runs as root, the number is :data:`SHIFT`. Otherwise it is 0: only root can change the owner of a
    file, so any other user owns all files of a tree.
    """
    return SHIFT if os.geteuid() == 0 else 0
