"""Which directories can be collected from a sandbox, and that wrappers return what was collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from securebench.errors import ConfigError
from securebench.execution.observed import ObservedDriver
from securebench.progress import Reporter
from securebench.sandboxes.base import Command, Mount, SandboxSpec
from securebench.sandboxes.collected import CollectedArchive
from securebench.sandboxes.policy import CommandPolicy, PolicySandbox
from securebench.sandboxes.spec_rules import check_collect, require_directory
from securebench.testing.scripted_sandbox import DEFAULT_IMAGE, ScriptedDriver

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = ScriptedDriver().resolve_image(DEFAULT_IMAGE)


def check(*, persistent: bool = False, **options: Any) -> None:
    """Check a spec that can collect ``/srv/app``, with the fields in ``options`` changed."""
    spec = SandboxSpec(image=IMAGE, **{"read_only": False, "collect": "/srv/app", **options})
    check_collect(spec, persistent=persistent)


def test_a_directory_of_the_image_can_be_collected(tmp_path: Path) -> None:
    """A plain path can be collected if nothing is mounted at, above or below it.

    The root can be collected, although file systems are mounted below it. A spec that collects nothing is accepted.
    """
    check()
    check(collect="/")
    check(mounts=(Mount(tmp_path.resolve(), "/srv/application"),))
    check(collect=None, read_only=True, persistent=True)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"collect": "srv"}, "absolute"),
        ({"collect": "/srv//app"}, "plain"),
        ({"collect": "/srv/../app"}, "plain"),
        ({"collect": "/tmp/app"}, "there is a mount at /tmp"),
        ({"collect": "/proc/self"}, "there is a mount at /proc"),
        ({"collect": "/etc"}, "there is a mount at /etc/hosts"),
        ({"read_only": True}, "writable root"),
        ({"persistent": True}, "ephemeral"),
    ],
)
def test_anything_else_is_refused(options: dict[str, Any], why: str) -> None:
    """A spec whose changes cannot be collected is refused with the reason."""
    with pytest.raises(ConfigError, match=why) as raised:
        check(**options)
    assert raised.value.code == "collect-unsupported"


@pytest.mark.parametrize("target", ["/srv", "/srv/app", "/srv/app/below"])
def test_a_mount_in_the_way_is_refused(tmp_path: Path, target: str) -> None:
    """A mount at, above or below the directory is refused: files on a mount are not in the container's layer."""
    with pytest.raises(ConfigError, match=f"there is a mount at {target}"):
        check(mounts=(Mount(tmp_path.resolve(), target),))


def test_a_directory_behind_a_link_is_refused(tmp_path: Path) -> None:
    """A path through a link, or to anything but a directory, is refused, because changes would be missed."""
    (tmp_path / "real/app").mkdir(parents=True)
    (tmp_path / "real/file").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/inner").symlink_to("app")
    require_directory(tmp_path, "/real/app")
    require_directory(tmp_path, "/")
    for path in ("/link/app", "/link", "/real/inner", "/real/file", "/real/none"):
        with pytest.raises(ConfigError) as raised:
            require_directory(tmp_path, path)
        assert raised.value.code == "collect-unsupported"


def test_wrappers_hand_over_what_was_left() -> None:
    """Wrapped sandboxes return what the inner sandbox collected, and a wrapped driver returns the image's tree."""
    scripted = ScriptedDriver()
    image = scripted.add_image("app:1", files={"/srv/app/a": b"a"})
    archive = CollectedArchive(iter([b"an archive"]))
    scripted.program("agent")(lambda context: context.leave(archive))
    driver = ObservedDriver(scripted, Reporter(), show_output=False)
    with driver.image_tree(image) as tree:
        assert (tree.root / "srv/app/a").read_bytes() == b"a"
    spec = SandboxSpec(image=image, read_only=False, user=(0, 0), collect="/srv/app")
    with PolicySandbox(driver.create(spec), CommandPolicy()) as sandbox:
        sandbox.run(Command(argv=("agent",), timeout_seconds=5))
        assert sandbox.collected() is archive
