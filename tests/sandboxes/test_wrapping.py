"""Wrappers forward every operation of their interface except :data:`OWN`, including operations added later."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from securebench.sandboxes.base import Sandbox, SandboxDriver, SandboxProcess
from securebench.sandboxes.wrapping import WrappedDriver, WrappedProcess, WrappedSandbox

OWN = {"identity", "from_settings", "open_for_run", "run", "settings_model"}
"""Names that wrappers do not forward: the names that every extension has, and ``run``.

``run`` calls the wrapper's own ``open``.
"""


class Recorder:
    """An object that has every method. Each records its calls and returns the method's name."""

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
    """Each public method except :data:`OWN` calls the inner method with the same arguments and returns its result."""
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
