"""The provider budget of one trial of a task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from securebench.money import dollars
from securebench.plurals import counted

if TYPE_CHECKING:
    from securebench.egress.model import RelayPlan
    from securebench.resources import JsonValue

_UNLIMITED_OUTPUT: Final = 131_072
"""Output tokens that are reserved for a request that sets no maximum. No common model produces more in one answer."""

_IMAGE: Final = 16_384
"""Tokens that are reserved for an image, however small its file is."""
_CONTEXT: Final = 1_000_000
"""Maximum tokens that are reserved for the media of a request. Media other than images always reserve the maximum."""
_IMAGES: Final = frozenset({"image", "image_url", "input_image"})
_OTHER_MEDIA: Final = frozenset({"document", "file", "input_audio", "input_file"})
_MIME: Final = ("mimeType", "mime_type")


def media_tokens(body: JsonValue) -> int:
    """Return the tokens to reserve for the media in a checked body. Media may have more tokens than bytes."""
    images, held = 0, [body]
    while held:
        value = held.pop()
        if isinstance(value, list):
            held.extend(value)
        elif isinstance(value, dict):
            held.extend(value.values())
            # In a schema, "type" may be the name of a field, whose value is an object.
            texts = {name: text for name, text in value.items() if isinstance(text, str)}
            mime = next((texts[name] for name in _MIME if name in texts), "") if "data" in texts else ""
            if texts.get("type") in _IMAGES or "image_url" in texts or mime.startswith("image/"):
                images += 1
            elif texts.get("type") in _OTHER_MEDIA or "file_data" in texts or mime:
                return _CONTEXT
    return min(images * _IMAGE, _CONTEXT)


@dataclass(frozen=True, slots=True)
class Reservation:
    """The most that a request may use."""

    tokens: int
    micro_usd: int

    @classmethod
    def of(cls, plan: RelayPlan, input_tokens: int, max_output_tokens: int | None) -> Self:
        """Return the reservation for at most these input and output tokens.

        A ``max_output_tokens`` of ``None`` stands for 131,072 tokens. Before the provider has counted the tokens of a
        request, ``input_tokens`` is the size of its body in bytes plus its :func:`media_tokens`: text has at most one
        token for each byte, but images and other media may have more.
        """
        output_tokens = _UNLIMITED_OUTPUT if max_output_tokens is None else max_output_tokens
        micro_usd = 0 if plan.prices is None else plan.prices.max_cost(input_tokens, output_tokens)
        return cls(input_tokens + output_tokens, micro_usd)


@dataclass(slots=True)
class Spending:
    """The part of the budget that one try has used. :class:`RelayPlan` contains what earlier tries used."""

    requests: int = 0
    # Agents retry failed requests. An outage must not use up the budget, but the retries must end.
    failed: int = 0
    """The requests that failed because of the provider. Up to ``plan.requests`` of them do not count as requests."""
    input_tokens: int = 0
    """Input tokens as counted by the provider. For an answer without a count, the relay estimates it."""
    output_tokens: int = 0
    """Output tokens as counted by the provider. For an answer without a complete count, the relay estimates it."""
    bytes: int = 0
    """The size of bodies in both directions."""
    micro_usd: int = 0
    """The price of ``input_tokens`` and ``output_tokens``, in millionths of a US dollar."""
    unreported_tokens: int = 0
    """Tokens that requests without a complete answer may have used in addition to the counts above."""
    unreported_micro_usd: int = 0
    """The cost, in millionths of a US dollar, that requests without a complete answer may have caused in addition."""
    # Without reservations, an agent could exceed the budget with many requests at once.
    reserved: list[Reservation] = field(default_factory=list)
    """The most that each request in progress may use."""

    def has_room(self, plan: RelayPlan, wanted: Reservation) -> bool:
        """Return whether a request fits into the budget together with the requests in progress.

        If no request is in progress, the result is true even if the request does not fit.
        """
        if not self.reserved:
            return True
        all_of_them = [*self.reserved, wanted]
        tokens = self._tokens(plan) + sum(one.tokens for one in all_of_them)
        money = self._money(plan) + sum(one.micro_usd for one in all_of_them)
        return tokens <= plan.tokens and (plan.micro_usd is None or money <= plan.micro_usd)

    def over(self, plan: RelayPlan) -> str:
        """Return a description of the exhausted limit of ``plan``, or an empty string if a request is possible."""
        return self._reached(plan, min(self.failed, plan.requests))

    def is_used_up(self, plan: RelayPlan) -> bool:
        """Return whether the budget would be exhausted even if all failed requests were forgiven."""
        return bool(self._reached(plan, self.failed))

    def _reached(self, plan: RelayPlan, forgiven: int) -> str:
        spent = {
            counted(plan.requests, "request"): plan.spent_requests + self.requests - forgiven >= plan.requests,
            counted(plan.tokens, "token"): self._tokens(plan) >= plan.tokens,
            counted(plan.bytes, "byte"): plan.spent_bytes + self.bytes >= plan.bytes,
        }
        if plan.micro_usd is not None:
            spent[dollars(plan.micro_usd)] = self._money(plan) >= plan.micro_usd
        return next((bound for bound, is_over in spent.items() if is_over), "")

    def _tokens(self, plan: RelayPlan) -> int:
        return plan.spent_tokens + self.input_tokens + self.output_tokens + self.unreported_tokens

    def _money(self, plan: RelayPlan) -> int:
        return plan.spent_micro_usd + self.micro_usd + self.unreported_micro_usd
