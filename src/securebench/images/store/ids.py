"""Who owns the files of an unpacked image on the host: the same rule for who unpacks them and who runs on them."""

from __future__ import annotations

import os
from typing import Final

SHIFT: Final = 0x7000_0000
"""The host's id of a sandbox's root, where the runner is root. It lies above every range that systemd hands out
(524288 to 1879048191) and below the signed 32-bit limit, so that no account of the host has it."""

COUNT: Final = 65536
"""How many ids a sandbox has."""


def tree_shift() -> int:
    """Return what is added to each id of an image as it is unpacked: :data:`SHIFT` for root, 0 for other users.

    Another user cannot give files away: all of a tree belongs to him.
    """
    return SHIFT if os.geteuid() == 0 else 0
