"""The gateway: the process outside all sandboxes that their doors lead to. One a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from securebench.network.model import EgressPlan, EgressReport
    from securebench.resources import JsonValue
    from securebench.sandboxes.doors import Door


class Session:
    """One task's way out. A context manager.

    ``doors`` belong into the spec of its sandbox, ``environment`` into its environment: the variables of the proxy,
    if there is one. ``relay_url`` is where its provider is found from inside, with no slash at its end, or empty.
    """

    doors: tuple[Door, ...]
    environment: Mapping[str, str]
    relay_url: str

    def on_death(self, call: Callable[[], None]) -> None:
        """Call it, from another thread, if the gateway dies while this session is open; at once if it has."""
        raise AssertionError

    def close(self) -> EgressReport:
        """End it, with all its connections, and return what became of it. Idempotent.

        Raises :class:`EgressError` (``egress-failed``) if the gateway died meanwhile.
        """
        raise AssertionError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise AssertionError


class Gateway:
    """The gateway of a run. Its process starts with the first session, and anew after a death. Thread safe.

    ``log`` is given each decision as it is made: a flat JSON object, for a line of ``egress.jsonl``.
    """

    def __init__(self, log: Callable[[Mapping[str, JsonValue]], None]) -> None:
        self._log = log

    def open(self, task_id: str, plan: EgressPlan) -> Session:
        """Open a way out for a task. Raises :class:`EgressError`."""
        raise AssertionError

    def close(self) -> None:
        """End the process and whatever it serves. Idempotent."""
