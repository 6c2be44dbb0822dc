"""Building a derived image: its content as one layer, what its steps change as another, on the layers of its base.

No engine is needed, and on the host nothing is run of what comes in: steps run in a sandbox without network.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from securebench.errors import ImageError
from securebench.fs.archives import ArchiveLimits
from securebench.fs.streams import capped
from securebench.images.build.derived.compose import COMMIT_LABEL, SOURCE_LABEL, Additions, Base, add_image
from securebench.images.build.derived.content import content_layer
from securebench.images.build.derived.layer import MTIME
from securebench.images.build.derived.script import MARK, script, steps
from securebench.images.build.derived.sources import fetch_source
from securebench.images.build.derived.wheels import fetch_wheels
from securebench.images.ensure import provide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from securebench.images.build.git.model import SourceTree
    from securebench.images.build.recipe_kinds import DerivedRecipe
    from securebench.images.layout import Descriptor
    from securebench.images.store.image_store import ImageStore
    from securebench.images.store.incoming import Incoming

_INSTALLER = Path(__file__).resolve().parent.parent / "guest" / "install_wheels.py"
_LINES_SHOWN = 10
_ENVIRONMENT = {
    # Compiled modules that know the time of their source would not be used: all times of a layer are one.
    "PYTHONDONTWRITEBYTECODE": "1",
    "SOURCE_DATE_EPOCH": str(MTIME),
    # There is no index, and the image is nobody else's: pip needs neither to look for one nor to ask.
    "PIP_NO_INDEX": "1",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
"""What steps have beside the image's own variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildScript:
    """A script for the shell of an image of the store. ``tools`` is to be mounted where the script looks."""

    image_id: str
    script: str
    environment: Mapping[str, str]
    tools: Path


@dataclass(frozen=True, slots=True)
class Left:
    """How a job ended, and the layer that it has left, to be read once."""

    exit_code: int
    layer: Iterator[bytes]


RunsSteps: TypeAlias = "Callable[[BuildScript, Callable[[bytes], None]], AbstractContextManager[Left | None]]"
"""Runs a job in a sandbox, and gives all of its output to the function. ``None`` where nothing can make a sandbox.

What it gives is good while the block lasts. Raises :class:`InfrastructureError`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedBuild:
    """One build. ``directory`` is for temporary files, ``log`` keeps what the steps print.

    ``passing`` are labels of the image that the steps run in, which a driver may give to an engine: by them it is found
    there, and removed.
    """

    store: ImageStore
    recipe: DerivedRecipe
    directory: Path
    log: Path
    report: Callable[[str], None]
    run_steps: RunsSteps
    passing: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the image says of how it was built, beside its source and commit."""

    def add(self, incoming: Incoming) -> str:
        """Add the image, still without a name, and return its id.

        Raises :class:`ConfigError` (``recipe-invalid``), :class:`ImageError` (``image-unavailable`` for the base,
        ``image-build-failed``, and what sources and wheels raise) and :class:`InfrastructureError`.
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
        passing = replace(additions, labels=self.passing)
        changed = self._changed(incoming, add_image(incoming, base, [content], passing))
        return add_image(incoming, base, [content, changed], additions)

    def _base(self) -> Base:
        base = provide(self.store, self.recipe.base, self.report)
        return Base(base.id, *self.store.documents(base.id))

    def _source(self) -> tuple[SourceTree | None, str]:
        if self.recipe.source is None:
            return None, ""
        return fetch_source(self.recipe.source, self.directory, self.report)

    def _changed(self, incoming: Incoming, image_id: str) -> Descriptor:
        """Run the steps in the image, and return the layer of what they have changed."""
        image = self.store.find(image_id)
        assert image is not None
        build_script = BuildScript(
            image_id=image_id,
            script=script(steps(self.recipe), self.recipe.workdir),
            environment={**image.environment, **_ENVIRONMENT},
            tools=self._tools(),
        )
        with self.log.open("ab") as log, self.run_steps(build_script, self._listener(log.write)) as left:
            if left is None:
                raise ImageError(
                    f"{self.recipe.reference} has steps to run, and this machine has nothing to make a sandbox with",
                    code="image-tool-missing",
                    hint="'securebench doctor' says what this machine lacks",
                )
            log.flush()
            if left.exit_code != 0:
                raise self._failed(left.exit_code)
            self.report("keeping what was changed")
            return incoming.take(capped(left.layer, ArchiveLimits().bytes, f"the steps of {self.recipe.reference}"))

    def _tools(self) -> Path:
        """Return a directory with the wheels, and what installs them."""
        tools = self.directory / "tools"
        wheels = tools / "wheels"
        wheels.mkdir(parents=True)
        if self.recipe.requirements:
            self.report(f"fetching {len(self.recipe.requirements)} wheels")
            fetched = fetch_wheels(self.recipe.requirements, self.recipe.python, wheels)
            self.log.write_text("".join(f"{line}\n" for line in fetched))
            shutil.copy(_INSTALLER, tools)
        for path in (tools, *tools.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # a sandbox's root is nobody's on the host
        return tools

    def _listener(self, keep: Callable[[bytes], object]) -> Callable[[bytes], None]:
        """Return what is given all output: it is kept, and the beginning of each step is reported."""
        line = bytearray()

        def listen(data: bytes) -> None:
            keep(data)
            line.extend(data)
            *whole, rest = bytes(line).split(b"\n")
            line[:] = rest[-4096:]
            for text in whole:
                if text.startswith(MARK.encode()):
                    self.report(text.decode(errors="replace").removeprefix("securebench: "))

        return listen

    def _failed(self, exit_code: int) -> ImageError:
        lines = self.log.read_text(errors="replace").splitlines()
        step = next((line for line in reversed(lines) if line.startswith(MARK)), "the first step")
        words = "\n".join(f"    {line}" for line in lines[-_LINES_SHOWN:])
        return ImageError(
            f"{step.removeprefix('securebench: ')}: it ended with exit code {exit_code}; its last words:\n{words}",
            code="image-build-failed",
            hint=f"the whole of the output is in {self.log}",
        )


def log_name(reference: str) -> str:
    """Return the file name of a build's log."""
    return f"{re.sub('[^A-Za-z0-9._-]', '-', reference)}.log"
