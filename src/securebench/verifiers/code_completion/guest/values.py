"""Splits values of standard-library types into plain parts, and rebuilds equal values in the other sandbox."""

from __future__ import annotations

import sys

from securebench.verifiers.code_completion.guest.plain import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LONGEST_ZONE = 100


def _zone(value: Any, moment: Any) -> list[Any] | None:
    """Return the parts of a time zone: its key in the zone database, or else its offset and ``tzname`` at ``moment``.

    Returns an empty list if ``value`` has no time zone, and ``None`` if the offset is unknown. If the
    candidate defines the class of the time zone, only this offset and name are sent, and not the code of the class.
    """
    zone = value.tzinfo
    if zone is None:
        return []
    key = getattr(zone, "key", None)
    if type(key) is str and type(zone) is getattr(sys.modules.get("zoneinfo"), "ZoneInfo", None):
        return [key]
    offset = zone.utcoffset(moment)
    if offset is None:
        return None
    name = zone.tzname(moment)
    return [offset.days, offset.seconds, offset.microseconds, *([name] if type(name) is str else [])]


def _read_zone(parts: list[Any]) -> Any:
    if not parts:
        return None
    if len(parts) == 1:
        return _zone_of_database(parts[0])
    import datetime as dt

    offset = dt.timedelta(*parts[:3])
    plain = dt.timezone(offset)
    named = len(parts) > 3 and parts[3] != plain.tzname(None)  # noqa: PLR2004 - after days, seconds, microseconds
    if named:
        return dt.timezone(offset, parts[3])
    return plain if offset else dt.timezone.utc  # noqa: UP017 - dt.UTC came with Python 3.11


def _zone_of_database(key: Any) -> Any:
    if type(key) is not str or len(key) > _LONGEST_ZONE or not key.replace("/", "").replace("_", "").isprintable():
        raise MalformedError("invalid name of a time zone")
    __import__("zoneinfo")
    return sys.modules["zoneinfo"].ZoneInfo(key)  # refuses keys that lead out of the database


def _moment(value: Any) -> list[Any] | None:
    zone = _zone(value, value)
    return None if zone is None else [*value.timetuple()[:6], value.microsecond, value.fold, *zone]


def _clock(value: Any) -> list[Any] | None:
    zone = _zone(value, None)
    return None if zone is None else [value.hour, value.minute, value.second, value.microsecond, value.fold, *zone]


def _make_moment(*parts: Any) -> Any:
    import datetime as dt

    return dt.datetime(*parts[:7], tzinfo=_read_zone(list(parts[8:])), fold=parts[7])  # type: ignore[misc]  # 7 parts


def _make_clock(*parts: Any) -> Any:
    import datetime as dt

    return dt.time(*parts[:4], tzinfo=_read_zone(list(parts[5:])), fold=parts[4])  # type: ignore[misc]  # 4 parts


def _make_timezone(*parts: Any) -> Any:
    return _read_zone(list(parts))


def _make_uuid(number: int) -> Any:
    import uuid

    return uuid.UUID(int=number)


def _make_memoryview(data: bytes) -> Any:
    return memoryview(data)


def _read_only(mapping: Any) -> Any:
    if type(mapping) is not dict:
        raise MalformedError("the mapping is not a dict")
    return type(vars(type))(mapping)


def _bytes_of(value: Any) -> list[Any] | None:
    return [value.tobytes()] if value.format == "B" and value.ndim == 1 else None


def _timezone_parts(value: Any) -> list[Any]:
    offset = value.utcoffset(None)
    return [offset.days, offset.seconds, offset.microseconds, value.tzname(None)]


def _path(value: Any) -> list[Any]:
    return [str(value)]


_VALUES: dict[tuple[str, str], tuple[Callable[[Any], list[Any] | None], Callable[..., Any] | None]] = {
    ("decimal", "Decimal"): (lambda x: [str(x)], None),
    ("fractions", "Fraction"): (lambda x: [x.numerator, x.denominator], None),
    ("datetime", "date"): (lambda x: [x.year, x.month, x.day], None),
    ("datetime", "time"): (_clock, _make_clock),
    ("datetime", "datetime"): (_moment, _make_moment),
    ("datetime", "timedelta"): (lambda x: [x.days, x.seconds, x.microseconds], None),
    ("datetime", "timezone"): (_timezone_parts, _make_timezone),
    ("zoneinfo", "ZoneInfo"): (lambda x: [x.key], _zone_of_database),
    ("collections", "ChainMap"): (lambda x: list(x.maps), None),
    ("array", "array"): (lambda x: [x.typecode, x.tolist()], None),
    ("uuid", "UUID"): (lambda x: [x.int], _make_uuid),
    ("pathlib", "PurePosixPath"): (_path, None),
    ("pathlib", "PureWindowsPath"): (_path, None),
    ("pathlib", "PosixPath"): (_path, None),
    ("builtins", "memoryview"): (_bytes_of, _make_memoryview),
    ("types", "MappingProxyType"): (lambda x: [dict(x)], _read_only),
    ("builtins", "slice"): (lambda x: [x.start, x.stop, x.step], None),
    ("builtins", "ellipsis"): (lambda _: [], lambda: ...),
}
"""For each class, a function that returns the parts of a value, and a function that rebuilds the value.

The first function returns ``None`` for a value that cannot be split. If the second is ``None``, the class is called
with the parts.
"""
_BUILTIN_CLASSES = {
    type(vars(type)): ("types", "MappingProxyType"),
    memoryview: ("builtins", "memoryview"),
    slice: ("builtins", "slice"),
    type(...): ("builtins", "ellipsis"),
}


def stdlib_parts(value: Any) -> tuple[str, str, list[Any]] | None:
    """Return the module, class name and parts of ``value``, or ``None`` if it cannot be split. Imports no module."""
    kind = type(value)
    place = _BUILTIN_CLASSES.get(kind) or _place(kind)
    if place is None:
        return None
    found = _VALUES[place][0](value)
    return (*place, found) if found is not None else None


def _place(kind: type) -> tuple[str, str] | None:
    for module, name in _VALUES:
        if kind.__name__ == name and kind is getattr(sys.modules.get(module), name, None):
            return module, name
    return None


def make_stdlib(module: str, name: str, parts: list[Any]) -> Any:
    """Return the value that :func:`stdlib_parts` has split. Raises :class:`MalformedError` or another error."""
    if (module, name) not in _VALUES:
        raise MalformedError("unsupported class of the standard library")
    make = _VALUES[module, name][1]
    if make is not None:
        return make(*parts)
    __import__(module)
    return getattr(sys.modules[module], name)(*parts)
