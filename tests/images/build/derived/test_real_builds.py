"""Builds of derived images in real sandboxes, with wheels and a source archive from the package index."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from git_repositories import commit, git, repository
from securebench.cli.images_sandboxes import BuildSandboxes
from securebench.images.build.build import Builder
from securebench.images.build.derived.compose import COMMIT_LABEL
from securebench.images.build.engine_build import TOKEN_LABEL
from securebench.images.build.recipes import load_recipe
from securebench.images.engine_images import inspect
from securebench.images.store.image_store import ImageStore
from securebench.sandboxes import select
from securebench.sandboxes.base import Command, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from securebench.engine.client import Engine
    from securebench.images.model import ResolvedImage
    from securebench.sandboxes.base import SandboxDriver

REFERENCE = "securebench/test-real/build:1"
PYTEST = "pytest==8.3.3, pluggy==1.5.0, iniconfig==2.0.0, packaging==24.1"


@pytest.fixture
def opened(driver: SandboxDriver) -> Callable[..., SandboxDriver]:
    """Return a function that opens another driver of the same kind. Closing that driver releases its images."""
    known, open_driver = driver.info(), select.open_driver
    return lambda *_: open_driver(known.name, known.runtime or None, "test-builds", print)


@pytest.fixture
def build(
    request: pytest.FixtureRequest,
    driver: SandboxDriver,
    opened: Callable[..., SandboxDriver],
    base_image: ResolvedImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[str], str]]:
    """Yield a function that builds the text of a recipe with this driver, and returns the image's id."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(select, "open_driver", opened)
    store = ImageStore()
    engine = request.getfixturevalue("engine") if driver.info().name == "docker" else None
    before = _dangling(engine) if engine else []
    directory = tmp_path / "real"
    directory.mkdir()
    built: list[str] = []

    def run(text: str) -> str:
        head = f"reference: {REFERENCE}\nsummary: x\nbase: {base_image.reference}\n"
        (directory / "recipe.yaml").write_text(head + text)
        with BuildSandboxes(print) as sandboxes:
            builder = Builder(store, engine, lambda _: None, sandboxes.check, sandboxes.steps)
            built.append(builder.build(load_recipe(directory)).id)
        return built[-1]

    yield run
    for image_id in set(built):
        store.remove(image_id)
        if engine and inspect(engine, image_id):
            engine.client.remove_image(image_id, force=True)
    assert engine is None or _dangling(engine) == before, "what the steps ran in is gone"


def _dangling(engine: Engine) -> list[str]:
    return [image["Id"] for image in engine.client.images(filters={"label": TOKEN_LABEL, "dangling": True})]


def _run(opened: Callable[..., SandboxDriver], image_id: str, *argv: str) -> str:
    with closing(opened()) as driver:
        image = driver.resolve_image(image_id)
        spec = SandboxSpec(image=image, user=(0, 0), read_only=False, workdir=image.workdir)
        with driver.create(spec) as sandbox:
            result = sandbox.run(Command(argv=argv, timeout_seconds=60))
    return result.stdout.decode() + result.stderr.decode()


CHANGES = """\
workdir: /app
run:
  - [sh, -c, "echo made > made; chmod 4755 made; ln -s made link; rm -r /usr/share/perl5 /etc/debian_version"]
  - [sh, -c, "rm -rf /etc/ssl; mkdir /etc/ssl; echo x > /etc/ssl/new; echo junk > /tmp/junk; echo x > /run/junk"]
checks:
  - [sh, -c, "test -u made && test -L link && test ! -e /usr/share/perl5 && test ! -e /etc/debian_version"]
  - [sh, -c, "test \\"$(echo /etc/ssl/*)\\" = /etc/ssl/new && test ! -e /run/junk && test ! -e /run/securebench"]
"""


@pytest.mark.timeout(300)
def test_what_steps_change_is_the_image(opened: Callable[..., SandboxDriver], build: Callable[[str], str]) -> None:
    """With each driver, the image has what steps changed: new and removed files, modes and links.

    Files that steps write to mounts, such as ``/run``, are left out.
    """
    image_id = build(CHANGES)
    assert _run(opened, image_id, "cat", "/app/link") == "made\n"


@pytest.mark.timeout(300)
def test_steps_have_no_network_and_no_privilege(build: Callable[[str], str]) -> None:
    """Steps run as root, but without capabilities and with no network interface except loopback."""
    probe = (
        "import os, socket; assert os.getuid() == 0; "
        "assert int(next(l for l in open('/proc/self/status') if l.startswith('CapEff')).split()[1], 16) == 0; "
        "assert os.listdir('/sys/class/net') in (['lo'], [])"
    )
    assert build(f'workdir: /app\nrun:\n  - [python3, -c, "{probe}"]\n')


SDIST = f"""\
workdir: /testbed
source:
  pypi: {{name: itsdangerous, version: 2.1.2}}
requirements: [{PYTEST}, freezegun==1.5.1, python-dateutil==2.9.0, six==1.16.0, pip==24.2, setuptools==75.1.0]
install:
  - [python3, -m, pip, install, --no-build-isolation, --no-deps, -e, .]
checks:
  - [python3, -c, "import itsdangerous; assert itsdangerous.__file__.startswith('/testbed/src')"]
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_project_of_the_package_index_can_be_tested(
    opened: Callable[..., SandboxDriver], build: Callable[[str], str]
) -> None:
    """A project that is installed from its source archive in editable mode passes its own tests.

    Its repository has one commit and no changes.
    """
    image_id = build(SDIST)
    report = _run(opened, image_id, "python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert " passed" in report
    assert " failed" not in report
    assert " error" not in report
    log = _run(opened, image_id, "git", "log", "--all", "--format=%H")
    assert log.split() == [ImageStore().labels(REFERENCE)[COMMIT_LABEL]]
    assert _run(opened, image_id, "git", "status", "--porcelain") == ""
    assert _run(opened, image_id, "git", "fsck", "--full", "--strict", "--unreachable") == ""


@pytest.mark.timeout(300)
@pytest.mark.every_driver
def test_a_clone_at_a_commit_has_no_future(
    opened: Callable[..., SandboxDriver], build: Callable[[str], str], tmp_path: Path
) -> None:
    """C22, F01: from a clone with a later commit, a tag and a stash, only the wanted commit is in the image."""
    clone = repository(tmp_path / "clone")
    (clone / "code.py").write_text("broken = True\n")
    wanted = commit(clone)
    (clone / "code.py").write_text("broken = False  # the fix\n")
    git(clone, "tag", "fixed", commit(clone))
    (clone / "code.py").write_text("stashed\n")
    git(clone, "stash")
    image_id = build(f"workdir: /testbed\nsource:\n  git: {{path: {clone}, commit: {wanted}}}\n")
    script = (
        "cat code.py; git log --all --reflog --format=%s; git stash list; git tag; git cat-file --batch-all-objects"
    )
    output = _run(opened, image_id, "sh", "-c", f"{script} --batch | strings")
    assert output.startswith("broken = True\nThe state that the task starts from\n")
    assert "fix" not in output
    assert "stashed" not in output
