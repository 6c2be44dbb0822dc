"""The image that an instance runs in: the authors' own, by name, or a recipe of ours for one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from securebench.importers.row import bad_record

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.importers.swe_bench.pins import Pins, Setup, SourceRelease
    from securebench.importers.swe_bench.records import Instance

WORKDIR: Final = "/testbed"
_REGISTRY_PYTHON: Final = "/opt/miniconda3/envs/testbed/bin/python"
"""The interpreter of the authors' images, whose shells alone activate its environment."""

_BUILT_PYTHON: Final = "python3"
_INSTALL: Final = (
    *("-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation"),
    # As "setup.py develop" did, the repository itself is on the path of modules: some tests import "tests.…" from it.
    "--config-settings=editable_mode=compat",
    *("--break-system-packages", "--root-user-action=ignore", "--editable", "."),
)


@dataclass(frozen=True, slots=True)
class Image:
    """What an instance runs in. ``recipe`` is ``None`` for an image that a registry has.

    ``base_commit`` is the commit that the image's repository is at: empty until its source was read.
    """

    name: str
    python: str
    base_commit: str
    recipe: dict[str, Any] | None = None
    absent: frozenset[str] = frozenset()
    differs: list[str] = field(default_factory=list)

    @property
    def recipe_text(self) -> str:
        """The recipe as JSON, which is YAML too."""
        return json.dumps(self.recipe, indent=2) + "\n"


def registry_image(instance: Instance) -> Image:
    """Return the authors' image, by the name under which they publish it."""
    name = instance.id.lower().replace("__", "_1776_")
    return Image(f"swebench/sweb.eval.x86_64.{name}:latest", _REGISTRY_PYTHON, instance.base_commit)


def built_image(instance: Instance, repositories: Path | None, pins: Pins) -> Image:
    """Return an image to build: from a clone below ``repositories`` at the commit, else from a release.

    Raises :class:`ConfigError` (``import-row-invalid``) for an instance that cannot be built here.
    """
    setup = pins.setups.get((instance.repository, instance.version))
    if setup is None:
        hint = f"describe it in a file for --pins, or use --images registry; there are pins for {pins.known}"
        raise bad_record(instance.location, f"{instance.id}: no pins for {_what(instance)}", hint)
    clone = _clone(instance, repositories)
    if clone is not None:
        return _from_clone(instance, setup, clone)
    release = pins.releases.get((instance.repository, instance.version))
    if release is None:
        hint = "give a directory of clones with --repos, or take --images registry"
        raise bad_record(instance.location, f"{instance.id}: no release stands in for {_what(instance)}", hint)
    return _from_release(instance, setup, release)


def _from_clone(instance: Instance, setup: Setup, clone: Path) -> Image:
    name = image_name(instance, instance.base_commit[:12])
    source = {"git": {"path": str(clone), "commit": instance.base_commit}}
    recipe = _recipe(instance, setup, name, source, f"{instance.version}.0")
    differs = ["history: one fresh commit holds the files of the upstream commit"]
    return Image(name, _BUILT_PYTHON, "", recipe, differs=differs)


def _from_release(instance: Instance, setup: Setup, release: SourceRelease) -> Image:
    name = image_name(instance, f"{release.name}-{release.version}".lower())
    source = {"pypi": {"name": release.name, "version": release.version, "sha256": release.sha256}}
    recipe = _recipe(instance, setup, name, source, release.version)
    tests = [test for test in (*instance.fail_to_pass, *instance.pass_to_pass) if test in release.absent]
    differs = [
        f"source: {release.name} {release.version}, the nearest release, for commit {instance.base_commit[:12]}",
        *(f"expected test that {release.name} {release.version} lacks, or that fails here: {test}" for test in tests),
    ]
    return Image(name, _BUILT_PYTHON, release.commit, recipe, release.absent, differs)


def _recipe(instance: Instance, setup: Setup, name: str, source: dict[str, Any], version: str) -> dict[str, Any]:
    told = ["env", f"SETUPTOOLS_SCM_PRETEND_VERSION={version}"] if setup.asks_git else []
    install = setup.install or ((_BUILT_PYTHON, *_INSTALL),)
    return {
        "reference": name,
        "summary": f"{instance.repository} as {instance.id} finds it, imported.",
        "base": setup.base,
        "workdir": WORKDIR,
        "python": setup.python,
        "requirements": list(setup.requirements),
        "source": source,
        "install": [[*told, *step] for step in install],
        "checks": [[_BUILT_PYTHON, "-m", "pytest", "--version"]] if setup.has_pytest else [],
    }


def image_name(instance: Instance, source: str) -> str:
    """Return the name of a built image: the instance, and what it is made of."""
    plain = "-".join(filter(None, instance.id.lower().replace("_", "-").replace(".", "-").split("-")))
    return f"securebench/swe-bench/{plain}:{source}"


def _clone(instance: Instance, repositories: Path | None) -> Path | None:
    """Return the clone of the instance's repository: ``owner/name`` or ``name`` below the directory of clones."""
    if repositories is None:
        return None
    _, _, name = instance.repository.partition("/")
    places = (repositories / instance.repository, repositories / name)
    return next((place.resolve() for place in places if place.is_dir()), None)


def _what(instance: Instance) -> str:
    return f"{instance.repository} {instance.version}"
