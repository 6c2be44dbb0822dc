"""The candidate's side: describes its classes and objects, so that the tests' side can make stand-ins.

=========  ===========================================================================================================
kind       contents
=========  ===========================================================================================================
class      number, name, family, trait, operators, fields, flags, names, and the base classes
enum       number, name, name of the base in ``enum``, name of the members' plain type, whether the class defines
           ``__str__``, and each member's name followed by its value
member     class, name, value: a member of an enum
frozen     number, class, value: an object whose class extends an immutable plain type
mine       number, class, and the field values of a dataclass or the contents of a container: any other object
=========  ===========================================================================================================

The family of a class is ``object``, ``error`` or the name of the plain type that the class extends. The trait is
``iterator`` or ``object``. The operators, fields, flags and names are comma-separated texts. The names are those that a
subclass of a plain type defines.
"""

from __future__ import annotations

import sys

from securebench.verifiers.code_completion.guest.operators import OPERATORS
from securebench.verifiers.code_completion.guest.plain import KNOWN_TYPES, class_tag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FROZEN: dict[str, Any] = {
    "str": str.__str__,
    "int": int.__int__,
    "float": float.__float__,
    "bytes": lambda x: bytes.__getitem__(x, slice(None)),
    "tuple": lambda x: tuple(tuple.__iter__(x)),
    "frozenset": lambda x: frozenset(frozenset.__iter__(x)),
}
"""For each immutable plain type, how to read an object of a subclass as plain data, without calling its methods."""
CONTAINERS: dict[str, Any] = {
    name: KNOWN_TYPES[name] for name in ["OrderedDict", "defaultdict", "deque", "list", "dict", "set", "bytearray"]
}
MAPPINGS = frozenset({"dict", "OrderedDict", "defaultdict"})
_MAX_NAMES = 200


def plain_base(kind: type) -> str:
    """Return the name of the plain type that a class extends, or an empty string."""
    for each in kind.__mro__:
        name = each.__name__
        if (name in FROZEN or name in CONTAINERS) and KNOWN_TYPES.get(name) is each:
            return name
    return ""


def plain_parts(value: Any, base: str) -> Any:
    """Return the data in an object whose class extends the plain type ``base``.

    For an immutable type such as ``str``, the result is an object of exactly this type. For a mutable type, the result
    is a list of the items or, for a mapping, of each key followed by its value.
    """
    if base in FROZEN:
        return FROZEN[base](value)
    plain = CONTAINERS[base]
    if base in MAPPINGS:
        return [part for pair in plain.items(value) for part in pair]
    return list(plain.__iter__(value))


def object_shape(value: Any, number: int) -> tuple[str, list[Any]]:
    """Return the kind and the contents of an object."""
    kind = type(value)
    if is_enum(kind):
        return "member", member_parts(value)
    base = plain_base(kind)
    if base in FROZEN:
        return "frozen", [number, kind, plain_parts(value, base)]
    contents = [plain_parts(value, base)] if base else []
    if hasattr(kind, "__dataclass_params__") and not base:
        contents = [field_values(value)]
    return "mine", [number, kind, *contents]


def class_shape(kind: type, number: int) -> tuple[str, list[Any]]:
    """Return the kind and the contents of a class."""
    return ("enum", enum_parts(kind, number)) if is_enum(kind) else ("class", class_parts(kind, number))


def field_values(subject: Any) -> list[Any]:
    """Return the values of an object's dataclass fields. Fields that are not set are left out."""
    return [getattr(subject, name) for name in fields_of_class(type(subject)) if hasattr(subject, name)]


def class_parts(kind: type, number: int) -> list[Any]:
    """Return the contents of a class other than an enumeration."""
    base = "error" if issubclass(kind, Exception) else plain_base(kind) or "object"
    fields, flags = _fields_of(kind, base)
    names = [] if base in ("error", "object") else _own_names(kind)
    bases = [each for each in kind.__bases__ if each is not object and not _is_of_typing(each)]
    texts = [",".join(filter(_is_text, each)) for each in (_operators_of(kind, flags), fields, flags, names)]
    return [number, _name(kind), base, _trait_of(kind), *texts, *bases]


def fields_of_class(kind: type) -> list[str]:
    """Return the names of a dataclass's fields."""
    return _fields_of(kind, "object")[0]


def _is_text(name: str) -> bool:
    return type(name) is str and "," not in name


def _is_of_typing(kind: type) -> bool:
    return kind.__module__ == "typing"


def _name(kind: type) -> str:
    name = kind.__name__
    return name if type(name) is str and name.isidentifier() else "Candidate"


def _trait_of(kind: type) -> str:
    return "iterator" if hasattr(kind, "__next__") else "object"


