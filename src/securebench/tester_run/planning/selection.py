"""Select the tasks of a run."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError, Problem
from securebench.strict_input.faults import shown, similar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from securebench.tasks import SecureBenchTask
    from securebench.tester_config import TaskSelection
    from securebench.tester_run.options import RunOptions

_NOUNS: Final = {"task": "id", "tag": "tag", "family": "family"}
_EXAMPLES: Final = 5


def selection_of(configured: TaskSelection, options: RunOptions) -> TaskSelection:
    """Return the configured selection. Values that the user gave for this run replace the configured ones."""
    given = {name: getattr(options, name) for name in configured.__dataclass_fields__}
    return replace(configured, **{name: value for name, value in given.items() if value not in (None, ())})


def select_tasks(tasks: Sequence[SecureBenchTask], selection: TaskSelection) -> tuple[SecureBenchTask, ...]:
    """Return the selected tasks.

    Raises :class:`ConfigError` (``selection-empty``) if a value matches no task of the pack (the hint then suggests
    other values), or if no task matches all criteria.
    """
    if problems := list(_unmatched(tasks, selection)):
        raise ConfigError(problems=problems)
    selected = [task for task in tasks if _is_selected(task, selection)]
    if not selected:
        raise ConfigError(
            "the selection is empty: no task matches all criteria",
            code="selection-empty",
            hint="each criterion alone matches some tasks of the pack: leave out or change a criterion",
        )
    if selection.shuffle is not None:
        selected.sort(key=lambda task: _shuffled(selection.shuffle, task.id))
    return tuple(selected[: selection.limit])


def _is_selected(task: SecureBenchTask, selection: TaskSelection) -> bool:
    return all(
        any(_matches(name, value, criterion) for value in values for name in _names(task, criterion))
        for criterion in _NOUNS
        if (values := getattr(selection, criterion))
    )


def _names(task: SecureBenchTask, criterion: str) -> tuple[str, ...]:
    """Return the names of a task that are compared with the values of ``criterion``."""
    return {"task": (task.id,), "tag": task.tags, "family": (task.task_type,)}[criterion]


def _matches(name: str, value: str, criterion: str) -> bool:
    # An id may contain brackets, which would be a set of characters in a pattern.
    return name == value or (criterion == "task" and fnmatchcase(name, value))


def _unmatched(tasks: Sequence[SecureBenchTask], selection: TaskSelection) -> Iterator[Problem]:
    """Yield a problem for each value that matches no task: it is probably misspelled."""
    for criterion, noun in _NOUNS.items():
        values = getattr(selection, criterion)
        known = {name for task in tasks for name in _names(task, criterion)} if values else set()
        for value in values:
            if not any(_matches(name, value, criterion) for name in known):
                near = similar(value.strip("*?"), known) or sorted(known)[:_EXAMPLES]
                hint = f"for example: {', '.join(map(shown, near))}" if near else f"no task of the pack has any {noun}"
                yield Problem("selection-empty", f"no task of the pack has the {noun} {shown(value)}", hint=hint)


def _shuffled(seed: int | None, task_id: str) -> tuple[bytes, str]:
    """Return a sort key. Unlike with a seeded ``random.shuffle``, the order is the same in every version of Python."""
    return hashlib.sha256(f"{seed}:{task_id}".encode("utf-8", "surrogatepass")).digest(), task_id
