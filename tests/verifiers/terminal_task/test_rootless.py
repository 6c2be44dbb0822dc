"""An ordinary user, without root, subordinate ids or cgroups, gets the same verdicts as root."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sandboxes.oci.test_rootless import home  # noqa: F401 - a fixture
from securebench.dangerous_commands import VerificationPolicy
from securebench.images.store.archive import import_path
from securebench.images.store.image_store import ImageStore
from securebench.sandboxes.oci import OciDriver
from securebench.testing.attacks.workspaces import CHEATS, CHECKER, SOLUTION
from securebench.testing.judging.workspace import WorkspaceJob
from workspaces.users import as_ordinary_user

if TYPE_CHECKING:
    from pathlib import Path

    from securebench.images.model import ResolvedImage

pytestmark = [pytest.mark.oci, pytest.mark.long]

_CHROOT = "import os\nos.mkdir('made')\nopen('sub/new', 'w').close()\nos.chroot('root')\n"


def test_an_ordinary_user_judges_alike(
    oci_driver: OciDriver,
    store: ImageStore,
    base_image: ResolvedImage,
    home: Path,  # noqa: F811 - the fixture
) -> None:
    """Without root, the solution passes, each cheat fails, and a checker can use chroot if its task needs it."""
    archive = home / "image.tar"
    with archive.open("wb") as file:
        file.writelines(store.saved(base_image.reference))
    archive.chmod(0o644)

    def judge() -> None:
        import_path(ImageStore(), archive, base_image.reference, lambda _text: None)
        job = WorkspaceJob(files={"check.py": CHECKER})
        allowed = WorkspaceJob(
            files={"check.py": _CHROOT},
            evals={"needed_commands": ["chroot"]},
            policy=VerificationPolicy(disallow_dangerous_commands=False),
        )
        with closing(OciDriver(runtime="crun")) as driver:
            assert job.judge(driver, home / "solution", SOLUTION).passed
            for number, cheat in enumerate(CHEATS):
                assert not job.judge(driver, home / f"cheat-{number}", cheat.tree).passed, cheat.name
            assert allowed.judge(driver, home / "chroot", {"root/hello": "", "sub/old": ""}).passed

    as_ordinary_user(judge)
