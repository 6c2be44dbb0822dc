"""Which paths of a gold patch a candidate policy denies by default: a row must allow them to be solvable at all."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

_FIRST: Final = frozenset({".github", ".gitlab", "ci", "securebench", ".git"})
_ANYWHERE: Final = frozenset({"test", "tests", "__pycache__"})
_NAMES: Final = re.compile(
    r"""(?x) conftest\.py | pyproject\.toml | setup\.(?:py|cfg) | tox\.ini | pytest\.ini | requirements.*\.txt
    | package\.json | package-lock\.json | npm-shrinkwrap\.json | pnpm-lock\.yaml | Cargo\.toml | go\.(?:mod|sum)
    | sitecustomize\.py | usercustomize\.py | noxfile\..* | .*\.(?:sh|bash|zsh|lock|pth)"""
)


def is_sensitive(path: str) -> bool:
    """Whether the default policy of a repository's candidates denies ``path``."""
    parts = PurePosixPath(path.casefold()).parts
    return bool(parts) and (parts[0] in _FIRST or not _ANYWHERE.isdisjoint(parts) or bool(_NAMES.fullmatch(parts[-1])))
