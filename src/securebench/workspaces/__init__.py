"""Workspaces: lay out a task's files, and read the changes that an agent made."""

from typing import TYPE_CHECKING

from securebench.lazy_names import lazy_names

if TYPE_CHECKING:
    from securebench.workspaces.materialization import VisibilityAwareMaterializer
    from securebench.workspaces.path_policy import require_mount

__all__ = [
    "VisibilityAwareMaterializer",
    "require_mount",
]

__getattr__ = lazy_names(
    __name__,
    {
        "VisibilityAwareMaterializer": "materialization",
        "require_mount": "path_policy",
    },
)
