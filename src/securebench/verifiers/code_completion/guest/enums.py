"""The tests' side: makes copies of the candidate's enumerations, with the same names and values."""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.names import is_class_name
from securebench.verifiers.code_completion.guest.plain import KNOWN_TYPES, MalformedError
from securebench.verifiers.code_completion.guest.shapes import FROZEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from securebench.verifiers.code_completion.guest.remote import Candidate


def _member_text(peer: Candidate, number: int) -> Any:
    return lambda self: peer.ask_text(number, "str", self._name_)


def make_enum(peer: Candidate, parts: list[Any]) -> Any:  # noqa: C901 - two classes are defined in it
    """Return a copy of an enumeration of the candidate. Raises :class:`MalformedError`."""
    import enum

    number, name, home, mixin, has_text, *members = parts
    base: Any = getattr(enum, home, None) if home in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag") else None
    if base is None or type(number) is not int or (mixin and mixin not in FROZEN) or len(members) % 2:
        raise MalformedError("invalid description of an enumeration")
    pairs = list(zip(members[::2], members[1::2]))
    if not all(is_class_name(each) and not each.startswith("_") and each != "mro" for each, _ in pairs):
        raise MalformedError("invalid name of a member")

    class RemoteEnumType(type(base)):  # type: ignore[misc]  # the class of the standard library's enumerations
        def __call__(cls, *arguments: Any, **named: Any) -> Any:
            try:
                return super().__call__(*arguments, **named)
            except ValueError:
                if "_securebench_number" not in vars(cls):
                    raise
            return peer.request("call", number, (arguments, named))

        def __getattr__(cls, attribute: str) -> Any:
            if attribute.startswith("_") or "_securebench_number" not in vars(cls):
                raise AttributeError(attribute)
            return peer.request("get", number, attribute)

    class RemoteEnum(base, metaclass=RemoteEnumType):  # type: ignore[misc]
        def __getattr__(self, attribute: str) -> Any:
            if attribute.startswith("_"):
                raise AttributeError(attribute)
            return peer.request("member", number, (self._name_, attribute))

    if has_text is True:
        setattr(RemoteEnum, "__str__", _member_text(peer, number))  # noqa: B010 - mypy treats a method as a constant
    shown = name if is_class_name(name) else "Candidate"
    made: Any = RemoteEnum(shown, pairs, type=KNOWN_TYPES[mixin] if mixin else None) if pairs else RemoteEnum
    made._securebench_number = number
    made.__module__ = "candidate"
    return made
