"""A wrapper passes on every operation of a contract, so that a new operation cannot be forgotten."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from securebench.sandboxes.base import Sandbox, SandboxDriver, SandboxProcess
from securebench.sandboxes.wrapping import WrappedDriver, WrappedProcess, WrappedSandbox

OWN = {"identity", "from_settings", "open_for_run", "run", "settings_model"}
"""What a wrapper has itself: it is an extension of its own, and runs commands by its own ``open``."""


class Recorder:
    """Records every call, and returns its name."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> str:
            self.calls.append((name, args, options))
            return name

        return call


@pytest.mark.parametrize(
    ("contract", "wrapper"),
    [(SandboxDriver, WrappedDriver), (Sandbox, WrappedSandbox), (SandboxProcess, WrappedProcess)],
)
def test_every_operation_is_passed_on(contract: type, wrapper: Any) -> None:
    """Each public method is called on what is wrapped, with its arguments, and its result returned."""
    names = {name for name in dir(contract) if not name.startswith("_")} - OWN
    for name in names:
        inner = Recorder()
        if isinstance(inspect.getattr_static(wrapper, name), property):
            assert getattr(wrapper(inner), name)() == name
            continue
        parameters = inspect.signature(getattr(wrapper, name)).parameters.values()
        args = [object() for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][1:]
        options = {p.name: object() for p in parameters if p.kind is p.KEYWORD_ONLY}
        result = getattr(wrapper(inner), name)(*args, **options)
        assert inner.calls == [(name, tuple(args), options)]
        returns = inspect.signature(getattr(wrapper, name)).return_annotation
        assert result == (None if returns == "None" else name)
