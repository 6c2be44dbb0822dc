"""What the Responses and the Chat Completions API have in common: paths, credentials and errors."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, Final

from securebench.egress.model import Trouble
from securebench.egress.relay.providers.base import (
    Dialect,
    Header,
    Object,
    Route,
    count,
    error_kind,
    part,
    shown,
    trouble_of,
)
from securebench.egress.relay.refusals import RefusedError, RelayRefusal
from securebench.money import CachedTokens

if TYPE_CHECKING:
    from collections.abc import Collection

    from securebench.egress.model import RelayPlan
    from securebench.resources import JsonValue

_SERVICE_TIERS: Final = (None, "auto", "default", "flex")
"""The allowed service tiers. ``priority`` is excluded because it costs more than the tester expects."""

FILTERED: Final = "content_filter"
"""The reason and the error code with which a provider reports that its safety filter stopped an answer."""

_POLICIES: Final = ("_policy", "_policy_violation")
"""Suffixes of the error codes for policy refusals: ``cyber_policy``, ``bio_policy``, ``content_policy_violation``."""

_TROUBLES: Final = {
    "insufficient_quota": Trouble.REFUSED,
    "invalid_api_key": Trouble.REFUSED,
    "rate_limit_exceeded": Trouble.RATE_LIMITED,
    "context_length_exceeded": Trouble.REJECTED,
    "data_residency_mismatch": Trouble.REFUSED,
    "invalid_prompt": Trouble.REJECTED,
}
_IMAGE: Final = "image"
"""A word in all error codes for images that the provider cannot use."""
_FIRST_ERROR: Final = 400
_UNKNOWN_MODEL: Final = ("model_not_found", "DeploymentNotFound")
"""The error codes of OpenAI and Azure for a model that they do not have."""


def check_common(body: Object, plan: RelayPlan, *, may_omit_store: bool) -> None:
    """Check the model, ``store`` and the service tier. If ``may_omit_store``, ``store`` may be missing.

    Raises :class:`RefusedError`.
    """
    store = body.get("store")
    if body.get("model") != plan.model:
        raise RefusedError(RelayRefusal.MODEL, f"the model {shown(body.get('model'))} is not the configured one")
    if store is not False and not (may_omit_store and store is None):
        raise RefusedError(RelayRefusal.FIELD, "'store' must be false: the provider must not store data")
    if body.get("service_tier") not in _SERVICE_TIERS:
        raise RefusedError(RelayRefusal.FIELD, "this service_tier is not allowed")


class OpenAIDialect(Dialect, ABC):
    """An API of OpenAI. The base URL contains the version; agents may send paths with or without it."""

    answer_headers = frozenset({b"openai-model", b"openai-processing-ms", b"openai-version"})
    answer_prefixes = (b"x-ratelimit-",)

    def authorise(self, key: str) -> Header:
        """Return the header that carries the key."""
        return (b"authorization", b"Bearer " + key.encode())

    def upstream_path(self, base: str, route: Route) -> str:
        """Return the request target. The base URL already contains the API version."""
        return base + route.path

    def check_headers(self, given: Collection[Header], plan: RelayPlan) -> None:
        """Accept all: no forwarded header enables anything that the body does not request."""

    def is_unknown_model(self, body: Object) -> bool:
        """See :meth:`Dialect.is_unknown_model`. The status 404 alone is not enough: the server may lack this API."""
        error = part(body, "error")
        message = str(error.get("message"))
        # Self-hosted servers such as vLLM do not send these codes, so their message is checked.
        return error.get("code") in _UNKNOWN_MODEL or ("model" in message and "does not exist" in message)

    def error(self, status: int, message: str) -> Object:
        """Return an error in the API's format. For 429 it is a quota error, which clients do not retry."""
        kind = error_kind(status, "insufficient_quota", "server_error")
        return {"error": {"message": message, "type": kind, "code": kind, "param": None}}

    def error_trouble(self, status: int, body: Object) -> Trouble:
        """Classify an error by its code, which is more precise than the status."""
        return trouble_of_error(part(body, "error"), trouble_of(status))


def trouble_of_error(error: Object, otherwise: Trouble = Trouble.FAILED) -> Trouble:
    """Classify an error object. Some servers put an HTTP status into its code."""
    code = error.get("code")
    if isinstance(code, int) and not isinstance(code, bool) and code >= _FIRST_ERROR:
        return trouble_of(code)
    if not isinstance(code, str):
        return otherwise
    if code == FILTERED or code.endswith(_POLICIES):
        return Trouble.DECLINED
    # A prompt rejected by policy has the same code as a malformed one; only the message differs.
    if code == "invalid_prompt" and "usage policy" in str(error.get("message")):
        return Trouble.DECLINED
    return Trouble.REJECTED if _IMAGE in code else _TROUBLES.get(code, otherwise)


def name_of_model(answer: JsonValue) -> str:
    """Return the model that an answer names, or an empty string."""
    model = answer.get("model") if isinstance(answer, dict) else None
    return model if isinstance(model, str) else ""


def cached_tokens(usage: Object, details: str) -> CachedTokens | None:
    """Return the cached tokens from the object ``usage[details]``; ``None`` if that object is missing or empty."""
    given = part(usage, details)
    if not given:
        return None
    read, written = count(given.get("cached_tokens")), count(given.get("cache_write_tokens"))
    return CachedTokens(read=read or 0, written=written or 0)
