"""Select the driver of a run: the one that was named, or the best one that works on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench import plugins
from securebench.errors import EngineError, InfrastructureError
from securebench.plugins import AUTO_DRIVER, ExtensionKind
from securebench.sandboxes.enforcement import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.sandboxes.base import SandboxDriver
    from securebench.strict_input.models import WireModel

_HOW_TO_GET_ONE: Final = (
    "for the oci driver, run 'apt-get install crun tini'; for Docker, 'apt-get install docker.io'; "
    "'securebench doctor' lists what is missing on this machine"
)

_TAKE_THE_WEAKER: Final = (
    "to accept the weaker oci driver, run 'securebench run --driver oci', or set 'sandbox.driver: oci'"
)


def open_driver(
    driver: str,
    runtime: str | None,
    run_id: str,
    notify: Callable[[str], None],
    settings: WireModel | None = None,
) -> SandboxDriver:
    """Open the driver with the name ``driver``. ``auto`` is the oci driver if it enforces everything, else Docker.

    ``runtime`` is the runtime to use, or ``None`` for the driver's own choice. ``settings`` are the settings of a
    driver from an installed package. ``notify`` receives messages for the user: why ``auto`` uses Docker, and what a
    named driver does not enforce.

    Raises the errors of :func:`~securebench.plugins.load` and :meth:`SandboxDriver.open_for_run`. For ``auto``, raises
    :class:`EngineError` (``driver-unavailable``) if Docker is unusable and the oci driver is unusable or weaker. The
    message contains both reasons.
    """
    if driver == AUTO_DRIVER:
        return _best(runtime, run_id, notify)
    found: type[SandboxDriver] = plugins.load(ExtensionKind.DRIVER, driver)
    return found.open_for_run(run_id, runtime, settings, notify)


def _best(runtime: str | None, run_id: str, notify: Callable[[str], None]) -> SandboxDriver:
    from securebench.sandboxes.oci import OciDriver

    try:
        oci, weaker = OciDriver.open_proven(runtime)
    except InfrastructureError as error:
        return _docker_instead(runtime, run_id, error, notify)
    if not weaker:
        return oci
    oci.close()
    trouble = EngineError(f"sandboxes would be weaker than with Docker. Not enforced: {in_words(weaker)}")
    return _docker_instead(runtime, run_id, trouble, notify, weaker=True)


def _docker_instead(
    runtime: str | None,
    run_id: str,
    why: InfrastructureError,
    notify: Callable[[str], None],
    *,
    weaker: bool = False,
) -> SandboxDriver:
    from securebench.sandboxes.docker.driver import DockerDriver

    try:
        docker = DockerDriver(run_id=run_id, runtime=runtime)
    except EngineError as error:
        problem = "no driver was selected" if weaker else "no driver works on this machine"
        raise EngineError(
            f"{problem}\n  oci: {_and_hint(why)}\n  docker: {_and_hint(error)}",
            code="driver-unavailable",
            hint=_TAKE_THE_WEAKER if weaker else _HOW_TO_GET_ONE,
        ) from error
    notify(f"using Docker instead of the oci driver: {why.message}")
    return docker


def _and_hint(error: InfrastructureError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
