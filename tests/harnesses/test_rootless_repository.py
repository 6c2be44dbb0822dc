"""An ordinary user without an engine runs agents in repositories: root in the sandbox is that user on the host."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from harnesses import repository
from harnesses.conftest import PATCH_VIEW, Bench
from layered_image import add_layered_image
from sandboxes.oci.test_rootless import home as home  # noqa: PLC0414 - a fixture
from securebench.errors import FailureReason
from securebench.fs.rmtree import remove_tree
from securebench.images.store.archive import RootConfig, add_root
from securebench.images.store.image_store import ImageStore
from securebench.images.store.index import ImageSource, Origin
from securebench.patches.model import FileVersion
from securebench.sandboxes.base import Limits
from securebench.sandboxes.oci import OciDriver
from securebench.tasks import DEFAULT_IMAGE
from tiny_root import tiny_root
from workspaces.users import as_ordinary_user

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oci

SCRIPT = f"""
printf %s '{repository.FIXED.decode()}' >src/adder/core.py || exit 1
echo new >new && echo x >/workspace/note && echo x >>"$SECUREBENCH_TASK_FILE"
"""


@pytest.mark.usefixtures("base_image")
def test_a_repository_of_an_ordinary_user(oci_driver: OciDriver, home: Path, tmp_path: Path) -> None:
    """H06: the agent's changes are sealed, it can write to the workspace, and the user can remove all that it left."""
    repository.make_repository(tmp_path / "made")
    root, parts = tiny_root(), repository.image_parts(tmp_path / "made/.git")

    def run() -> None:
        store = ImageStore()
        with store.incoming(Origin(ImageSource.ARCHIVE, "tests")) as incoming:
            incoming.name(add_root(incoming, [root], RootConfig({"PATH": "/bin"}), "tests"), "tests/beneath:1")
        add_layered_image(store, DEFAULT_IMAGE, *parts, beneath="tests/beneath:1")
        with closing(OciDriver(runtime="crun")) as driver:
            bench = Bench(driver, home, limits=Limits())
            agent_result = bench.produce(PATCH_VIEW, command=("/bin/sh", "-c", SCRIPT))
            assert agent_result.failure is None, (agent_result.failure, agent_result.stderr)
            assert agent_result.candidate is not None
            assert dict(bench.store.read_patch(agent_result.candidate)) == {
                b"src/adder/core.py": FileVersion(repository.FIXED),
                b"new": FileVersion(b"new\n"),
            }
            empty = bench.produce(PATCH_VIEW, command=("/bin/sh", "-c", ":"))
            assert empty.failure is not None
            assert empty.failure.reason is FailureReason.CANDIDATE_EMPTY
            remove_tree(bench.workspace)

    as_ordinary_user(run)
