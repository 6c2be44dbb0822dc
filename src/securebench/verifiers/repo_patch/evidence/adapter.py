"""What a test runner is to the evidence: how it is started, what it selects, and how it names tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

GUEST = "/opt/securebench/tests"
"""Where a sandbox has the modules of ``guest/``."""


class CasePlace(NamedTuple):
    """Where a test is defined: file name without ``.py``, classes from the outermost, function without parameters.

    Ids of unittest name modules and not files: there the ``stem`` of ``PACKAGE/__init__.py`` is ``PACKAGE``.
    """

    stem: str
    classes: tuple[str, ...]
    function: str


class Adapter(ABC):
    """A test command whose runner reports each test by name."""

    runner: ClassVar[str]
    """The runner's name, as records have it."""

    functions: ClassVar[bool] = True
    """Whether functions outside of classes can be tests."""

    plain_classes: ClassVar[bool] = False
    """Whether methods of classes without a base can be tests."""

    protected: ClassVar[tuple[str, ...]] = ()
    """Modules of the runner that no honest code changes: see ``securebench_fingerprint`` for their form."""

    @property
    @abstractmethod
    def argv(self) -> tuple[str, ...]:
        """The same command, with our reporter. Its own arguments are never changed: tests could see that."""

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Variables that it needs beside the environment of every check."""

    @property
    @abstractmethod
    def selected(self) -> tuple[str, ...]:
        """The files and directories that it names, as it names them: relative to where it runs."""

    @property
    @abstractmethod
    def narrows(self) -> bool:
        """Whether it selects single tests by name or mark, so that controls must be selected by the reporter."""

    @property
    def collecting(self) -> Adapter | None:
        """The same command, which only reports the tests that there are; ``None`` for a runner that cannot."""
        return None

    @abstractmethod
    def file(self, test: str) -> str | None:
        """Return the file of the test id ``test``, relative to where the command runs; ``None`` if it names none."""

    def owns(self, _path: str) -> bool:
        """Return whether ``path``, relative to where the command runs, is the runner's and decides outcomes.

        Candidates may not change such a file, unless the task names it, and it is put back before the tests run.
        """
        return False

    def stem(self, path: str) -> str:
        """Return how the runner's ids name the file ``path``: see :class:`CasePlace`."""
        return PurePosixPath(path).stem

    def names(self, test: str) -> tuple[str, ...]:
        """Return what logs, and so the ids of a data set, call the test with the reported id ``test``."""
        return (test,)

    @abstractmethod
    def place(self, test: str) -> CasePlace | None:
        """Return where the test with the reported or expected id ``test`` is defined; ``None`` if it does not say."""
