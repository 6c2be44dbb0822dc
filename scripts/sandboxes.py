"""Gets what sandboxes need, for the demo and for the tests.

    python -m scripts.sandboxes demo    make one driver work, and print the name to run with: auto, or oci
    python -m scripts.sandboxes test    make both work; print why there is no Docker Engine, where none can be had

The oci driver needs a runtime and an init, which apt installs where they are missing (Debian, Ubuntu; as root or with
sudo); elsewhere the message says what to do by hand. For the demo a Docker Engine is looked for, and where need be
installed, only if that driver would be weaker than Docker is, or does not work at all.
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
    """What the oci driver is on this machine: ``trouble`` if it does not work, ``weaker`` in words where it does."""

    trouble: str = ""
    weaker: str = ""

    @property
    def is_strong(self) -> bool:
        """Whether ``auto`` takes it."""
        return not (self.trouble or self.weaker)


def look_at_oci() -> Oci:
    """Make one sandbox, without an image. The product's own way to it is the one that counts."""
    from securebench.errors import InfrastructureError
    from securebench.sandboxes.select import open_driver

    told: list[str] = []
    try:
        open_driver("oci", None, "set-up", told.append).close()
    except InfrastructureError as error:
        return Oci(trouble=str(error))
    return Oci(weaker="\n".join(told))


def missing_packages() -> Iterator[str]:
    """Yield Debian's names of what the oci driver needs and does not find."""
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
    """Install ``packages`` where that can be done; elsewhere say what would be installed."""
    if not packages:
        return
    names = " ".join(packages)
    if shutil.which("apt-get") is None or root_prefix() is None:
        say(f"for fast sandboxes without an engine, as an administrator: apt-get install {names}")
        return
    say(f"installing {names}")
    script = f". {ROOT}/scripts/lib.sh && apt_install {names}"
    if subprocess.run(["bash", "-c", script], check=False).returncode != 0:
        say(f"apt-get could not install {names}")


def prepare_demo(setup: EngineSetup) -> str:
    """Return the driver to run the demo with. Raises :class:`SetupError` where no sandbox can be made."""
    install(list(missing_packages()))
    oci = look_at_oci()
    if oci.is_strong:
        return "auto"
    say(f"the oci driver would not do by itself: {oci.trouble or oci.weaker}")
    try:
        setup.up()
    except SetupError as error:
        if oci.trouble:
            raise SetupError(f"no sandbox can be made here\n  oci: {oci.trouble}\n  docker: {error}") from error
        say("running on it all the same, as there is no Docker Engine: what is weaker is in every record")
        return "oci"
    return "auto"


def prepare_tests(setup: EngineSetup) -> str:
    """Return why no engine can be had, or nothing once one answers. Raises :class:`SetupError`.

    One that should have been installed or started here, and was not, is an error: it never goes unnoticed.
    """
    install(list(missing_packages()))
    trouble = setup.find_trouble()
    if trouble is None or (trouble.replaceable and root_prefix() is not None):
        setup.up()
        return ""
    oci = look_at_oci()
    if oci.trouble:
        raise SetupError(f"no sandbox can be made here\n  oci: {oci.trouble}\n  docker: {trouble.text} ({BY_HAND})")
    return " ".join(trouble.text.split())


def main(arguments: list[str]) -> int:
    """Run the command line."""
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
