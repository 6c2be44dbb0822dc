"""Which driver makes the sandboxes of a run: the one that was asked for, or the best that works on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench import plugins
from securebench.errors import ConfigError, EngineError, InfrastructureError
from securebench.plugins import ExtensionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from securebench.sandboxes.base import SandboxDriver
    from securebench.sandboxes.oci import OciDriver
    from securebench.strict_input.models import WireModel

DRIVERS: Final = ("docker", "oci")
"""What a tester YAML may ask for by name, beside ``auto``."""

_HOW_TO_GET_ONE: Final = (
    "'apt-get install crun tini' gives the oci driver what it needs, 'apt-get install docker.io' an engine; "
    "'securebench doctor' says what this machine lacks"
)

_TAKE_THE_WEAKER: Final = (
    "to accept the weaker oci driver: securebench run --driver oci, or sandbox.driver: oci in the tester YAML"
)


def open_driver(
    driver: str,
    runtime: str | None,
    run_id: str,
    notify: Callable[[str], None],
    settings: WireModel | None = None,
) -> SandboxDriver:
    """Return an open driver: ``docker``, ``oci``, or with ``auto`` the oci driver where nothing about it is weaker.

    Any other name is that of an installed driver, with ``settings``, by default its own defaults.

    ``runtime`` is the runtime beneath it, ``None`` the driver's own choice. ``notify`` is told, in plain words, why
    ``auto`` took Docker, and what is weaker about an oci driver that was asked for by name.

    Raises :class:`InfrastructureError`: as the driver does, and for ``auto``, where neither can be had,
    :class:`EngineError` (``driver-unavailable``) with the reasons of both.
    """
    if driver == "docker":
        return _docker(runtime, run_id)
    if driver == "oci":
        oci, weaker = _proven_oci(runtime)
        if weaker:
            notify(f"sandboxes are weaker on this machine. Not enforced: {_in_words(weaker)}. See 'securebench doctor'")
        return oci
    if driver == "auto":
        return _best(runtime, run_id, notify)
    from securebench.strict_input.models import WireModel

    installed: type[SandboxDriver] = plugins.load(ExtensionKind.DRIVER, driver)
    if runtime:
        raise ConfigError(f"the driver {driver!r} has no choice of runtimes", code="runtime-unavailable")
    return installed.from_settings(settings or (installed.settings_model or WireModel)(), run_id)


def _best(runtime: str | None, run_id: str, notify: Callable[[str], None]) -> SandboxDriver:
    try:
        oci, weaker = _proven_oci(runtime)
    except InfrastructureError as error:
        return _docker_instead(runtime, run_id, error, notify)
    if not weaker:
        return oci
    oci.close()
    trouble = EngineError(f"it works but is weaker than Docker. Not enforced: {_in_words(weaker)}")
    return _docker_instead(runtime, run_id, trouble, notify, weaker=True)


def _docker_instead(
    runtime: str | None,
    run_id: str,
    why: InfrastructureError,
    notify: Callable[[str], None],
    *,
    weaker: bool = False,
) -> SandboxDriver:
    try:
        docker = _docker(runtime, run_id)
    except EngineError as error:
        problem = "no driver was chosen" if weaker else "no driver can make sandboxes here"
        raise EngineError(
            f"{problem}\n  oci: {_and_hint(why)}\n  docker: {_and_hint(error)}",
            code="driver-unavailable",
            hint=_TAKE_THE_WEAKER if weaker else _HOW_TO_GET_ONE,
        ) from error
    notify(f"using Docker, not the oci driver: {why.message}")
    return docker


def _proven_oci(runtime: str | None) -> tuple[OciDriver, tuple[str, ...]]:
    """Return an oci driver that has made a sandbox, and what is weaker about it."""
    from securebench.sandboxes.oci import OciDriver

    driver = OciDriver(runtime=runtime)
    try:
        return driver, tuple(driver.prove().weaker)
    except BaseException:
        driver.close()
        raise


def _docker(runtime: str | None, run_id: str) -> SandboxDriver:
    from securebench.sandboxes.docker.driver import DockerDriver

    return DockerDriver(run_id=run_id, runtime=runtime)


def _in_words(names: Iterable[str]) -> str:
    from securebench.sandboxes.enforcement import ENFORCEABLE

    return ", ".join(ENFORCEABLE[name] for name in names)


def _and_hint(error: InfrastructureError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
