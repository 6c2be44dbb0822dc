"""How long to wait before retrying after an infrastructure failure."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from securebench.errors import ProviderError
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from securebench.errors import InfrastructureError

T = TypeVar("T")

BACK_OFF: Sequence[float] = (0.5, 2.0)
"""Seconds before each retry of a phase after an infrastructure failure."""

PROVIDER_BACK_OFF: Sequence[float] = (2.0, 10.0)
"""Seconds before each retry after a failure of the model provider, on average."""

SPREAD: Final = 0.5
"""The random variation of the pause after a provider failure, as a fraction of the pause. It keeps tasks from all
retrying at the same moment."""

MAX_RETRY_AFTER: Final = 120.0
"""The longest ``Retry-After`` in seconds that a task waits for. With a longer one, the task is left to ``--resume``."""

_FINAL: Final = frozenset({"provider-refused", "provider-rejected", "judge-unfit", "judge-budget"})
"""Error codes that are not retried. A retry does not help if a key or model was rejected or a budget is used up.
An unfit judge has already been asked several times."""

_chance = random.SystemRandom()


def pause_before_retry(error: InfrastructureError, tries: int) -> float | None:
    """Return how many seconds to wait before the next try, or ``None`` to give up.

    ``tries`` is the number of tries so far. The pause is never shorter than a provider's ``Retry-After``. If the
    ``Retry-After`` exceeds :data:`MAX_RETRY_AFTER`, the result is ``None``.
    """
    if not isinstance(error, ProviderError):
        return BACK_OFF[tries - 1] if tries <= len(BACK_OFF) else None
    if tries > len(PROVIDER_BACK_OFF) or error.code in _FINAL:
        return None
    requested = error.retry_after or 0.0
    if requested > MAX_RETRY_AFTER:
        return None
    own = PROVIDER_BACK_OFF[tries - 1] * _chance.uniform(1 - SPREAD, 1 + SPREAD)
    return max(own, requested * _chance.uniform(1, 1 + SPREAD))


def with_retries(once: Callable[[], T], notify: Callable[[str], None]) -> T:
    """Return the result of ``once``. Call it again, after a pause, if it raises a :class:`ProviderError`.

    ``once`` probes the model provider before the first task of a run. ``notify`` is called before each pause. Raises
    the last :class:`ProviderError` if no retry is left. Other errors are raised without a retry.
    """
    tries = 1
    while True:
        try:
            return once()
        except ProviderError as error:
            pause = pause_before_retry(error, tries)
            if pause is None:
                raise
            notify(f"{error.message}; trying again in {counted(round(pause), 'second')}")
            time.sleep(pause)
            tries += 1
