"""The optional libraries of reports."""

from __future__ import annotations

import importlib

from securebench.errors import ConfigError

_LIBRARIES = {"report": ("jinja2", "vl_convert"), "view": ("jinja2", "vl_convert", "starlette", "uvicorn")}


def require(extra: str) -> None:
    """Raise :class:`ConfigError` (``extra-missing``) if a library of ``extra`` (``report`` or ``view``) is missing."""
    for library in _LIBRARIES[extra]:
        try:
            importlib.import_module(library)
        except ImportError:
            raise ConfigError(
                f"this command needs {library}, which is not installed",
                code="extra-missing",
                hint=f"run: pip install 'securebench[{extra}]' (in a clone: pip install '.[{extra}]')",
            ) from None
