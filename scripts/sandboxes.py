"""Install what sandboxes need, for the demo and for the tests.

    python -m scripts.sandboxes demo    make one driver work, and print the name to use: auto or oci
    python -m scripts.sandboxes test    make both drivers work; if no Docker Engine can be used, print why

The oci driver needs a runtime and an init. If they are missing, apt installs them (Debian or Ubuntu, as root or with
sudo); on other systems a message says what to install. The demo uses a Docker Engine only if the oci driver does not
work or would be weaker than Docker. If necessary, the engine is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scripts.engine import BY_HAND, ROOT, EngineSetup, SetupError, default_setup, root_prefix, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Oci:
    """The state of the oci driver on this machine.

    ``problem`` says why the driver does not work. If it works, ``weaker`` says what it does not enforce.
    """

    problem: str = ""
    weaker: str = ""

    @property
    def is_strong(self) -> bool:
        """Whether ``auto`` selects the oci driver."""
        return not (self.problem or self.weaker)


def check_oci() -> Oci:
    """Create a test sandbox in the same way as SecureBench does.

    Return what is wrong with the oci driver. If nothing is wrong, both fields of the result are empty.
    """
    from securebench.errors import InfrastructureError
    from securebench.sandboxes.select import open_driver

    messages: list[str] = []
    try:
        open_driver("oci", None, "set-up", messages.append).close()
    except InfrastructureError as error:
        return Oci(problem=str(error))
    return Oci(weaker="\n".join(messages))


def missing_packages() -> Iterator[str]:
    """Yield the Debian packages that the oci driver needs and that are missing."""
    from securebench.errors import EngineError
    from securebench.sandboxes.oci.runtime import find_init, find_runtime

    for find, package in ((find_runtime, "crun"), (find_init, "tini")):
        try:
            find()
        except EngineError:
            yield package
    if os.geteuid() != 0 and shutil.which("newuidmap") is None:
        yield "uidmap"


def install(packages: Sequence[str]) -> None:
    """Install ``packages`` if possible; otherwise print which packages to install."""
    if not packages:
        return
    names = " ".join(packages)
    if shutil.which("apt-get") is None or root_prefix() is None:
        say(f"to use the oci driver, run as an administrator (Debian or Ubuntu): apt-get install {names}")
        return
    say(f"installing {names}")
    script = f". {ROOT}/scripts/lib.sh && apt_install {names}"
    if subprocess.run(["bash", "-c", script], check=False).returncode != 0:
        say(f"apt-get could not install {names}")


def prepare_demo(setup: EngineSetup) -> str:
    """Return the driver for the demo. Raises :class:`SetupError` if no driver works."""
    install(list(missing_packages()))
    oci = check_oci()
    if oci.is_strong:
        return "auto"
    say(f"the oci driver is not sufficient: {oci.problem or oci.weaker}")
    try:
        setup.up()
    except SetupError as error:
        if oci.problem:
            raise SetupError(f"no driver works on this machine\n  oci: {oci.problem}\n  docker: {error}") from error
        say("using the oci driver anyway, because there is no Docker Engine; every record lists what is not enforced")
        return "oci"
    return "auto"


def prepare_tests(setup: EngineSetup) -> str:
    """Return why no Docker Engine can be used, or an empty text if one answers. Raises :class:`SetupError`.

    If an engine can be installed or started on this machine, a failure to do so raises an error, so that it is noticed.
    """
    install(list(missing_packages()))
    problem = setup.find_problem()
    if problem is None or (problem.replaceable and root_prefix() is not None):
        setup.up()
        return ""
    oci = check_oci()
    if oci.problem:
        raise SetupError(f"no driver works on this machine\n  oci: {oci.problem}\n  docker: {problem.text} ({BY_HAND})")
    return " ".join(problem.text.split())


def main(arguments: list[str]) -> int:
    """Run the command in ``arguments``, and return the exit code."""
    ways = {"demo": prepare_demo, "test": prepare_tests}
    if len(arguments) != 1 or arguments[0] not in ways:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(ways[arguments[0]](default_setup()))
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