def _own_names(kind: type) -> list[str]:
    """Return the names, except dunder names, that a subclass of a plain type defines.

    These include the names that its bases define, if the bases come before the plain type in its MRO.
    """
    names: dict[str, None] = {}
    for each in kind.__mro__:
        if class_tag(each) or each is object:
            break
        names.update(dict.fromkeys(name for name in vars(each) if not name.startswith("__")))
    return list(names)[:_MAX_NAMES]


def _operators_of(kind: type, flags: list[str]) -> list[str]:
    """Return the operators that candidate code defines for a class.

    ``__str__`` and ``__repr__`` are always left out. Comparisons are left out if ``@dataclass`` generates them.
    """
    found: set[str] = set()
    for each in kind.__mro__:
        if each is object or class_tag(each):
            continue
        found |= OPERATORS & set(vars(each))
    generated = {"__eq__"} if "eq" in flags else set()
    generated |= {"__lt__", "__le__", "__gt__", "__ge__"} if "order" in flags else set()
    return sorted(found - generated - {"__str__", "__repr__"})


def _fields_of(kind: Any, base: str) -> tuple[list[str], list[str]]:
    """Return the names of the fields of a dataclass or named tuple, and the flags of the class."""
    if base == "tuple":
        fields = getattr(kind, "_fields", None)
        named = type(fields) is tuple and all(type(name) is str for name in fields)
        return (list(fields), ["tuple"]) if named and fields is not None else ([], [])
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is None or base != "object":
        return [], []
    fields = [each for each in kind.__dataclass_fields__.values() if str(each._field_type) == "_FIELD"]
    compared = [each.name for each in fields if each.compare]
    flags = ["dataclass"]
    flags += ["eq"] if parameters.eq and _is_generated(kind, "__eq__") else []
    flags += ["order"] if parameters.order and _is_generated(kind, "__lt__") else []
    flags += ["frozen"] if parameters.frozen else []
    flags += ["init:" + each.name for each in fields if each.init and _is_generated(kind, "__init__")]
    flags += ["compare:" + name for name in compared]
    return [each.name for each in fields], flags


def _is_generated(kind: type, name: str) -> bool:
    code = getattr(getattr(kind, name, None), "__code__", None)
    return getattr(code, "co_filename", "") == "<string>"


def is_enum(kind: type) -> bool:
    """Return whether a class is an enumeration."""
    enum = sys.modules.get("enum")
    return enum is not None and isinstance(kind, enum.EnumMeta)


def enum_parts(kind: Any, number: int) -> list[Any]:
    """Return the contents of an enumeration, including aliases."""
    enum = sys.modules["enum"]
    home: Any = next(each for each in kind.__mro__ if vars(enum).get(each.__name__) is each)
    members = [part for name, member in kind.__members__.items() for part in (name, member._value_)]
    mixin = plain_base(kind) if home is enum.Enum else ""
    has_text = any("__str__" in vars(each) for each in kind.__mro__ if each.__module__ not in ("enum", "builtins"))
    return [number, _name(kind), home.__name__, mixin, has_text, *members]


def member_parts(member: Any) -> list[Any]:
    """Return the contents of a member of an enumeration. The name is ``None`` for a combination of flags."""
    kind, name = type(member), member._name_
    return [kind, name if type(name) is str and name in kind.__members__ else None, member._value_]


def signature_of(value: Any) -> list[list[Any]]:
    """Return a row (name, kind, default, annotation) for each parameter of a callable, and a row for its result.

    Default and annotation are lists of one value, or empty lists if they are missing.
    """
    import inspect

    found = inspect.signature(value)
    rows = [
        [
            each.name,
            int(each.kind),
            *([one] if one is not each.empty else [] for one in (each.default, each.annotation)),
        ]
        for each in found.parameters.values()
    ]
    returned = found.return_annotation
    return [*rows, ["return", 0, [], [returned] if returned is not found.empty else []]]


def read_signature(rows: Any) -> Any:
    """Return the signature that the rows of :func:`signature_of` describe. Raises ``ValueError`` or ``TypeError``."""
    import inspect

    if type(rows) is not list or not rows:
        raise TypeError("the signature is not a list of rows")
    made = []
    for name, kind, default, annotation in rows:
        options = {
            key: values[0]
            for key, values in (("default", default), ("annotation", annotation))
            if type(values) is list and len(values) == 1
        }
        made.append((name, kind, options))
    parameters = [inspect.Parameter(name, inspect._ParameterKind(kind), **options) for name, kind, options in made[:-1]]
    returned = made[-1][2].get("annotation", inspect.Signature.empty)
    return inspect.Signature(parameters, return_annotation=returned)
