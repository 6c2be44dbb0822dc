"""Takes exceptions apart and rebuilds them on the other side, without calling their constructors, which might fail."""

from __future__ import annotations

import builtins

from securebench.verifiers.code_completion.guest.plain import MalformedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_CAUSES = 10
MAX_ATTRIBUTES = 50
_LONGEST_NAME = 100
_LONGEST_MESSAGE = 10_000
_GROUP: Any = getattr(builtins, "ExceptionGroup", ())
"""``ExceptionGroup``. Before Python 3.11, it does not exist, and this is an empty tuple."""


def parts_of_error(error: Exception, kind: type) -> list[Any]:
    """Return ``kind``, and the arguments, attributes and cause of ``error``, and whether its context is suppressed."""
    arguments = error.args
    if isinstance(error, _GROUP):
        arguments = (error.message, tuple(error.exceptions))
    attributes = {name: value for name, value in list(vars(error).items())[:MAX_ATTRIBUTES] if is_attribute(name)}
    return [kind, arguments, attributes, _cause_of(error), error.__suppress_context__]


def make_error(parts: list[Any]) -> Exception:
    """Return the exception that ``parts`` describes, without its attributes. Raises :class:`MalformedError`.

    If the class does not accept the arguments in ``parts``, the exception is a ``RuntimeError``.
    """
    kind, arguments, _, cause, suppressed = parts
    known = isinstance(kind, type) and issubclass(kind, Exception)
    if not known or type(arguments) is not tuple or not (cause is None or isinstance(cause, Exception)):
        raise MalformedError("invalid description of an exception")
    try:
        error: Exception = kind.__new__(kind, *arguments)
        error.args = arguments
    except Exception:  # noqa: BLE001 - what matters is that something is raised
        error = RuntimeError(*arguments)
    if cause is not None or suppressed is True:
        error.__cause__ = cause
    return error


def give_attributes(error: Exception, attributes: Any) -> None:
    """Set the attributes of an exception. Raises :class:`MalformedError` if they are not allowed."""
    if type(attributes) is not dict or len(attributes) > MAX_ATTRIBUTES or not all(map(is_attribute, attributes)):
        raise MalformedError("invalid attributes of an exception")
    vars(error).update(attributes)


def is_attribute(name: Any) -> bool:
    """Return whether the attribute ``name`` may be set on an exception.

    Long names, SecureBench's own names and all names with two leading underscores except ``__notes__`` are refused.
    """
    if type(name) is not str or len(name) > _LONGEST_NAME or name.startswith("_securebench"):
        return False
    return name == "__notes__" or not name.startswith("__")


def to_raise(error: Exception) -> Exception:
    """Return what to raise for an error of the other side.

    ``StopIteration`` and ``StopAsyncIteration`` become ``RuntimeError``. A ``StopIteration`` would end a test's
    ``for ... in map(f, cases)``, and the remaining cases would seem to have been checked.
    """
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        return RuntimeError(*error.args)
    return error


def _cause_of(error: BaseException) -> BaseException | None:
    """Return the cause of ``error``, or ``None`` if its chain of causes is endless or too long.

    The result is also ``None`` if the chain contains an error that is not an ``Exception``, such as ``SystemExit``.
    """
    found, seen = error.__cause__, [id(error)]
    while found is not None:
        if id(found) in seen or len(seen) > MAX_CAUSES or not isinstance(found, Exception):
            return None
        seen.append(id(found))
        found = found.__cause__
    return error.__cause__


def text_of(error: Exception) -> str:
    """Return ``str(error)``, shortened, or an empty string if ``str()`` fails."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - its own __str__ is at fault
        return ""
    return text[:_LONGEST_MESSAGE] if type(text) is str else ""
