"""The Ray executor: tasks run in worker processes on the nodes of a Ray cluster.

:mod:`~securebench.executors.ray_slots` starts the workers and gives them tasks. This process sends content to the nodes
and receives records and files from them. Keys of model providers travel only in clusters that require a token, and only
as small arguments of calls, which Ray never writes to disk.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securebench.errors import ConfigError, InfrastructureError
from securebench.executors.base import Executor
from securebench.executors.local import on_threads
from securebench.executors.ray_slots import SLOT, RaySlots
from securebench.fs.home import home_directory
from securebench.strict_input.models import WireModel

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from securebench.executors.base import Worker


class RaySettings(WireModel):
    """``run.executor_config`` of ``ray``. Without an ``address``, a cluster is started on this machine for the run."""

    address: str | None = None
    """``HOST:PORT`` of the cluster's head, or ``auto`` for the cluster of this machine."""


class RayExecutor(Executor):
    """Runs ``workers`` tasks at once on the nodes of a Ray cluster, or fewer tasks if there are fewer slots.

    Raises :class:`ConfigError` (``extra-missing``, ``ray-token-missing``).
    """

    settings_model = RaySettings

    def __init__(self, workers: int, settings: RaySettings) -> None:
        super().__init__(workers)
        self.settings = settings
        self.is_local = settings.address is None
        if find_spec("ray") is None:
            raise ConfigError(
                "the ray executor needs the package 'ray', which is not installed",
                code="extra-missing",
                hint="run: pip install 'securebench[ray]' (in a clone: pip install '.[ray]')",
            )
        if settings.address is not None and not _has_token():
            raise ConfigError(
                "no token for the Ray cluster was found",
                code="ray-token-missing",
                hint="set RAY_AUTH_TOKEN_PATH to a file with the cluster's token; start all nodes of the cluster with"
                " this file and RAY_AUTH_MODE=token ('ray get-auth-token --generate' makes a token)",
            )

    def run(
        self,
        assignments: Iterable[bytes],
        worker: Worker,
        *,
        draining: Callable[[], bool],
        abandoned: Callable[[], None],
    ) -> Generator[bytes]:
        """See :meth:`Executor.run`. Raises :class:`ConfigError` and :class:`InfrastructureError`."""
        with _connected(self.settings.address, self.workers) as ray:
            slots = RaySlots(ray, worker, self.workers)

            def abandon() -> None:
                slots.close()
                abandoned()

            try:
                ready = slots.when_free(assignments, draining)
                yield from on_threads(ready, slots, self.workers, draining=draining, abandoned=abandon)
            finally:
                slots.close()


@contextmanager
def _connected(address: str | None, workers: int) -> Iterator[Any]:
    """Connect to the cluster at ``address``, or to a new one with ``workers`` slots, and yield Ray's module.

    Token authentication is always used. The connection is closed at the end.
    """
    os.environ["RAY_AUTH_MODE"] = "token"  # the library reads this variable when it is imported
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # otherwise, a call after disconnecting would start another cluster
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # without it, Ray prints a warning
    if address is None:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # kept for later runs: the library reads it once
    import ray

    # Ray prints reports of its daemons to stdout, where only the output of --json may appear.
    ray._private.worker.print_to_stdstream = _discard  # noqa: SLF001 - no option turns it off
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    local: dict[str, Any] = {} if address else {"resources": {SLOT: workers}, "include_dashboard": False}
    try:
        with _same_signals():
            ray.init(
                address=address or "local",
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.CRITICAL,
                **local,
            )
    except Exception as error:
        raise _unavailable(address, error) from error
    try:
        yield ray
    finally:
        with _same_signals():
            ray.shutdown()


def _unavailable(address: str | None, error: Exception) -> InfrastructureError:
    problem = f"cannot connect to the Ray cluster at {address}"
    hint = "check the address, and that the cluster and this machine have the same token and the same version of Ray"
    if address is None:
        problem = "cannot start a Ray cluster on this machine"
        hint = "check the free memory and disk space, and Ray's logs (by default in /tmp/ray/session_latest/logs)"
    return InfrastructureError(f"{problem}: {error}", code="ray-unavailable", hint=hint)


def _discard(*_: object, **__: object) -> None:
    """Do nothing. Replaces Ray's function that prints to stdout."""


def _has_token() -> bool:
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else home_directory() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or path.is_file()


@contextmanager
def _same_signals() -> Iterator[None]:
    """Restore the run's signal handlers at the end, because Ray installs its own in the main thread."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in kept.items():
                signal.signal(number, handler)
