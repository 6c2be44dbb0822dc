"""Parse numbers and sizes as task authors write them, and check that they are plausible."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from securebench.families.fields import MAX_TIMEOUT_SECONDS
from securebench.importers.terminal.files import refused

if TYPE_CHECKING:
    from pathlib import Path

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_GIB: Final = {"": 1 / 1024**3, "k": 1 / 1024**2, "m": 1 / 1024, "g": 1.0, "t": 1024.0}
_MOST: Final = 10_000.0


def number(value: Any, place: Path) -> float | None:
    """Convert a positive number, or a string such as ``"1.5"``, to a float. Return ``None`` for ``None``.

    Raises :class:`ConfigError` for any other value, and for a number above 10,240,000.
    """
    if value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise refused(place, f"{str(value)[:40]!r} is not a number") from None
    except OverflowError:  # an integer that is too large for a float
        found = math.inf
    if isinstance(value, bool) or not math.isfinite(found) or not 0 < found <= _MOST * 1024:
        raise refused(place, f"{str(value)[:40]!r} is not a number above 0 and up to {_MOST * 1024:.0f}")
    return found


def seconds(value: Any, place: Path) -> float | None:
    """Return a time limit in seconds, or ``None``. A limit above the maximum for a row is reduced to it."""
    found = number(value, place)
    return min(found, MAX_TIMEOUT_SECONDS) if found else None


def gigabytes(value: Any, place: Path) -> float | None:
    """Return a size such as ``2G`` or ``512M`` in GiB; ``None`` for ``None``.

    Raises :class:`ConfigError` for anything else, and for more than 10,000 GiB.
    """
    if value is None:
        return None
    match = _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise refused(place, f"{str(value)[:40]!r} is not a size such as 2G or 512M")
    found = float(match[1]) * _GIB[match[2].lower()]
    if found > _MOST:
        raise refused(place, f"{str(value)[:40]!r} is more than {_MOST:.0f} GiB")
    return found
