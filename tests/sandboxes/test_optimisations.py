"""Optimisations of the oci driver: each can be switched off, and without them everything still works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from securebench.errors import ConfigError
from securebench.sandboxes.optimisations import VARIABLE, Optimisations

if TYPE_CHECKING:
    from securebench.sandboxes.oci import OciDriver


def test_a_list_switches_off_what_it_names() -> None:
    """The variable lists the optimisations to switch off, separated by commas. ``all`` switches off every one.

    Without the variable, all are on.
    """
    assert Optimisations.from_environment({}) == Optimisations()
    some = Optimisations.from_environment({VARIABLE: "warm-pool, sealed-runtime"})
    assert some == Optimisations(warm_pool=False, sealed_runtime=False)
    assert Optimisations.from_environment({VARIABLE: "all"}) == Optimisations.none()


@pytest.mark.parametrize("listed", ["warm", "all,warm-pool", "WARM-POOL"])
def test_an_unknown_name_is_refused(listed: str) -> None:
    """An unknown name is an error. Otherwise, a mistyped name would leave an optimisation on unnoticed."""
    with pytest.raises(ConfigError, match=VARIABLE) as caught:
        Optimisations.from_environment({VARIABLE: listed})
    assert caught.value.code == "optimisation-unknown"
    assert "warm-pool, cgroup-pool, compiled-filters, sealed-runtime" in caught.value.hint


@pytest.mark.oci
def test_without_them_nothing_is_prepared(oci_driver: OciDriver) -> None:
    """Without optimisations, no process waits in a cgroup and no container starts early. Outputs are the same."""
    found = {
        switched: json.loads(
            subprocess.run(
                [sys.executable, "-c", _LOOK, "securebench/python:3.11"],
                env={**os.environ, VARIABLE: "all" if switched else ""},
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
        )
        for switched in (True, False)
    }
    assert found[True] == {"outputs": ["42", "42"], "ready": 0, "waiting": 0}
    assert found[False]["outputs"] == ["42", "42"]
    assert found[False]["ready"] == 1
    if os.geteuid() == 0:
        assert found[False]["waiting"] > 0, "the test looks for the wrong processes"


_LOOK = """
import json, sys, time
from contextlib import closing
from pathlib import Path
from securebench.sandboxes.base import Command, SandboxSpec
from securebench.sandboxes.oci import OciDriver

def spares():
    group = driver._context.group
    while True:
        try:
            lists = [path.read_text() for path in Path("/sys/fs/cgroup").glob(f"**/{group}/spare-*/cgroup.procs")]
        except FileNotFoundError:  # a directory of another run was removed meanwhile
            continue
        return len({pid for text in lists for pid in text.split()})

with closing(OciDriver(runtime="crun")) as driver:
    image = driver.resolve_image(sys.argv[1])
    outputs = []
    for _ in range(2):
        with driver.create(SandboxSpec(image=image)) as sandbox:
            command = Command(argv=("python3", "-c", "print(6 * 7)"), timeout_seconds=30, waits=True)
            outputs.append(sandbox.run(command).stdout.decode().strip())
    time.sleep(0.5)  # the supervisor prepares cgroups after it has answered
    result = {
        "outputs": outputs,
        "ready": len(driver._context.warm_pool._ready),
        "waiting": spares(),
    }
print(json.dumps(result))
"""
