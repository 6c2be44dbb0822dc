"""Errors of the Ray executor while it connects to a cluster. These tests need no Ray."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from securebench.errors import InfrastructureError
from securebench.executors import ray
from securebench.executors.ray import RayExecutor, RaySettings, _connected


@pytest.fixture(autouse=True)
def broken_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Ray by a fake that cannot start or reach a cluster.

    Also clear the environment variables that the executor sets. They are restored after the test.
    """

    def init(**_: object) -> None:
        raise RuntimeError("no raylet")

    fake = SimpleNamespace(init=init, _private=SimpleNamespace(worker=SimpleNamespace()))
    monkeypatch.setitem(sys.modules, "ray", fake)
    names = ("AUTH_MODE", "ENABLE_AUTO_CONNECT", "USAGE_STATS_ENABLED", "ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "AUTH_TOKEN")
    for name in names:
        monkeypatch.setenv(f"RAY_{name}", "")


@pytest.mark.parametrize(
    ("address", "message", "hint"),
    [
        (None, "cannot start a Ray cluster on this machine: no raylet", "check the free memory"),
        ("head:6379", "cannot connect to the Ray cluster at head:6379: no raylet", "check the address"),
    ],
)
def test_a_cluster_that_cannot_be_used(address: str | None, message: str, hint: str) -> None:
    """The error says whether a new cluster could not be started or an existing cluster could not be reached."""
    with pytest.raises(InfrastructureError) as caught, _connected(address, 1):
        pass
    assert (caught.value.code, caught.value.message) == ("ray-unavailable", message)
    assert caught.value.hint.startswith(hint)


def test_a_cluster_of_the_run_has_the_capacity_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address, the executor is local: ``max_workers: auto`` considers this machine's memory and cores."""
    monkeypatch.setattr(ray, "find_spec", lambda _name: object())
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    assert RayExecutor(1, RaySettings()).is_local
    assert not RayExecutor(1, RaySettings(address="head:6379")).is_local
