"""The rules for paths in packs. They are lexical and do not access the file system.

Packs contain three kinds of path: the path of a file below an asset root, the mount at which it appears in a
workspace, and an absolute path inside a container.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.resources import Visibility

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_PATH_LENGTH: Final = 1024
"""Maximum bytes of a path: a quarter of Linux's limit, to leave room for the path of the mount point."""

MAX_NAME_LENGTH: Final = 255
"""Maximum bytes of one name: the limit of Linux file systems."""

MAX_PATH_DEPTH: Final = 32
"""Maximum number of names in a path."""

PUBLIC_ROOT: Final = "securebench/public"
LANE_ROOTS: Final[Mapping[Visibility, str]] = {
    Visibility.PUBLIC: PUBLIC_ROOT,
    Visibility.EVALUATION_INPUTS: "securebench/evaluation_inputs",
    Visibility.HIDDEN: "securebench/evaluator",
}
"""The workspace directory for the values of each lane. It also holds the lane's files without a mount.

Public files without a mount are an exception: they keep their paths, directly in the workspace.
"""

RESERVED_MOUNTS: Final = ("task.json", ".git", "securebench")
"""Workspace paths that SecureBench reserves, with everything below them."""

DENIED_MOUNTS: Final = (
    "ground_truth",
    "scorer",
    "eval",
    "task/hidden.json",
    "task/evaluation_inputs.json",
    "input/hidden.json",
    "output/score.json",
)
"""Paths where nothing may be mounted: other tools store answers and scores there."""

_SYSTEM_TREES = ("/proc", "/sys", "/dev", "/run", "/etc", "/boot", "/bin", "/sbin", "/lib", "/lib64")
_SYSTEM_TREES_OF_USR = ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/share", "/usr/include")
_OWN_TREES = ("/opt/securebench",)
_SYSTEM_DIRECTORIES = ("/", "/usr", "/usr/local", "/var", "/opt", "/tmp", "/home", "/mnt")  # noqa: S108 - in a container
_CONFUSABLE = re.compile("[\u2024\u2025\u2026\uff0e\uff0f\u2044\u2215\u29f8\uff3c\u29f5\ufe68]")
_ENCODED = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def relative_path_fault(path: str) -> str:
    """Return why ``path`` is not a plain relative POSIX path, or an empty string if it is one."""
    if not path:
        return "is empty"
    return "begins with '/'" if path.startswith("/") else _names_fault(path)


def container_directory_fault(path: str) -> str:
    """Return why ``path`` cannot be a working directory in a container, or an empty string."""
    if not path.startswith("/"):
        return "is not an absolute path"
    if path == "/":
        return "is the root of the container"
    if fault := _names_fault(path[1:]):
        return fault
    if path in _SYSTEM_DIRECTORIES or any(is_at_or_below(path, tree) for tree in _SYSTEM_TREES):
        return "is a directory of the container's system"
    if any(is_at_or_below(path, tree) for tree in _SYSTEM_TREES_OF_USR):
        return "is a directory of the container's system"
    return "is reserved for SecureBench's own files" if any(is_at_or_below(path, t) for t in _OWN_TREES) else ""


def mount_fault(mount: str, lane: Visibility) -> str:
    """Return why a file of ``lane`` cannot be mounted at ``mount`` in a workspace, or an empty string."""
    if fault := relative_path_fault(mount):
        return fault
    if denied := next((path for path in DENIED_MOUNTS if is_at_or_below(folded(mount), path)), ""):
        return f"is at or below {denied!r}, where nothing may be mounted"
    if lane is not Visibility.PUBLIC:
        root = LANE_ROOTS[lane]
        return "" if is_below(mount, root) else f"is not below {root!r}"
    reserved = next((path for path in RESERVED_MOUNTS if is_at_or_below(folded(mount), path)), "")
    return f"is at or below {reserved!r}, which is reserved for SecureBench" if reserved else ""


def colliding_mounts(mounts: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two mounts that collide, or ``None`` if no mounts do.

    Two mounts collide if they are equal or if one is below the other. Paths that differ only in case or Unicode
    normalization count as equal.
    """
    seen: dict[str, str] = {}
    for mount in sorted(mounts, key=lambda path: path.count("/")):
        names = folded(mount).split("/")
        for end in range(1, len(names) + 1):
            if (above := seen.get("/".join(names[:end]))) is not None:
                return above, mount
        seen["/".join(names)] = mount
    return None


def folded(path: str) -> str:
    """Return a form of ``path`` that is equal for all spellings that differ only in case or Unicode normalization."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKD", path).casefold())


def is_at_or_below(path: str, root: str) -> bool:
    """Return whether ``path`` is ``root`` or below it. Both are normal POSIX paths."""
    return PurePosixPath(path).is_relative_to(root)


def is_below(path: str, root: str) -> bool:
    """Return whether ``path`` is below ``root`` and not ``root`` itself."""
    return path != root and is_at_or_below(path, root)


def _names_fault(path: str) -> str:
    """Return what is wrong with the names in ``path``, or an empty string.

    Callers remove the slash at the start of an absolute path.
    """
    if fault := _character_fault(path):
        return fault
    if path.startswith("~") or _DRIVE.match(path):
        return "has a first component that begins with '~' or with a drive letter such as 'C:'"
    if len(path.encode("utf-8")) > MAX_PATH_LENGTH:
        return f"is longer than {MAX_PATH_LENGTH} bytes"
    names = path.split("/")
    if len(names) > MAX_PATH_DEPTH:
        return f"has more than {MAX_PATH_DEPTH} components"
    return next(filter(None, map(_name_fault, names)), "")


def _character_fault(path: str) -> str:
    if "\\" in path:
        return "contains a backslash"
    if not path.isprintable():
        return "contains a control or invisible character"
    if _CONFUSABLE.search(path):
        return "contains a character that looks like '.', '/' or a backslash"
    return "contains a percent-encoded '.', '/', backslash or NUL" if _ENCODED.search(path) else ""


def _name_fault(name: str) -> str:
    if not name:
        return "contains an empty name: '//', or a '/' at its end"
    if name in (".", ".."):
        return f"contains {name!r}"
    if name.endswith((" ", ".")) or name.startswith(" "):
        return f"contains the name {name!r}, which some file systems change"
    if _DEVICE.fullmatch(name):
        return f"contains {name!r}, which is a reserved device name on some systems"
    is_short = len(name.encode("utf-8")) <= MAX_NAME_LENGTH
    return "" if is_short else f"contains a name longer than {MAX_NAME_LENGTH} bytes"
