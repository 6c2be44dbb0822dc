"""A container's changes in one directory: how the supervisor opens them, and how the driver receives them."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from securebench.errors import FailureReason, InfrastructureError
from securebench.ipc.frames import pack, send
from securebench.sandboxes.base import MIB, Command, Limits, SandboxSpec
from securebench.sandboxes.collected import CollectedLayer, DirectoryReplacedError
from securebench.sandboxes.oci import OciDriver
from securebench.sandboxes.oci.connection import ProcessHandle
from securebench.sandboxes.oci.process import changed_layer
from securebench.sandboxes.oci.supervisor.changes import open_changes
from securebench.sandboxes.oci.supervisor.mounts import opaque
from securebench.sandboxes.oci.wire import ProcessReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.images.model import ResolvedImage

OPAQUE = "user.test.opaque"
LIBRARY = "/usr/lib/python3.11/email"
ENDED = {"exit": 0, "timed_out": False, "out_of_memory": False, "log": ""}


def listed(descriptor: int) -> list[str]:
    """Return the names in the directory of a descriptor."""
    return sorted(os.listdir(descriptor))


def open_descriptors() -> int:
    """Return how many open descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def opened(upper: Path, path: str) -> tuple[str, bool, str]:
    """Return the outcome for ``path``, whether its changes hide the image's files, and the opened path below ``upper``.

    The opened path is empty for ``upper`` itself, and if no descriptor was returned.
    """
    before = open_descriptors()
    report, descriptor = open_changes(ProcessReport(), str(upper), path, OPAQUE)
    target = ""
    if descriptor >= 0:
        target = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        os.close(descriptor)
    assert open_descriptors() == before
    return report.collected, report.whole, target.removeprefix(str(upper))


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    """Return an upper directory in which ``/srv/app`` was changed."""
    (tmp_path / "upper/srv/app").mkdir(parents=True)
    return tmp_path.resolve() / "upper"


def test_a_changed_directory_is_opened(upper: Path) -> None:
    """A changed directory, also the root, is opened. One without changes is reported as unchanged and not opened."""
    assert opened(upper, "/srv/app") == ("changed", False, "/srv/app")
    assert opened(upper, "/") == ("changed", False, "")
    assert opened(upper, "/srv/other") == ("unchanged", False, "")
    assert opened(upper, "/opt/app") == ("unchanged", False, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="a supervisor is root, if of its own namespace alone")
@pytest.mark.parametrize("mode", [0, 0o077, 0o400])
def test_a_closed_directory_is_handed_over_open(upper: Path, mode: int) -> None:
    """H11: the owner of a changed directory gets all permissions on it, so that an ordinary user can read it too."""
    (upper / "srv/app/file").touch()
    (upper / "srv/app").chmod(mode)
    report, descriptor = open_changes(ProcessReport(), str(upper), "/srv/app", OPAQUE)
    assert report.collected == "changed"
    assert os.fstat(descriptor).st_mode & 0o777 == mode | 0o700
    os.close(descriptor)


@pytest.mark.parametrize("replaced", ["srv", "srv/app"])
@pytest.mark.parametrize("kind", ["link", "file", "fifo", "removed"])
def test_what_took_its_place_is_not_followed(upper: Path, replaced: str, kind: str) -> None:
    """A link, file, FIFO or removal marker in place of a directory or its parent is reported, not opened (H01, H05)."""
    elsewhere = upper.parent / "elsewhere"
    (elsewhere / "app").mkdir(parents=True)
    path = upper / replaced
    path.rename(upper / "away")
    if kind == "removed" and os.geteuid() != 0:
        pytest.skip("only root makes the mark of a removal outside an overlay")
    make: dict[str, Callable[[], None]] = {
        "link": lambda: path.symlink_to(elsewhere),
        "file": path.touch,
        "fifo": lambda: os.mkfifo(path),
        "removed": lambda: os.mknod(path, 0o020000, os.makedev(0, 0)),
    }
    make[kind]()
    assert opened(upper, "/srv/app") == ("replaced", False, "")


