"""The tests' side: stand-ins for the candidate's classes and their objects.

Each class of the candidate has a class here with its name and its bases, so that ``isinstance``, ``issubclass``,
``type`` and ``except`` are decided here. All methods of these classes are ours: comparisons compare plain data that has
crossed, other operators ask the candidate, for classes that the tests name, and return what crosses.
"""

from __future__ import annotations

from securebench.verifiers.code_completion.guest.names import is_class_name
from securebench.verifiers.code_completion.guest.operators import OPERATORS
from securebench.verifiers.code_completion.guest.plain import KNOWN_TYPES, MalformedError
from securebench.verifiers.code_completion.guest.remote import (
    READABLE_DUNDERS,
    Remote,
    RemoteIterator,
    get_attribute,
)
from securebench.verifiers.code_completion.guest.shapes import CONTAINERS, FROZEN, MAPPINGS, read_signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from securebench.verifiers.code_completion.guest.remote import Candidate

_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")
_COMPARISONS = ("__eq__", "__ne__", "__hash__", *_ORDER)
_CHANGES = frozenset({"__setitem__", "__delitem__", *(name for name in OPERATORS if name.startswith("__i"))}) - {
    "__iter__",
    "__int__",
    "__index__",
    "__invert__",
}
"""Operators that change a container: the candidate's own is changed, and its contents are asked for again."""
_NEVER_FORWARDED = frozenset(
    {"__eq__", *_ORDER, "__str__", "__repr__", "__exit__", "__next__", "__aiter__", "__anext__"}
)
_LONGEST_NAME = 200
_MAX_NAMES = 1000


