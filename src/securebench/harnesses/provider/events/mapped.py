"""The events of a program whose declaration says how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from securebench.harnesses.provider.events.stream import MAX_ITEMS, number_of, text_of
from securebench.harnesses.provider.self_report import MAX_TEXT, EventParser

if TYPE_CHECKING:
    from securebench.agents.declaration import EventRule
    from securebench.harnesses.provider.events.stream import Event

_FIELDS = {"thought": "text", "command": "command", "result": "output"}
"""The field of a trajectory step that gets the text, by kind of event."""

_ANSWERS = frozenset({"message", "thought", "command"})
"""The kinds of events that mean that a model answered."""


class MappedEventParser(EventParser):
    """Parses events by rules. Each rule that matches an event applies, in order."""

    def __init__(self, rules: tuple[EventRule, ...]) -> None:
        super().__init__()
        self._rules = rules

    def take(self, event: Event) -> None:
        """See :meth:`EventParser.take`."""
        for rule in self._rules:
            if all(wanted in values_at(event, path) for path, wanted in rule.match.items()):
                self._apply(rule, event)

    def _apply(self, rule: EventRule, event: Event) -> None:
        text = "" if rule.text is None else text_at(event, rule.text)
        if rule.kind in _ANSWERS:
            self.self_report.answer()
        match rule.kind:
            case "message":
                self._say(text)
            case "thought" | "command" | "result":
                self.trajectory.add(rule.kind, **{_FIELDS[rule.kind]: text})
            case "warning":
                self.self_report.warn(text)
                self.trajectory.add("error", text=text)
            case "error":
                self._fail(text, None)
            case "gave_up":
                self.self_report.gave_up = True
            case "refused":
                self.self_report.refused = True
            case "usage":
                self._count(rule, event)

    def _count(self, rule: EventRule, event: Event) -> None:
        counts = {name: sum(map(number_of, values_at(event, path))) for name, path in rule.counts.items()}
        self.self_report.turns = counts.pop("turns", self.self_report.turns)
        self.self_report.tokens = counts
        self.trajectory.add("usage", **counts)


def values_at(event: Event, path: str) -> list[Any]:
    """Return the values at ``path`` in ``event``.

    A path consists of keys with dots between them. ``*`` stands for each item of a list or each value of an object, and
    yields at most ``MAX_ITEMS`` values.
    """
    found: list[Any] = [event]
    for part in path.split("."):
        if part == "*":
            found = [item for value in found for item in _items(value)][:MAX_ITEMS]
        else:
            found = [value[part] for value in found if isinstance(value, dict) and part in value]
    return found


def text_at(event: Event, path: str) -> str:
    """Return the texts at a path, one per line, clipped."""
    texts = [text for value in values_at(event, path) if (text := text_of(value, MAX_TEXT))]
    return "\n".join(texts)[:MAX_TEXT]


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())[:MAX_ITEMS]
    return value[:MAX_ITEMS] if isinstance(value, list) else []