@pytest.mark.parametrize("where", ["srv", "srv/app"])
def test_a_directory_that_was_made_again_is_whole(upper: Path, where: str) -> None:
    """A directory is reported as whole if it was removed and created again, or if it is below such a directory.

    A path that is missing below such a directory counts as replaced.
    """
    os.setxattr(upper / where, OPAQUE, b"y")
    assert opened(upper, "/srv/app") == ("changed", True, "/srv/app")
    assert opened(upper, "/srv/gone")[0] == ("replaced" if where == "srv" else "unchanged")


def test_another_value_marks_nothing(upper: Path) -> None:
    """The attribute marks a replaced directory only if its value is ``y``. With other values it is ignored."""
    os.setxattr(upper / "srv", OPAQUE, b"x")
    assert opened(upper, "/srv/app") == ("changed", False, "/srv/app")


def test_no_room_is_no_absence(upper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that cannot be opened is reported as such, never as unchanged."""

    def full(*_arguments: object, **_options: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("securebench.sandboxes.oci.supervisor.changes.os.open", full)
    report, descriptor = open_changes(ProcessReport(), str(upper), "/srv/app", OPAQUE)
    assert descriptor == -1
    assert "Too many open files" in report.collected


def test_the_mark_is_one_that_nobody_inside_can_write() -> None:
    """A sandbox cannot set the attribute that marks a replaced directory.

    For root it is a ``trusted`` attribute, which requires a privilege over the host. In a user namespace it is a
    ``user.overlay`` attribute, which the overlay does not let processes set.
    """
    assert opaque(user_attributes=False) == "trusted.overlay.opaque"
    assert opaque(user_attributes=True) == "user.overlay.opaque"


@pytest.fixture
def handle() -> Iterator[tuple[ProcessHandle, socket.socket]]:
    """Yield the handle of a process, and the supervisor's end of its channel."""
    ours, supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with supervisor:
        yield ProcessHandle(ours), supervisor


def test_a_lost_descriptor_is_no_absence(handle: tuple[ProcessHandle, socket.socket]) -> None:
    """If changes are reported but their descriptor does not arrive, it is an infrastructure error."""
    send(handle[1], pack({**ENDED, "collected": "changed", "opaque": OPAQUE, "whole": False}))
    with pytest.raises(InfrastructureError, match="Too many open files") as raised:
        changed_layer(handle[0], "/app")
    assert "ulimit" in raised.value.hint


@pytest.mark.parametrize(("number", "has_hint"), [(errno.EMFILE, True), (errno.EIO, False)])
def test_the_limit_of_open_files_is_blamed_only_if_it_was_reached(
    handle: tuple[ProcessHandle, socket.socket], number: int, has_hint: bool
) -> None:
    """The hint to raise the limit of open files is given only if the supervisor reports too many open files."""
    why = str(OSError(number, os.strerror(number), "app"))
    send(handle[1], pack({**ENDED, "collected": why}))
    with pytest.raises(InfrastructureError, match=os.strerror(number)) as raised:
        changed_layer(handle[0], "/app")
    assert ("ulimit" in raised.value.hint) is has_hint


@pytest.mark.parametrize(
    ("report", "kind"),
    [({"collected": "replaced"}, DirectoryReplacedError), ({"collected": "oh"}, InfrastructureError), ({}, None)],
)
def test_reports_are_typed(
    handle: tuple[ProcessHandle, socket.socket], report: dict[str, str], kind: type[Exception] | None
) -> None:
    """A replaced directory fails the candidate. Any other problem, or no outcome at all, is an infrastructure error."""
    send(handle[1], pack({**ENDED, **report}))
    with pytest.raises(kind or InfrastructureError) as raised:
        changed_layer(handle[0], "/app")
    if isinstance(raised.value, DirectoryReplacedError):
        assert raised.value.reason is FailureReason.UNSAFE_WORKSPACE


def test_what_is_forgotten_keeps_its_number(handle: tuple[ProcessHandle, socket.socket], tmp_path: Path) -> None:
    """After changes are released, their descriptor's number is not reused: late readers never see other files."""
    directory = os.open(tmp_path, os.O_RDONLY)
    send(handle[1], pack({**ENDED, "collected": "changed", "opaque": OPAQUE, "whole": False}), [directory])
    os.close(directory)
    layer = changed_layer(handle[0], "/app")
    assert listed(layer.descriptor) == []
    handle[0].release_changes()
    assert os.open(tmp_path, os.O_RDONLY) != layer.descriptor
    with pytest.raises(NotADirectoryError):
        listed(layer.descriptor)


def collecting(driver: OciDriver, image: ResolvedImage, script: str, memory: int = 256 * MIB) -> tuple[int, bool]:
    """Run ``script`` in a sandbox with a writable root. Return the size of its changes, and whether memory ran out."""
    spec = SandboxSpec(
        image=image, read_only=False, user=(0, 0), collect=LIBRARY, limits=Limits(memory=memory, file_size=1024 * MIB)
    )
    with driver.create(spec) as sandbox:
        result = sandbox.run(Command(argv=("sh", "-c", script), timeout_seconds=60))
        layer = sandbox.collected()
        held = os.fstatvfs(layer.descriptor)
        return (held.f_blocks - held.f_bfree) * held.f_frsize, result.out_of_memory


@pytest.mark.oci
def test_what_is_written_to_the_root_counts_as_memory(oci_driver: OciDriver, base_image: ResolvedImage) -> None:
    """A command that writes more to its root than its memory limit is killed. What it wrote stays within the limit."""
    if "memory" in oci_driver.info().weaker:
        pytest.skip("this driver says that it does not limit memory")
    held, out_of_memory = collecting(
        oci_driver, base_image, f"head -c {200 * MIB} /dev/zero > {LIBRARY}/big", memory=64 * MIB
    )
    assert out_of_memory
    assert MIB < held <= 65 * MIB


@pytest.mark.oci
@pytest.mark.parametrize("end", ["close", "kill_all"])
def test_changes_go_with_their_sandbox(base_image: ResolvedImage, oci_driver: OciDriver, end: str) -> None:
    """Closing a sandbox, or ``kill_all``, releases its changes, even if a reader still has the descriptor."""
    with closing(OciDriver(runtime=oci_driver.info().runtime, store=oci_driver.store)) as driver:
        sandbox = driver.create(SandboxSpec(image=base_image, read_only=False, user=(0, 0), collect=LIBRARY))
        sandbox.run(Command(argv=("sh", "-c", f"echo x > {LIBRARY}/new"), timeout_seconds=60))
        layer = sandbox.collected()
        assert isinstance(layer, CollectedLayer)
        assert listed(layer.descriptor) == ["new"]
        sandbox.close() if end == "close" else driver.kill_all()
        with pytest.raises(NotADirectoryError):
            listed(layer.descriptor)


@pytest.mark.oci
def test_files_of_the_layer_are_whole(base_image: ResolvedImage, oci_driver: OciDriver) -> None:
    """If only a file's mode was changed, its content is collected too. A directory of the image cannot be renamed."""
    script = f'chmod 700 {LIBRARY}/message.py; python3 -c \'import os; os.rename("{LIBRARY}/mime", "{LIBRARY}/x")\''
    with (
        oci_driver.create(SandboxSpec(image=base_image, read_only=False, user=(0, 0), collect=LIBRARY)) as sandbox,
        oci_driver.image_tree(base_image) as tree,
    ):
        result = sandbox.run(Command(argv=("sh", "-c", script), timeout_seconds=60))
        layer = sandbox.collected()
        content = Path(f"/proc/self/fd/{layer.descriptor}/message.py").read_bytes()
        assert content == (tree.root / LIBRARY[1:] / "message.py").read_bytes()
        assert listed(layer.descriptor) == ["message.py"]
        assert b"EXDEV" in result.stderr or b"cross-device" in result.stderr
