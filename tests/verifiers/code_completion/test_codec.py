"""Tests of the codec: plain data arrives unchanged, and forged messages are refused."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from itertools import chain, islice
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from securebench.verifiers.code_completion.guest import codec
from securebench.verifiers.code_completion.guest.codec import Exchange
from securebench.verifiers.code_completion.guest.plain import MalformedError, UncrossableError, ValueTooLargeError


class _Nothing:
    """An implementation of ``Ends`` that allows only plain data."""

    def export(self, value: Any, exchange: Exchange) -> list[Any]:
        """Raise :class:`UncrossableError`."""
        raise UncrossableError(type(value).__name__)

    def adopt(self, tag: list[Any]) -> Any:
        """Raise :class:`MalformedError`."""
        raise MalformedError(tag)

    def shape_of(self, value: Any) -> tuple[str, list[Any]] | None:
        """Return ``None``: no value gets a stand-in."""

    def begin(self, kind: str, contents: list[Any], exchange: Exchange) -> Any:
        """Return ``None``: no stand-in is made."""

    def finish(self, kind: str, contents: list[Any], exchange: Exchange) -> Any:
        """Raise :class:`MalformedError`."""
        raise MalformedError(kind)

    def fill(self, kind: str, stand_in: Any, contents: list[Any], exchange: Exchange) -> None:
        """Raise :class:`MalformedError`."""
        raise MalformedError(kind)

    def received_class(self, found: type) -> type:
        """Return the class unchanged."""
        return found

    def not_a_number(self) -> float:
        """Return an ordinary NaN."""
        return math.nan


ENDS = _Nothing()


def _over_the_wire(message: dict[str, Any]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(json.dumps(message, allow_nan=False))
    return parsed


def _cross(value: Any) -> Any:
    return Exchange(ENDS).unpack(_over_the_wire(Exchange(ENDS).pack(value)))


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.text(st.characters(categories=["Cs"]), max_size=3)
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.datetimes().map(lambda x: x.replace(fold=0))
    | st.timedeltas()
)
_hashable = st.recursive(
    _scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
_values = st.recursive(
    _hashable,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(_hashable, inner, max_size=4)
        | st.sets(_hashable, max_size=4)
    ),
    max_leaves=20,
)


def _exact(value: Any) -> str:
    """Return a text that is the same only for equal values of the same exact types: 1, True and 1.0 differ."""
    if isinstance(value, (set, frozenset)):
        parts = sorted(map(_exact, value))
    elif isinstance(value, dict):
        parts = [_exact(part) for pair in value.items() for part in pair]
    elif isinstance(value, (list, tuple)):
        parts = [_exact(part) for part in value]
    else:
        parts = [repr(value)]
    return f"{type(value).__name__}({', '.join(parts)})"


@given(_values)
def test_plain_data_crosses_exactly(value: Any) -> None:
    """Plain data arrives with the same exact types and values."""
    assert _exact(_cross(value)) == _exact(value)


def test_aliases_and_cycles_arrive_as_such() -> None:
    """A list in several places arrives as one object, and a list may contain itself."""
    shared: list[Any] = [1]
    shared.append(shared)
    first, second, mapping = _cross([shared, (shared,), {"x": shared}])
    assert first is second[0] is mapping["x"] is first[1]


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, 2], lambda x: x.reverse()),
        ([1], lambda x: x.__setitem__(0, True)),
        ({1: 2}, lambda x: x.update({1: 3, (4,): [5]})),
        ({1, 2}, lambda x: x.discard(1)),
        (bytearray(b"ab"), lambda x: x.extend(b"c")),
        ([[1], [2]], lambda x: x.append(x.pop(0))),
        ({"a": [1]}, lambda x: x["a"].append(x)),
    ],
    ids=["list", "1 becomes True", "dict", "set", "bytearray", "moved lists", "a new cycle"],
)
def test_changes_come_back_into_the_very_objects(value: Any, change: Any) -> None:
    """If the receiver changes a container, the answer makes the same change in the sender's object."""
    sender, receiver = Exchange(ENDS), Exchange(ENDS)
    arrived = receiver.unpack(_over_the_wire(sender.pack(value)))
    change(arrived)
    sender.unpack(_over_the_wire(receiver.pack(None)))
    assert repr(value) == repr(arrived)


def test_what_has_not_changed_is_not_sent_back() -> None:
    """An answer contains only containers that have changed. A list with NaN in it is not mistaken for changed."""
    receiver = Exchange(ENDS)
    first, _ = receiver.unpack(Exchange(ENDS).pack([[1], [2, math.nan]]))
    first.append(3)
    assert receiver.pack(None)["heap"] == [[1, "list", [1, 3]]]


class _Int(int):
    pass