class RemoteType(type):
    """The class of these classes: calling one asks the candidate for a new object, as do attributes of the class."""

    def __new__(cls, _name: str, bases: tuple[type, ...], _namespace: dict[str, Any], **_: Any) -> Any:
        """Refuse a subclass that the tests define: the candidate's side could not make its objects."""
        known: Any = next(base for base in bases if isinstance(base, RemoteType))
        raise known._securebench_peer.notes.unsupported("subclass")

    def __call__(cls: Any, *positional: Any, **named: Any) -> Any:
        """Ask for a new object. An exception is made here: it is data."""
        if issubclass(cls, BaseException):
            return type.__call__(cls, *positional, **named)
        peer = cls._securebench_peer
        turns = peer.turns
        made = peer.request("call", cls._securebench_number, (positional, named))
        check_constructed(cls, made, positional, named)
        if cls._securebench_fields:
            peer.turns = turns  # to make an expected value is no occasion for other objects to change
        return made

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_securebench") or (name.startswith("__") and name not in READABLE_DUNDERS):
            raise AttributeError(f"{name} of a candidate's class is not forwarded to the tests")
        return get_attribute(cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name.startswith("__"):
            raise AttributeError(f"{name} of a candidate's class cannot be set by the tests")
        cls._securebench_peer.request("set", cls._securebench_number, (name, value))

    def __getitem__(cls, _: Any) -> RemoteType:
        """Return the class itself: its type arguments change nothing."""
        return cls

    @property
    def __doc__(cls) -> Any:  # type: ignore[override]
        return cls._securebench_peer.request("get", cls._securebench_number, "__doc__")

    @property
    def __signature__(cls) -> Any:
        return read_signature(cls._securebench_peer.request("signature", cls._securebench_number))


def make_class(peer: Candidate, parts: list[Any]) -> type:
    """Return the class for one of the candidate's. Raises :class:`MalformedError` or ``TypeError``."""
    number, name, family, trait, *texts = parts[:8]
    bases = parts[8:]
    if type(number) is not int or not all(type(text) is str for text in (name, family, trait, *texts)):
        raise MalformedError("not a class")
    operators, fields, flags, names = ([part for part in text.split(",") if part] for text in texts)
    if len(operators + fields + flags + names) > _MAX_NAMES or not all(isinstance(base, type) for base in bases):
        raise MalformedError("not a class")
    if any(each.startswith("__") for each in (*fields, *names)):
        raise MalformedError("an operator is no field")
    namespace: dict[str, Any] = {
        "__module__": "candidate",
        "__doc__": property(_doc),
        "_securebench_peer": peer,
        "_securebench_number": number,
        "_securebench_family": family,
        "_securebench_fields": tuple(fields),
        "_securebench_flags": frozenset(flags),
    }
    own = {"__iter__"} if trait == "iterator" else set()
    for operator in OPERATORS.intersection(operators) - _NEVER_FORWARDED - own:
        namespace[operator] = _forwarded(operator)
    if "__exit__" in operators:
        namespace["__exit__"] = _exit
    if family == "error":
        roots = tuple(base for base in bases if issubclass(base, Exception))
        return _class(name, roots or (Exception,), {**namespace, **_ERROR_METHODS})
    if family in FROZEN or family in CONTAINERS:
        return _plain_class(name, family, bases, namespace, names)
    if family != "object":
        raise MalformedError("no such family")
    namespace.update(_object_methods(operators, flags))
    root = RemoteIterator if trait == "iterator" else Remote
    return _class(name, _with_root([base for base in bases if issubclass(base, Remote)], root), namespace)


def _class(name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
    shown = name if is_class_name(name) else "Candidate"
    return type.__new__(RemoteType, shown, bases, namespace)


def _with_root(bases: list[type], root: type) -> tuple[type, ...]:
    """Return the bases, with ``root`` after them where none of them has it yet."""
    return tuple(bases) if any(issubclass(base, root) for base in bases) else (*bases, root)


def _doc(self: Any) -> Any:
    return self._securebench_peer.request("get", self._securebench_number, "__doc__")


# Operators.


def name_class(cls: type) -> None:
    """Note that the tests name a class: they expect its objects to behave as the candidate says."""
    type.__setattr__(cls, "_securebench_is_named", True)


def is_named(cls: type) -> bool:
    """Return whether the tests name a class or one of its bases."""
    return any("_securebench_is_named" in vars(each) for each in cls.__mro__)


def _forwarded(name: str) -> Any:
    def operate(self: Any, *arguments: Any) -> Any:
        if not is_named(type(self)):
            raise self._securebench_peer.notes.unsupported("operator")
        return self._securebench_peer.operate(self._securebench_number, name, arguments)

    return operate


def _exit(self: Any, kind: Any, error: Any, _: Any) -> bool:
    """End a ``with`` block. No failed assertion, and nothing but an ordinary error, is swallowed by a candidate."""
    peer, number = self._securebench_peer, self._securebench_number
    if not is_named(type(self)):
        raise peer.notes.unsupported("operator")
    ordinary = isinstance(error, Exception)
    done = peer.request("exit", number, error if ordinary else None)
    return done is True and ordinary and not issubclass(kind, (AssertionError, NameError))


def _object_methods(operators: list[str], flags: list[str]) -> dict[str, Any]:
    """Return the comparisons of a class without plain data of its own."""
    methods: dict[str, Any] = {"__dataclass_fields__": _DataclassFields()} if "dataclass" in flags else {}
    if "__len__" in operators and "__bool__" not in operators:
        methods["__bool__"] = _has_items
    if "__iter__" in operators and "__contains__" not in operators:
        methods["__contains__"] = lambda self, wanted: any(each is wanted or each == wanted for each in self)
    if "eq" in flags:
        methods.update(__eq__=_fields_equal, __hash__=_fields_hash if "frozen" in flags else None)
    elif "__eq__" in operators:
        methods.update(__eq__=_own_equal, __hash__=object.__hash__)
    if "order" in flags:
        methods.update({name: _fields_ordered(name) for name in _ORDER})
    else:
        methods.update({name: _refused for name in _ORDER if name in operators})
    return methods


def _has_items(self: Any) -> bool:
    return len(self) != 0


def _refused(self: Any, *_: Any) -> Any:
    raise self._securebench_peer.notes.unsupported("operator")


def _own_equal(self: Any, other: Any) -> Any:
    """Compare objects of a class that defines ``__eq__``: that would be the candidate's word, and is not asked for."""
    if self is other:
        return True
    if isinstance(other, Remote):
        raise self._securebench_peer.notes.unsupported("equality")
    self._securebench_peer.notes.hint = self._securebench_peer.notes.hint or "equality"
    return NotImplemented


# Dataclasses.


def fields_of(subject: Any) -> list[Any]:
    """Return the values of the fields of a dataclass.

    They are those that came with the object, for as long as nothing was asked of the candidate, and those that the
    tests have made it of for as long as the candidate was not given it. Then it is asked for them.
    """
    state = subject_state(subject)
    if state.get("_securebench_is_doubtful"):
        raise subject._securebench_peer.notes.unsupported("constructor")
    if state.get("_securebench_is_anchored") or state.get("_securebench_turns") == subject._securebench_peer.turns:
        values = state["_securebench_values"]
    else:
        values = subject._securebench_peer.request("fields", subject._securebench_number)
    kind = type(subject)
    if type(values) is not list or len(values) != len(kind._securebench_fields):
        raise subject._securebench_peer.notes.unsupported("equality")
    return [
        value for name, value in zip(kind._securebench_fields, values) if f"compare:{name}" in kind._securebench_flags
    ]


def give_state(stand_in: Any, number: int) -> Any:
    """Return a new stand-in, with its number."""
    object.__setattr__(stand_in, "_securebench_number", number)
    object.__setattr__(stand_in, "_securebench_state", {})
    return stand_in


def remember_fields(stand_in: Any, values: Any) -> None:
    """Keep the values that the fields of a dataclass have now."""
    state = subject_state(stand_in)
    state.update(_securebench_values=values, _securebench_turns=stand_in._securebench_peer.turns)


def take_anchor(value: Any) -> None:
    """Note that the candidate is given one of its objects: from then on its fields are what it says."""
    if isinstance(type(value), RemoteType) and not isinstance(value, (tuple, BaseException)):
        subject_state(value).pop("_securebench_is_anchored", None)


def subject_state(subject: Any) -> dict[str, Any]:
    """Return what this side keeps of a stand-in, by our own names."""
    state: dict[str, Any] = object.__getattribute__(subject, "_securebench_state")
    return state


def _fields_equal(self: Any, other: Any) -> Any:
    if self is other:
        return True
    return tuple(fields_of(self)) == tuple(fields_of(other)) if type(self) is type(other) else NotImplemented


def _fields_hash(self: Any) -> int:
    return hash(tuple(fields_of(self)))


def _fields_ordered(name: str) -> Any:
    def compare(self: Any, other: Any) -> Any:
        if type(self) is not type(other):
            return NotImplemented
        return getattr(tuple, name)(tuple(fields_of(self)), tuple(fields_of(other)))

    return compare


class _DataclassFields:
    """What :mod:`dataclasses` asks a class or an object of it for: fields by name."""

    def __get__(self, _: Any, cls: Any) -> dict[str, Any]:
        import dataclasses

        if not all(map(is_class_name, cls._securebench_fields)):
            raise AttributeError("no fields")
        made: Any = dataclasses.make_dataclass("Fields", cls._securebench_fields)
        return dict(made.__dataclass_fields__)


def check_constructed(cls: Any, made: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    """See whether what the tests have built holds what they built it of.

    If it does, that is its value, whatever its class claims later; if not, it cannot serve as an expected value.
    """
    if type(made) is not cls:
        return
    state = subject_state(made)
    if cls._securebench_fields:
        given = [name[len("init:") :] for name in sorted_flags(cls) if name.startswith("init:")]
        given = given or list(cls._securebench_fields)
        found: list[Any] = list(made) if isinstance(made, tuple) else state.get("_securebench_values", [])
        values = dict(zip(cls._securebench_fields, found))
        wanted = {**dict(zip(given, positional)), **named}
        fits = all(name in values and _same(values[name], value) for name, value in wanted.items())
    elif cls._securebench_family in KNOWN_TYPES and cls._securebench_family != "object":
        fits = _fits_plain(cls, made, positional, named)
    else:
        return
    state["_securebench_is_anchored" if fits else "_securebench_is_doubtful"] = True


def sorted_flags(cls: Any) -> list[str]:
    """Return the flags of a class, those of fields in the order of the fields."""
    fields = cls._securebench_fields
    return sorted(cls._securebench_flags, key=lambda flag: fields.index(name) if (name := flag[5:]) in fields else -1)


def _fits_plain(cls: Any, made: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> bool:
    plain: Any = KNOWN_TYPES[cls._securebench_family]
    try:
        return bool(plain.__eq__(made, plain(*positional, **named)))
    except Exception:  # noqa: BLE001 - arguments of its own
        return False


def _same(found: Any, given: Any) -> bool:
    return found is given or (type(found) is type(given) and bool(found == given))


# Subclasses of plain types.


def _plain_class(name: str, base: str, bases: list[type], namespace: dict[str, Any], names: list[str]) -> type:
    """Return a subclass of a plain type: its data is here, what the candidate defines beyond that is asked for."""
    plain: Any = KNOWN_TYPES[base]
    own = dict(namespace)
    for operator in OPERATORS.intersection(dir(plain)) - set(own):
        own[operator] = getattr(plain, operator)
    for comparison in _COMPARISONS:
        own[comparison] = _plain_comparison(plain, comparison)
    if plain.__hash__ is None:
        own["__hash__"] = None
    own.update(__str__=Remote.__str__, __repr__=Remote.__repr__)
    methods = set(names)
    if base in CONTAINERS:
        methods |= {method for method in dir(plain) if not method.startswith("__")}
        for operator in _CHANGES.intersection(dir(plain)):
            own[operator] = _changing(operator)
    for method in methods:
        if not method.startswith("_securebench"):
            own[method] = _Asked(method)
    if base == "tuple":
        own.update({field: _item(index) for index, field in enumerate(namespace["_securebench_fields"])})
    own.update(__getattr__=Remote.__getattr__, __setattr__=Remote.__setattr__)
    if not hasattr(plain, "__bool__") and "__bool__" not in own:
        own["__bool__"] = lambda self: plain.__len__(self) != 0
    usable = [each for each in bases if isinstance(each, RemoteType) and not issubclass(each, Exception)]
    return _class(name, _with_root(usable, plain), own)


def _plain_comparison(plain: Any, name: str) -> Any:
    compare = getattr(plain, name)

    def operate(self: Any, *other: Any) -> Any:
        both = [each for each in (self, *other) if isinstance(type(each), RemoteType)]
        if len(both) > 1 and any(subject_state(each).get("_securebench_is_doubtful") for each in both):
            raise self._securebench_peer.notes.unsupported("constructor")
        return compare(self, *other)

    return operate


def _changing(name: str) -> Any:
    def operate(self: Any, *arguments: Any) -> Any:
        done = self._securebench_peer.operate(self._securebench_number, name, arguments)
        return self if name.startswith("__i") and done is not NotImplemented else done

    return operate


class _Asked:
    """An attribute of the candidate's class, asked of the object, or of the class where there is none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, stand_in: Any, cls: Any) -> Any:
        subject = cls if stand_in is None else stand_in
        return cls._securebench_peer.request("get", subject._securebench_number, self._name)


def _item(index: int) -> property:
    return property(lambda self: tuple.__getitem__(self, index))


def make_frozen(cls: Any, value: Any) -> Any:
    """Return an object of a subclass of a plain type that cannot change. Raises :class:`MalformedError`."""
    plain: Any = KNOWN_TYPES[cls._securebench_family]
    if type(value) is not plain or cls._securebench_family not in FROZEN:
        raise MalformedError("not its plain value")
    if plain is tuple and len(value) < len(cls._securebench_fields):
        raise MalformedError("too few fields")
    return plain.__new__(cls, value)


def refill(stand_in: Any, parts: Any) -> None:
    """Give a container of the candidate's class its contents. Raises :class:`MalformedError` or another error."""
    base = type(stand_in)._securebench_family
    plain: Any = KNOWN_TYPES[base]
    if type(parts) is not list:
        raise MalformedError("not contents")
    plain.clear(stand_in)
    if base in MAPPINGS:
        for key, value in zip(parts[::2], parts[1::2]):
            plain.__setitem__(stand_in, key, value)
    elif base == "set":
        plain.update(stand_in, parts)
    else:
        plain.extend(stand_in, parts)


def make_empty(cls: Any) -> Any:
    """Return a stand-in of a class, without its data."""
    if issubclass(cls, BaseException):
        raise MalformedError("an exception is no object")
    plain: Any = KNOWN_TYPES.get(cls._securebench_family, object)
    if cls._securebench_family in FROZEN:
        raise MalformedError("not a container")
    return plain.__new__(cls)


def _ask_error(self: Any, name: str) -> Any:
    if name.startswith(("__", "_securebench")):
        raise AttributeError(name)
    return self._securebench_peer.request("get", self._securebench_own_number, name)


def _error_text(self: Any) -> str:
    number = vars(self).get("_securebench_own_number")
    return Exception.__str__(self) if number is None else self._securebench_peer.ask_text(number, "str")


_ERROR_METHODS = {"__getattr__": _ask_error, "__str__": _error_text}


# Enumerations.


def _member_text(peer: Candidate, number: int) -> Any:
    return lambda self: peer.ask_text(number, "str", self._name_)


def make_enum(peer: Candidate, parts: list[Any]) -> Any:  # noqa: C901 - two classes are defined in it
    """Return an enumeration with the names and values of the candidate's. Raises :class:`MalformedError`."""
    import enum

    number, name, home, mixin, has_text, *members = parts
    base: Any = getattr(enum, home, None) if home in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag") else None
    if base is None or type(number) is not int or (mixin and mixin not in FROZEN) or len(members) % 2:
        raise MalformedError("not an enumeration")
    pairs = list(zip(members[::2], members[1::2]))
    if not all(is_class_name(each) and not each.startswith("_") and each != "mro" for each, _ in pairs):
        raise MalformedError("not a member")

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
        setattr(RemoteEnum, "__str__", _member_text(peer, number))  # noqa: B010 - mypy takes a method for a constant
    shown = name if is_class_name(name) else "Candidate"
    made: Any = RemoteEnum(shown, pairs, type=KNOWN_TYPES[mixin] if mixin else None) if pairs else RemoteEnum
    made._securebench_number = number
    made.__module__ = "candidate"
    return made
