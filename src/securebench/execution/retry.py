"""How long to wait before something is tried again that was not the agent's fault."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from securebench.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.errors import InfrastructureError

BACK_OFF: Sequence[float] = (0.5, 2.0)
"""Seconds before each further try of a phase that the infrastructure failed."""

PROVIDER_BACK_OFF: Sequence[float] = (2.0, 10.0)
"""The same where a model's provider failed it: others wait for that one, too."""

SPREAD: Final = 0.5
"""The part by which a pause for a provider is longer or shorter, so that forty tasks do not come back at once."""

MAX_RETRY_AFTER: Final = 120.0
"""Seconds that a provider may ask to be left alone. One that asks for more is left to ``--resume``."""

_FINAL: Final = frozenset({"provider-refused", "provider-rejected"})
"""A key or a model that is not accepted now is not accepted in a moment either: these codes are not tried again."""

_chance = random.SystemRandom()


def pause_before_retry(error: InfrastructureError, tries: int) -> float | None:
    """Return for how many seconds to wait after the try with this number, or ``None`` if it was the last.

    No provider is asked again before the time that it gave itself.
    """
    if not isinstance(error, ProviderError):
        return BACK_OFF[tries - 1] if tries <= len(BACK_OFF) else None
    if tries > len(PROVIDER_BACK_OFF) or error.code in _FINAL:
        return None
    asked = error.retry_after or 0.0
    if asked > MAX_RETRY_AFTER:
        return None
    own = PROVIDER_BACK_OFF[tries - 1] * _chance.uniform(1 - SPREAD, 1 + SPREAD)
    return max(own, asked * _chance.uniform(1, 1 + SPREAD))
