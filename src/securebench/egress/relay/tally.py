"""Count and log the requests of a relay. Bodies are never logged."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

from securebench.egress.model import PROVIDER_TROUBLES, RelayReport, Trouble
from securebench.egress.relay.budget import Reservation, Spending
from securebench.money import in_usd

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.egress.relay.refusals import RelayRefusal
    from securebench.resources import JsonValue

MAX_REFUSED_LINES: Final = 1000
"""Maximum number of log lines for refused requests. Further refused requests are only counted."""

_MAX_MODELS: Final = 16
"""Maximum number of model names in a report, because a provider may send any number of them."""
_MAX_PATH: Final = 200
_NOT_PLAIN: Final = re.compile(r"[^ -~]")


@dataclass(slots=True)
class RequestEntry:
    """One request, filled in as it is handled. ``sent`` and ``received`` are body bytes to and from the provider."""

    method: str = ""
    path: str = ""
    started: float = field(default_factory=monotonic)
    is_model: bool = False
    status: int = 0
    refusal: RelayRefusal | None = None
    answer: int = 0
    """The HTTP status from the provider; ``status`` is the HTTP status sent to the agent."""
    sent: int = 0
    received: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    micro_usd: int | None = None
    """The price of the answer in millionths of a US dollar; ``None`` without an answer or without known prices."""
    reserved: Reservation | None = None
    """What is reserved for the request; ``None`` until there is room for it in the budget."""
    chargeable: Reservation | None = None
    """The most that the provider may charge; ``None`` if it charges nothing, or if the charge is already counted."""
    is_answered: bool = False
    model: str = ""
    """The requested model, which the plan allows."""
    answering: str = ""
    """The model that answered, as named by the provider."""
    trouble: Trouble | None = None
    message: str = ""
    retry_at: float | None = None
    """The monotonic time at which the provider may be asked again, if its error response says when."""

    def note_retry_after(self, seconds: float | None) -> None:
        """Record that the provider may be asked again in ``seconds``; ``None`` if the provider sent no such time."""
        self.retry_at = None if seconds is None else monotonic() + seconds

    def line(self) -> dict[str, JsonValue]:
        """Return the log line of the request."""
        return {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": "relay",
            "method": _plain(self.method),
            "path": _plain(self.path),
            "decision": self._decision(),
            "reason": self.refusal.value if self.refusal else "",
            "status": self.status,
            "provider_status": self.answer,
            "seconds": round(monotonic() - self.started, 3),
            "bytes": self.sent + self.received,
            "tokens": self.input_tokens + self.output_tokens,
            **({} if self.micro_usd is None else {"cost_usd": in_usd(self.micro_usd)}),
            **({"unreported_usd": in_usd(self.unreported.micro_usd)} if self.unreported.micro_usd else {}),
        }

    @property
    def unreported(self) -> Reservation:
        """The most that the provider may charge beyond the tokens and the price that are already counted."""
        if self.chargeable is None:
            return Reservation(0, 0)
        tokens = self.chargeable.tokens - self.input_tokens - self.output_tokens
        return Reservation(max(0, tokens), max(0, self.chargeable.micro_usd - (self.micro_usd or 0)))

    def _decision(self) -> str:
        if self.refusal is not None:
            return "denied"
        is_served = self.answer or 0 < self.status < 500  # noqa: PLR2004 - a status is its own name
        return "allowed" if is_served else "failed"


class Tally:
    """The counters of one relay. ``is_priced`` is true if its plan has prices."""

    def __init__(self, log: Callable[[dict[str, JsonValue]], None], *, is_priced: bool = False) -> None:
        self._log = log
        self._is_priced = is_priced
        self._statuses: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._models: Counter[str] = Counter()
        self._model = ""
        self._answered = 0
        self._last = RequestEntry()
        self.spent = Spending()

    def passed_on(self, entry: RequestEntry, reservation: Reservation) -> None:
        """Count a request that is about to be forwarded to the provider."""
        self.spent.requests += 1
        self.spent.bytes += entry.sent
        self.spent.reserved.append(reservation)
        entry.reserved = reservation

    def close(self, entry: RequestEntry) -> None:
        """Count a finished request and log it. After :data:`MAX_REFUSED_LINES`, refused requests are only counted."""
        self.spent.failed += entry.refusal is None and entry.trouble in PROVIDER_TROUBLES
        if entry.refusal is not None:
            self._refused[entry.refusal.value] += 1
        elif entry.answer:
            self._statuses[str(entry.answer)] += 1
        self.spent.input_tokens += entry.input_tokens
        self.spent.output_tokens += entry.output_tokens
        self.spent.micro_usd += entry.micro_usd or 0
        if entry.reserved is not None:
            self.spent.reserved.remove(entry.reserved)
        self.spent.unreported_tokens += entry.unreported.tokens
        self.spent.unreported_micro_usd += entry.unreported.micro_usd
        self._answered += entry.is_answered
        if entry.is_answered:
            self._model = entry.model
            if entry.answering and (entry.answering in self._models or len(self._models) < _MAX_MODELS):
                self._models[entry.answering] += 1
        if self._is_outcome(entry):
            self._last = entry
        if entry.refusal is None or self._refused.total() <= MAX_REFUSED_LINES:
            self._log(entry.line())

    def report(self) -> RelayReport:
        """Return the counts so far."""
        retry_at = self._last.retry_at
        return RelayReport(
            requests=self.spent.requests,
            forgiven=self.spent.failed,
            model=self._model,
            models=dict(self._models),
            retry_after=None if retry_at is None else max(0.0, retry_at - monotonic()),
            answered=self._answered,
            statuses=dict(self._statuses),
            refused=dict(self._refused),
            input_tokens=self.spent.input_tokens,
            output_tokens=self.spent.output_tokens,
            bytes=self.spent.bytes,
            micro_usd=self.spent.micro_usd if self._is_priced else None,
            unreported_tokens=self.spent.unreported_tokens,
            unreported_micro_usd=self.spent.unreported_micro_usd,
            trouble=self._last.trouble,
            message=self._last.message,
        )

    def _is_outcome(self, entry: RequestEntry) -> bool:
        """Return whether ``entry`` replaces the outcome to report. A used-up budget is never replaced."""
        if self._last.trouble is Trouble.OUT_OF_BUDGET or not entry.is_model:
            return False
        return entry.is_answered or entry.trouble is not None


def _plain(text: str) -> str:
    return _NOT_PLAIN.sub("?", text[:_MAX_PATH])
