"""The interface to a test runner: how to start it, which tests it selects, and how it names them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GUEST = "/opt/securebench/tests"
"""Where a sandbox mounts the modules of ``guest/``."""

NO_BYTECODE: Final[Mapping[str, str]] = MappingProxyType({"PYTHONDONTWRITEBYTECODE": "1"})
"""The variable that keeps Python from writing bytecode, which later processes would load."""


class CasePlace(NamedTuple):
    """Where a test is defined: file name without ``.py``, classes from the outermost, function without parameters.

    Ids of unittest contain modules instead of files. For them, the ``stem`` of ``PACKAGE/__init__.py`` is ``PACKAGE``.
    """

    stem: str
    classes: tuple[str, ...]
    function: str


class Adapter(ABC):
    """A test command whose runner reports each test by name."""

    runner: ClassVar[str]
    """The runner's name in records."""

    functions: ClassVar[bool] = True
    """Whether functions outside of classes can be tests."""

    plain_classes: ClassVar[bool] = False
    """Whether methods of classes without a base class can be tests."""

    protected: ClassVar[tuple[str, ...]] = ()
    """Modules that the runner uses and that honest code never changes.

    ``NAME.*`` means all loaded submodules of NAME.
    """

    @property
    @abstractmethod
    def argv(self) -> tuple[str, ...]:
        """The argv of the task's command with the reporter. Arguments are kept, because tests could notice a change."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that the runner needs in addition to the environment of every check."""
        return NO_BYTECODE

    @property
    @abstractmethod
    def selected(self) -> tuple[str, ...]:
        """The files and directories that the command names, relative to its working directory."""

    @property
    @abstractmethod
    def narrows(self) -> bool:
        """Whether the command selects single tests by name or mark. The reporter must then also select the controls."""

    def selects_method(self, _is_file: Callable[[str], bool]) -> bool:
        """Return whether the command names a single test in a way that keeps controls from running beside it.

        Such a command can only be judged by its exit code. ``_is_file`` returns whether a path, relative to the working
        directory, is a file of the repository after the task's patches were applied.
        """
        return False

    @property
    def collecting(self) -> Adapter | None:
        """An adapter that only lists the tests of this command; ``None`` if the runner cannot do this."""
        return None

    @abstractmethod
    def file(self, test: str) -> str | None:
        """Return the file of the test id ``test`` relative to the working directory, or ``None`` if the id has none."""

    def owns(self, _path: str) -> bool:
        """Return whether ``_path`` belongs to the test runner or is its configuration, and so affects outcomes.

        ``_path`` is absolute, or relative to the working directory. A candidate may change such a file only if a
        pattern in the task's ``allow_sensitive_paths`` matches it. Even then, the file is restored before the tests
        run, unless one of the patterns is its exact path.
        """
        return False

    def stem(self, path: str) -> str:
        """Return the ``stem`` of a :class:`CasePlace` for tests in the file ``path``."""
        return PurePosixPath(path).stem

    def names(self, test: str) -> tuple[str, ...]:
        """Return the names that the logs of test runs use for the test with the reported id ``test``.

        The data sets of benchmarks may use any of these names, too.
        """
        return (test,)

    @abstractmethod
    def place(self, test: str) -> CasePlace | None:
        """Return where the test with this reported or expected id is defined; ``None`` if the id does not show it."""