class _List(list[Any]):
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize(
    "value", [_Int(1), _List(), [_List()], {"k": _Int(2)}, object(), print], ids=lambda value: type(value).__name__
)
def test_nothing_else_crosses(value: Any) -> None:
    """B04: Only exact plain types cross. Subclasses of plain types, other objects and functions are refused."""
    with pytest.raises(UncrossableError):
        _cross(value)


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        _nested(codec.MAX_DEPTH + 1),
        [0] * codec.MAX_NODES,
        ["x" * 1024 * 1024] * 20,
        [b"x" * 1024 * 1024] * 20,
        1 << (codec.MAX_CHARACTERS * 5),
    ],
    ids=["deep", "many", "one text often", "one bytes often", "a huge number"],
)
def test_there_are_caps(value: Any) -> None:
    """B17: a value that exceeds a limit of the codec is refused when it is packed."""
    with pytest.raises(ValueTooLargeError):
        Exchange(ENDS).pack(value)


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
_tags = st.sampled_from(
    ["ref", "int", "float", "complex", "str", "bytes", "range", "iterator", "type", "stdlib", "mine", "yours", "exec"]
)
_kinds = st.sampled_from(
    ["list", "tuple", "dict", "set", "frozenset", "bytearray", "dict_items", "defaultdict:int", "x"]
)
_tagged = st.builds(lambda tag, parts: [tag, *parts], _tags, st.lists(_json, max_size=3)) | _json
_entries = st.tuples(st.integers(0, 4), _kinds, st.lists(_tagged, max_size=4)).map(list) | _json


_PLAIN = {type(None), bool, int, float, complex, str, bytes, bytearray, range}
_CONTAINERS = {list, tuple, set, frozenset, type({}.items())}


def _not_plain(value: Any) -> list[Any]:
    """Return the objects in ``value`` that are neither plain data nor containers or iterators of plain data."""
    found, pending = [], [value]
    seen: dict[int, Any] = {}
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if type(each) in {dict, defaultdict}:
            pending.extend(chain(each.keys(), each.values()))
        elif type(each) in _CONTAINERS or type(each).__name__.endswith("iterator"):
            pending.extend(islice(each, 99))
        elif type(each) not in _PLAIN:
            found.append(each)
    return found


@example(["exec", "1"], [])
@given(_tagged, st.lists(_entries, max_size=4) | _json)
def test_a_forged_message_is_malformed_or_plain(value: Any, heap: Any) -> None:
    """A15: decoding a forged message raises only ``MalformedError``, or it returns and changes only plain data."""
    for message in ({"value": value, "heap": heap}, {"value": value, "heap": []}, {"value": ["ref", 0], "heap": heap}):
        mine = [1, {2: 3}]
        exchange = Exchange(ENDS)
        exchange.pack(mine)
        try:
            found = exchange.unpack(message)
        except MalformedError:
            continue
        assert _not_plain([found, mine]) == []


@pytest.mark.parametrize(
    "value",
    [
        ["type", "", "SystemExit"],
        ["type", "", "KeyboardInterrupt"],
        ["type", "", "print"],
        ["type", "os", "system"],
        ["type", "json.decoder", "scanner"],
        ["type", "decimal", "Decimal"],
        ["type", "unittest.case", "SkipTest"],
        ["stdlib", "os", "system", ["true"]],
        ["float", "nan"],
        math.nan,
        ["stdlib", "fractions", "gcd", [1, 2]],
        ["mine", 1],
        ["yours", 0],
        ["ref", 1],
        ["ref", []],
        [],
        [[]],
        {},
        {"__class__": "os.system"},
    ],
    ids=repr,
)
def test_no_tag_reaches_further_than_the_codec_does(value: Any) -> None:
    """A20: A message is refused if its tag is invalid, or if the tag names a function or class that is not allowed."""
    with pytest.raises(MalformedError):
        Exchange(ENDS).unpack({"value": value, "heap": []})


@pytest.mark.parametrize(
    "heap",
    [
        [[0, "dict", []]],
        [[1, "list", [1]]],
        [[5, "tuple", [["ref", 6]]], [6, "tuple", []]],
        [[5, "set", [["ref", 6]]], [6, "list", []]],
        [[5, "dict", [["ref", 6], 1]], [6, "dict", []]],
        [[5, "unknown", []]],
        [[5, "list"]],
        "x",
        None,
    ],
    ids=repr,
)
def test_a_change_must_fit_what_it_changes(heap: Any) -> None:
    """A15: An invalid heap, which is the list of containers in a message, is refused.

    For example, a heap must not change a tuple or the kind of a container, or put a list into a set.
    """
    exchange = Exchange(ENDS)
    original = [("a",)]
    exchange.pack(original)
    with pytest.raises(MalformedError):
        exchange.unpack({"value": None, "heap": heap})
    assert original == [("a",)]
