"""The image of an instance: the authors' image from a registry, or one to build from a generated recipe."""

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
"""The interpreter in the authors' images. Commands need its path: only a login shell puts it on ``PATH``."""

_BUILT_PYTHON: Final = "python3"
_INSTALL: Final = (
    *("-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation"),
    # Like "setup.py develop", this puts the repository on the module path: some tests import "tests.…" from it.
    "--config-settings=editable_mode=compat",
    *("--break-system-packages", "--root-user-action=ignore", "--editable", "."),
)


@dataclass(frozen=True, slots=True)
class Image:
    """The image of an instance. ``recipe`` is ``None`` for an image from a registry.

    ``base_commit`` is the commit of the image's repository, or empty if it is not known in advance. ``absent`` are
    tests that are missing from the image's source or fail with it. ``differs`` lists differences from the authors'
    image, for the report.
    """

    name: str
    python: str
    base_commit: str
    recipe: dict[str, Any] | None = None
    absent: frozenset[str] = frozenset()
    differs: list[str] = field(default_factory=list)

    @property
    def recipe_text(self) -> str:
        """The recipe as JSON, which is also YAML."""
        return json.dumps(self.recipe, indent=2) + "\n"


def registry_image(instance: Instance) -> Image:
    """Return the authors' published image."""
    name = instance.id.lower().replace("__", "_1776_")
    return Image(f"swebench/sweb.eval.x86_64.{name}:latest", _REGISTRY_PYTHON, instance.base_commit)


def built_image(instance: Instance, repositories: Path | None, pins: Pins) -> Image:
    """Return an image to build from the instance's base commit if ``repositories`` has a clone, or else from a release.

    Raises :class:`ConfigError` (``import-row-invalid``) if there are no pins, or neither a clone nor a release.
    """
    setup = pins.setups.get((instance.repository, instance.version))
    if setup is None:
        hint = f"add pins with --pins FILE, or use --images registry; pins exist for {pins.known}"
        raise bad_record(instance.location, f"{instance.id}: no pins for {_what(instance)}", hint)
    clone = _clone(instance, repositories)
    if clone is not None:
        return _from_clone(instance, setup, clone)
    release = pins.releases.get((instance.repository, instance.version))
    if release is None:
        hint = "pass a directory of clones with --repos, or use --images registry"
        message = f"{instance.id}: no clone was found, and the pins for {_what(instance)} do not contain a release"
        raise bad_record(instance.location, message, hint)
    return _from_release(instance, setup, release)


def _from_clone(instance: Instance, setup: Setup, clone: Path) -> Image:
    name = image_name(instance, instance.base_commit[:12])
    source = {"git": {"path": str(clone), "commit": instance.base_commit}}
    recipe = _recipe(instance, setup, name, source, f"{instance.version}.0")
    differs = ["history: a single new commit contains the files of the upstream commit"]
    return Image(name, _BUILT_PYTHON, "", recipe, differs=differs)


def _from_release(instance: Instance, setup: Setup, release: SourceRelease) -> Image:
    name = image_name(instance, f"{release.name}-{release.version}".lower())
    source = {"pypi": {"name": release.name, "version": release.version, "sha256": release.sha256}}
    recipe = _recipe(instance, setup, name, source, release.version)
    tests = [test for test in (*instance.fail_to_pass, *instance.pass_to_pass) if test in release.absent]
    differs = [
        f"source: {release.name} {release.version} from the package index, not commit {instance.base_commit[:12]}",
        *(f"test left out because {release.name} {release.version} lacks or fails it: {test}" for test in tests),
    ]
    return Image(name, _BUILT_PYTHON, release.commit, recipe, frozenset(release.absent), differs)


def _recipe(instance: Instance, setup: Setup, name: str, source: dict[str, Any], version: str) -> dict[str, Any]:
    environment = ["env", f"SETUPTOOLS_SCM_PRETEND_VERSION={version}"] if setup.version_from_git else []
    install = setup.install or [[_BUILT_PYTHON, *_INSTALL]]
    return {
        "reference": name,
        "summary": f"{instance.repository} for the SWE-bench instance {instance.id}.",
        "base": setup.base,
        "workdir": WORKDIR,
        "python": setup.python,
        "requirements": setup.requirements,
        "source": source,
        "install": [[*environment, *step] for step in install],
        "checks": [[_BUILT_PYTHON, "-m", "pytest", "--version"]] if setup.has_pytest else [],
    }


def image_name(instance: Instance, source: str) -> str:
    """Return the name of a built image. It is made from the instance's id, and its tag is ``source``."""
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
