"""``--set KEY=VALUE``: values that replace those of a tester YAML or suite file. The file itself is not changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from securebench.errors import ConfigError, Problem, SourceLocation
from securebench.strict_input.faults import Fault, Problems, name_of, shown
from securebench.strict_input.yaml_text import MAX_YAML_DEPTH, YamlSource, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.resources import JsonValue

_Place: TypeAlias = tuple[str, ...]

_EXAMPLE = "use the form --set KEY=VALUE, for example --set harness.config.model=NAME"


@dataclass(frozen=True, slots=True)
class OverriddenSource:
    """Locates faults in a tester YAML with overrides. A fault in an override is located at its ``--set`` option."""

    file: YamlSource
    overrides: Mapping[_Place, JsonValue]

    def locate(self, fault: Fault) -> SourceLocation:
        """Return the location of ``fault``. Never raises."""
        for place in self.overrides:
            # An unknown section that only this option names is a fault of the option, too.
            is_new_key = fault.at_key and fault.path not in self.file.keys
            if fault.path[: len(place)] == place or (is_new_key and place[: len(fault.path)] == fault.path):
                return SourceLocation(f"--set {name_of(place)}")
        return self.file.locate(fault)


def parse_overrides(given: Iterable[str]) -> dict[_Place, JsonValue]:
    """Return the values by key. Keys are split at their dots. Values are YAML: ``8`` is a number, ``"8"`` a text.

    Raises :class:`ConfigError` (``override-invalid``, and the codes for invalid YAML) with all problems.
    """
    found: dict[_Place, JsonValue] = {}
    problems = Problems()
    for text in given:
        key, separator, value = text.partition("=")
        place = tuple(key.split("."))
        if not separator or not all(place) or len(place) > MAX_YAML_DEPTH:
            fault = "is not KEY=VALUE" if not separator else "has a key with an empty part or too many parts"
            problems.found.append(_invalid(key, f"{shown(text)} {fault}", _EXAMPLE))
            continue
        if any(place[: len(other)] == other or other[: len(place)] == place for other in found):
            problems.found.append(
                _invalid(key, "this key, or one above or below it, is already set", "set each key once")
            )
            continue
        parsed, source, faults = parse_yaml(value, f"--set {shown(key)[1:-1]}")
        problems.extend(faults, source)
        found[place] = parsed
    problems.raise_if_any()
    return found


def with_overrides(value: Any, overrides: Mapping[_Place, JsonValue]) -> Any:
    """Return the content of a tester YAML with the overrides in it. Sections that the file lacks are added.

    Raises :class:`ConfigError` (``override-invalid``) if a key is inside something that is not an object.
    """
    for place, replacement in overrides.items():
        value = _replaced(value, place, replacement, place)
    return value


def _replaced(value: Any, rest: _Place, replacement: JsonValue, place: _Place) -> Any:
    if not rest:
        return replacement
    if not isinstance(value, dict | None):
        outer = name_of(place[: len(place) - len(rest)])
        hint = f"set {outer} as a whole" if outer else "make the file an object with keys and values"
        raise ConfigError(problems=[_invalid(".".join(place), f"{outer or 'the file'} is not an object", hint)])
    inner = (value or {}).get(rest[0])
    return {**(value or {}), rest[0]: _replaced(inner, rest[1:], replacement, place)}


def _invalid(key: str, message: str, hint: str) -> Problem:
    return Problem("override-invalid", message, SourceLocation(f"--set {shown(key)[1:-1]}"), hint)


def override_names(overrides: Mapping[_Place, JsonValue]) -> dict[str, JsonValue]:
    """Return the overrides by their keys, such as ``run.trials``. They are recorded in this form."""
    return {".".join(place): value for place, value in overrides.items()}
