"""Images of Django and SymPy releases from PyPI, with bugs that were added for tests."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from image_archives import directory, file, layer
from securebench.images.build.derived.compose import Additions, Base, add_image
from securebench.images.store.index import ImageSource, Origin
from securebench.testing.judging.repository import COMMIT, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from image_archives import Part
    from securebench.images.store.image_store import ImageStore

_PIP_DOWNLOAD = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d")
_PACKAGES = "usr/local/lib/python3.11/dist-packages"


@dataclass(frozen=True)
class Bug:
    """A bug in ``path``: ``right`` is replaced with ``wrong``. ``label`` is the argument that selects the tests."""

    path: str
    right: str
    wrong: str
    label: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release:
    """A release of a project, the packages that it needs, and the bugs that can be added to it."""

    project: str
    version: str
    needs: tuple[str, ...]
    bugs: tuple[Bug, ...] = field(default_factory=tuple)

    @property
    def command(self) -> list[str]:
        """The test command in SWE-bench's rows for this project, without labels."""
        if self.project == "Django":
            return ["python3", "./tests/runtests.py", "--verbosity", "2", "--settings=test_sqlite", "--parallel", "1"]
        warnings = ["-W", "ignore::UserWarning", "-W", "ignore::SyntaxWarning"]
        return ["python3", *warnings, "bin/test", "-C", "--verbose"]

    def download(self, cache: Path) -> Path:
        """Return the path of the source distribution in ``cache``.

        If it is missing, download it and the needed wheels.
        """
        cache.mkdir(parents=True, exist_ok=True)
        found = sorted(cache.glob(f"{self.project}-{self.version}.tar.gz"))
        if not found:
            source = ["--no-binary", ":all:", f"{self.project}=={self.version}"]
            subprocess.run([*_PIP_DOWNLOAD, str(cache), *source], check=True)
            download_wheels(cache, self.needs)
        return cache / f"{self.project}-{self.version}.tar.gz"

    def files(self, cache: Path) -> dict[str, bytes]:
        """Return the release's files by their path."""
        found = {}
        with tarfile.open(self.download(cache)) as archive:
            for member in archive:
                name = member.name.partition("/")[2]
                if member.isfile() and name:
                    content = archive.extractfile(member)
                    assert content is not None
                    found[name] = content.read()
        return found

    def image(self, store: ImageStore, cache: Path, bug: Bug, reference: str) -> dict[str, bytes]:
        """Add an image with the bug to ``store``, and return the release's original files."""
        files = self.files(cache)
        text = files[bug.path].decode()
        assert bug.right in text, bug
        broken = {**files, bug.path: text.replace(bug.right, bug.wrong).encode()}
        add_repository_image(store, broken, [*wheel_parts(cache, self.needs), _path_file()], reference)
        return files


def add_repository_image(store: ImageStore, files: dict[str, bytes], parts: Sequence[Part], reference: str) -> None:
    """Add an image to ``store``. It has a repository with ``files``, and ``parts`` outside of the repository."""
    base = store.find("securebench/python:3.11")
    assert base is not None
    with store.incoming(Origin(ImageSource.ARCHIVE, "tests")) as incoming:
        made = incoming.take([layer(*_repository(files), *parts)])
        incoming.name(add_image(incoming, Base(base.id, *store.documents(base.id)), [made], Additions()), reference)


def download_wheels(cache: Path, needs: Sequence[str]) -> None:
    """Download the wheels of ``needs`` to ``cache``."""
    subprocess.run([*_PIP_DOWNLOAD, str(cache), *needs], check=True)


def wheel_parts(cache: Path, needs: Sequence[str]) -> list[Part]:
    """Return the files in the wheels of ``needs``, at the paths of installed packages."""
    parts = []
    for need in needs:
        name = need.partition("=")[0].replace("-", "_")
        (path,) = cache.glob(f"{name}-*.whl")
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as wheel:
            parts += [file(f"{_PACKAGES}/{entry}", wheel.read(entry)) for entry in wheel.namelist() if entry[-1] != "/"]
    return parts


def _repository(files: dict[str, bytes]) -> list[Part]:
    top = REPOSITORY.strip("/")
    commit = {".git/HEAD": b"ref: refs/heads/main\n", ".git/refs/heads/main": COMMIT.encode() + b"\n"}
    return [directory(top), *(file(f"{top}/{name}", data) for name, data in {**files, **commit}.items())]


def _path_file() -> Part:
    """Return a ``.pth`` file with which Python finds the repository, as with an editable install."""
    return file(f"{_PACKAGES}/repository.pth", f"{REPOSITORY}\n".encode())


_DJANGO_BUGS = (
    Bug(
        "django/utils/dateparse.py",
        "return days + sign * datetime.timedelta(**kw)",
        "return days + datetime.timedelta(**kw)",
        "utils_tests.test_dateparse",
        ("test_negative (utils_tests.test_dateparse.DurationParseTests)",),
        ("test_seconds (utils_tests.test_dateparse.DurationParseTests.test_seconds)",),
    ),
    Bug(
        "django/db/models/query.py",
        "return {getattr(obj, field_name): obj for obj in qs}",
        "return {obj.pk: obj for obj in qs}",
        "lookup.tests",
        ("test_in_bulk_with_field (lookup.tests.LookupTests.test_in_bulk_with_field)",),
        ("test_in_bulk (lookup.tests.LookupTests)", "test_exists (lookup.tests.LookupTests)"),
    ),
    Bug(
        "django/db/migrations/operations/fields.py",
        "elif isinstance(operation, RemoveField):\n                return []",
        "elif isinstance(operation, RemoveField):\n                return [operation]",
        "migrations.test_optimizer",
        ("RemoveField should cancel AddField",),
        ("AlterField should optimize into AddField.", "test_none_app_label (migrations.test_optimizer.OptimizerTests)"),
    ),
)
_SYMPY_BUGS = (
    Bug(
        "sympy/ntheory/multinomial.py",
        "a = (a * (n - k + 1))//k",
        "a = (a * (n - k))//k",
        "sympy/ntheory/tests/test_multinomial.py",
        ("test_binomial_coefficients_list", "test_multinomial_coefficients"),
    ),
    Bug(
        "sympy/utilities/iterables.py",
        "    return x[y:] + x[:y]",
        "    return x[y:]",
        "sympy/utilities/tests/test_iterables.py",
        ("test_rotate",),
        ("test_topological_sort", "test_flatten", "test_variations"),
    ),
    Bug(
        "sympy/utilities/iterables.py",
        '        raise ValueError("cycle detected")',
        "        return L",
        "sympy/utilities/tests/test_iterables.py",
        ("test_topological_sort",),
        ("test_rotate", "test_flatten"),
    ),
)
DJANGO_NEEDS = ("asgiref==3.7.2", "sqlparse==0.4.4", "pytz==2023.3", "typing_extensions==4.8.0")
RELEASES = (
    *(Release("Django", v, DJANGO_NEEDS, _DJANGO_BUGS) for v in ("3.2.25", "4.0.10", "4.1.13", "4.2.16", "5.0.9")),
    *(Release("sympy", v, ("mpmath==1.3.0",), _SYMPY_BUGS) for v in ("1.9", "1.10.1", "1.11.1", "1.12")),
)
