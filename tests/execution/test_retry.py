"""How long to wait before a retry, and which errors are retried."""

from __future__ import annotations

from typing import NoReturn

import pytest

from securebench.errors import EgressError, EngineError, InfrastructureError, ProviderError
from securebench.execution.retry import (
    BACK_OFF,
    MAX_RETRY_AFTER,
    PROVIDER_BACK_OFF,
    SPREAD,
    pause_before_retry,
    with_retries,
)
from securebench.plurals import counted


def refused(after: float | None = None, code: str = "") -> ProviderError:
    """Return a provider's error whose ``Retry-After`` is ``after`` seconds."""
    error = ProviderError("no", code=code)
    error.retry_after = after
    return error


@pytest.mark.parametrize("error", [EngineError("x"), EgressError("x")])
def test_the_machine_is_asked_again_soon(error: InfrastructureError) -> None:
    """An error of the engine or the gateway is retried once after each pause in ``BACK_OFF``, and then no more."""
    assert [pause_before_retry(error, tries) for tries in (1, 2, 3)] == [*BACK_OFF, None]


def test_tasks_do_not_come_back_at_once() -> None:
    """L24: pauses after a provider's error vary randomly within bounds.

    The shortest of their base pauses is longer than the shortest pause after an error of the engine or the gateway.
    """
    for tries, base in enumerate(PROVIDER_BACK_OFF, start=1):
        pauses = [pause_before_retry(refused(), tries) or 0 for _ in range(40)]
        assert len(set(pauses)) > 30
        assert all(base * (1 - SPREAD) <= pause <= base * (1 + SPREAD) for pause in pauses)
    assert min(PROVIDER_BACK_OFF) > min(BACK_OFF)
    assert pause_before_retry(refused(), len(PROVIDER_BACK_OFF) + 1) is None


def test_a_provider_is_left_alone_as_long_as_it_asks() -> None:
    """L24: no retry happens before the provider's ``Retry-After``, and the retries are spread over time."""
    pauses = [pause_before_retry(refused(30), 1) or 0 for _ in range(40)]
    assert min(pauses) >= 30
    assert len(set(pauses)) > 30
    assert max(pauses) <= 30 * (1 + SPREAD)


def test_a_provider_that_asks_for_hours_is_left_to_resume() -> None:
    """An error whose ``Retry-After`` is longer than the maximum is not retried."""
    assert pause_before_retry(refused(MAX_RETRY_AFTER + 1), 1) is None


@pytest.mark.parametrize("code", ["provider-refused", "provider-rejected"])
def test_a_key_that_is_not_accepted_is_not_tried_again(code: str) -> None:
    """An error because of a wrong key or model is not retried, because a retry cannot help."""
    assert pause_before_retry(refused(code=code), 1) is None


def test_a_request_before_the_first_task_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provider errors are retried, and each pause is announced. After the last retry, the provider's error is raised.

    Any other error is raised at once.
    """
    pauses: list[float] = []
    notes: list[str] = []
    monkeypatch.setattr("securebench.execution.retry.time.sleep", pauses.append)

    def fail(error: Exception) -> NoReturn:
        raise error

    with pytest.raises(ProviderError):
        with_retries(lambda: fail(refused()), notes.append)
    assert len(pauses) == len(PROVIDER_BACK_OFF)
    assert notes == [f"no; trying again in {counted(round(pause), 'second')}" for pause in pauses]
    with pytest.raises(EgressError):
        with_retries(lambda: fail(EgressError("x")), notes.append)
    assert with_retries(lambda: 1, notes.append) == len(pauses) - 1
