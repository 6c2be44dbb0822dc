"""Build a derived image: the layers of its base, one layer with its content, and one with the changes of its steps.

No engine is needed. Nothing that is downloaded runs on the host: steps run in a sandbox without network, as one shell
script, which announces each step and stops at the first failure.
"""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from securebench.errors import ImageError
from securebench.fs.archives import ArchiveLimits
from securebench.fs.streams import capped
from securebench.images.build.derived.compose import COMMIT_LABEL, SOURCE_LABEL, Additions, Base, add_image
from securebench.images.build.derived.content import content_layer
from securebench.images.build.derived.layer import MTIME
from securebench.images.build.derived.sources import fetch_source
from securebench.images.build.derived.wheels import fetch_wheels
from securebench.images.ensure import ensure_image
from securebench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from securebench.images.build.git.model import SourceTree
    from securebench.images.build.recipe_kinds import Argv, DerivedRecipe
    from securebench.images.layout import Descriptor
    from securebench.images.store.image_store import ImageStore
    from securebench.images.store.incoming import Incoming

TOOLS: Final = "/run/securebench"
"""Where a build's inputs are mounted read-only. Files below ``/run`` do not become part of an image."""

MARK: Final = "securebench: step"

_INSTALLER = Path(__file__).resolve().parent.parent / "guest" / "install_wheels.py"
_LINES_SHOWN = 10
_ENVIRONMENT = {
    # A compiled module records the modification time of its source. A layer resets all modification times, so Python
    # would ignore the compiled module.
    "PYTHONDONTWRITEBYTECODE": "1",
    "SOURCE_DATE_EPOCH": str(MTIME),
    # The sandbox cannot reach a package index. pip may change system packages: the image is used only for its tasks.
    "PIP_NO_INDEX": "1",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
"""Environment variables of the steps, in addition to those of the image."""

RunsSteps: TypeAlias = "Callable[[BuildScript, Callable[[bytes], None]], AbstractContextManager[StepsResult | None]]"
"""Runs the script in a sandbox, and passes the script's output to the function that is the second argument.

The context manager yields ``None`` if this machine cannot create sandboxes. The result is valid until the block ends.
Raises :class:`InfrastructureError`.
"""


def steps(recipe: DerivedRecipe) -> tuple[Argv, ...]:
    """Return the commands that run in a sandbox: the installer of wheels, ``install`` and ``run``."""
    wheels = (("python3", f"{TOOLS}/install_wheels.py", f"{TOOLS}/wheels"),) if recipe.requirements else ()
    return (*wheels, *recipe.install, *recipe.run)


def script(argvs: Sequence[Argv], workdir: str) -> str:
    """Return a shell script that runs ``argvs`` in order. Each starts in ``workdir``."""
    lines = ["set -eu", "umask 022"]
    for number, argv in enumerate(argvs, start=1):
        lines += [
            f"echo {shlex.quote(f'{MARK} {number} of {len(argvs)}: {shlex.join(argv)}')}",
            f"( cd {shlex.quote(workdir or '/')} && exec {shlex.join(argv)} )",
        ]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildScript:
    """A script for the shell of a stored image. The directory ``tools`` is mounted at :data:`TOOLS`."""

    image_id: str
    script: str
    environment: Mapping[str, str]
    tools: Path


@dataclass(frozen=True, slots=True)
class StepsResult:
    """The exit code of a build script, and the layer with its changes, which can be read once."""

    exit_code: int
    layer: Iterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedBuild:
    """One build. ``directory`` is for temporary files; ``log`` receives the output of the steps.

    ``temporary_labels`` are labels of the intermediate image in which the steps run. A driver may load that image into
    an engine. The build finds it there by these labels, and removes it.
    """

    store: ImageStore
    recipe: DerivedRecipe
    directory: Path
    log: Path
    report: Callable[[str], None]
    run_steps: RunsSteps
    temporary_labels: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the image. :meth:`add` adds a label for the source and one for the commit, if there is a source."""

    def add(self, incoming: Incoming) -> str:
        """Add the image to ``incoming``, still without a name, and return its id.

        Raises :class:`ConfigError` (``recipe-invalid``), :class:`ImageError` (``image-unavailable`` for the base,
        ``image-tool-missing``, ``image-build-failed``, ``image-too-large``), :class:`InfrastructureError`, and the
        errors of :func:`fetch_source` and :func:`fetch_wheels`.
        """
        recipe, base = self.recipe, self._base()
        source, origin = self._source()
        pieces, commit = content_layer(recipe, source)
        content = incoming.take(capped(pieces, ArchiveLimits().bytes, f"the content of {recipe.reference}"))
        labels = {**self.labels, SOURCE_LABEL: origin, COMMIT_LABEL: commit}
        additions = Additions(
            environment=recipe.environment,
            workdir=recipe.workdir,
            labels={name: value for name, value in labels.items() if value},
        )
        if not steps(recipe):
            return add_image(incoming, base, [content], additions)
        intermediate = replace(additions, labels=self.temporary_labels)
        changed = self._run_steps(incoming, add_image(incoming, base, [content], intermediate))
        return add_image(incoming, base, [content, changed], additions)

    def _base(self) -> Base:
        base = ensure_image(self.store, self.recipe.base, self.report)
        return Base(base.id, *self.store.documents(base.id))

    def _source(self) -> tuple[SourceTree | None, str]:
        if self.recipe.source is None:
            return None, ""
        return fetch_source(self.recipe.source, self.directory, self.report)

    def _run_steps(self, incoming: Incoming, image_id: str) -> Descriptor:
        """Run the steps in the image, and return the layer with their changes."""
        image = self.store.find(image_id)
        assert image is not None
        build_script = BuildScript(
            image_id=image_id,
            script=script(steps(self.recipe), self.recipe.workdir),
            environment={**image.environment, **_ENVIRONMENT},
            tools=self._tools(),
        )
        with self.log.open("ab") as log, self.run_steps(build_script, self._output_handler(log.write)) as result:
            if result is None:
                raise ImageError(
                    f"{self.recipe.reference} has steps to run, but this machine cannot create sandboxes",
                    code="image-tool-missing",
                    hint="'securebench doctor' shows what is missing",
                )
            log.flush()
            if result.exit_code != 0:
                raise self._failed(result.exit_code)
            self.report("saving the changes")
            return incoming.take(capped(result.layer, ArchiveLimits().bytes, f"the steps of {self.recipe.reference}"))

    def _tools(self) -> Path:
        """Create and return the directory with the wheels and their installer."""
        tools = self.directory / "tools"
        wheels = tools / "wheels"
        wheels.mkdir(parents=True)
        if self.recipe.requirements:
            self.report(f"fetching {counted(len(self.recipe.requirements), 'wheel')}")
            fetched = fetch_wheels(self.recipe.requirements, self.recipe.python, wheels)
            self.log.write_text("".join(f"{line}\n" for line in fetched))
            shutil.copy(_INSTALLER, tools)
        for path in (tools, *tools.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # root in a sandbox may be another user on the host
        return tools

    def _output_handler(self, keep: Callable[[bytes], object]) -> Callable[[bytes], None]:
        """Return the function that receives all output. It saves the output, and reports the start of each step."""
        line = bytearray()

        def handle(data: bytes) -> None:
            keep(data)
            line.extend(data)
            *whole, rest = bytes(line).split(b"\n")
            line[:] = rest[-4096:]
            for text in whole:
                if text.startswith(MARK.encode()):
                    self.report(text.decode(errors="replace").removeprefix("securebench: "))

        return handle

    def _failed(self, exit_code: int) -> ImageError:
        lines = self.log.read_text(errors="replace").splitlines()
        step = next((line for line in reversed(lines) if line.startswith(MARK)), "the first step")
        tail = "\n".join(f"    {line}" for line in lines[-_LINES_SHOWN:])
        return ImageError(
            f"{step.removeprefix('securebench: ')} failed with exit code {exit_code}:\n{tail}",
            code="image-build-failed",
            hint=f"the full output is in {self.log}",
        )


def log_name(reference: str) -> str:
    """Return the file name of a build's log."""
    return f"{re.sub('[^A-Za-z0-9._-]', '-', reference)}.log"
