"""``recipe.yaml``, read strictly: which kind of recipe it is, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from securebench.errors import ConfigError, Problem, SourceLocation
from securebench.images.build.recipe_kinds import DerivedRecipe, DockerfileRecipe, GitSource, PypiSource, SystemRecipe
from securebench.images.reference import check_reference

if TYPE_CHECKING:
    from typing import Any, Self

    from securebench.images.build.recipe_kinds import Recipe, Source

_KEPT_OUT = ("/proc", "/sys", "/dev", "/tmp", "/run")  # noqa: S108 - paths inside an image


def _checked_reference(reference: str) -> str:
    try:
        check_reference(reference)
    except ConfigError as error:
        raise ValueError(error.message) from None
    return reference


def _inside(path: str) -> str:
    """Take a directory of an image that is not laid over when a sandbox is made."""
    parts = path.split("/")
    if not path.startswith("/") or ".." in parts or "." in parts or "" in parts[1:] or "\0" in path:
        raise ValueError("write it as an absolute path without '.', '..' or doubled slashes")
    if any(path == top or path.startswith(f"{top}/") for top in _KEPT_OUT):
        raise ValueError(f"nothing of {', '.join(_KEPT_OUT)} is kept in an image")
    return path


def _beside(path: str) -> str:
    """Take a relative path that does not lead out of the recipe's directory."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path or not path.strip("/"):
        raise ValueError("write it as a relative path below the recipe's directory, without '..'")
    return path


Text = Annotated[str, StringConstraints(min_length=1)]
Tagged = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Reference = Annotated[str, AfterValidator(_checked_reference)]
Package = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
Suite = Annotated[str, StringConstraints(pattern=r"^[a-z]+$")]
ImagePath = Annotated[str, AfterValidator(_inside)]
BesidePath = Annotated[str, AfterValidator(_beside)]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Value = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Project = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._+!-]*[A-Za-z0-9])?$")]
Pin = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9]([A-Za-z0-9._+!-]*)$")
]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Url = Annotated[str, StringConstraints(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9._~/%+-]+$")]
PythonVersion = Annotated[str, StringConstraints(pattern=r"^3\.[0-9]{1,2}$")]
Argument = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Step = Annotated[list[Argument], Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Common(_Strict):
    reference: Tagged
    summary: Text
    checks: list[Step]

    def common(self, directory: Path) -> dict[str, Any]:
        """Return what every recipe says."""
        return {
            "name": directory.name,
            "directory": directory,
            "reference": self.reference,
            "summary": self.summary,
            "checks": tuple(map(tuple, self.checks)),
        }


class _Debian(_Strict):
    suite: Suite
    packages: list[Package]
    environment: dict[str, str]
    command: list[str]


class _SystemFile(_Common):
    base: Tagged
    debian: _Debian

    def recipe(self, directory: Path) -> Recipe:
        return SystemRecipe(
            **self.common(directory),
            base=self.base,
            suite=self.debian.suite,
            packages=tuple(self.debian.packages),
            environment=self.debian.environment,
            command=tuple(self.debian.command),
        )


class _Pypi(_Strict):
    name: Project
    version: Version
    sha256: Sha256 | None = None


class _Git(_Strict):
    commit: Commit
    url: Url | None = None
    path: Text | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.url is None) == (self.path is None):
            raise ValueError("say where the clone is, with either 'url' or 'path'")
        return self


class _Source(_Strict):
    pypi: _Pypi | None = None
    git: _Git | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.pypi is None) == (self.git is None):
            raise ValueError("say where the source is from, with either 'pypi' or 'git'")
        return self

    def source(self, directory: Path) -> Source:
        if self.pypi:
            return PypiSource(name=self.pypi.name, version=self.pypi.version, sha256=self.pypi.sha256 or "")
        assert self.git
        path = directory / Path(self.git.path) if self.git.path else None
        return GitSource(commit=self.git.commit, url=self.git.url or "", path=path)


class _DerivedFile(_Common):
    base: Reference
    workdir: ImagePath | None = None
    environment: dict[Variable, Value] = Field(default_factory=dict)
    files: dict[BesidePath, ImagePath] = Field(default_factory=dict)
    python: PythonVersion = "3.11"
    requirements: list[Pin] = Field(default_factory=list)
    source: _Source | None = None
    install: list[Step] = Field(default_factory=list)
    run: list[Step] = Field(default_factory=list)
    checks: list[Step] = Field(default_factory=list)

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.source and (self.workdir is None or self.workdir == "/"):
            raise ValueError("a source needs a 'workdir' to lie in")
        return self

    def recipe(self, directory: Path) -> Recipe:
        return DerivedRecipe(
            **self.common(directory),
            base=self.base,
            workdir=self.workdir or "",
            environment=self.environment,
            files=self.files,
            python=self.python,
            requirements=tuple(self.requirements),
            source=self.source.source(directory) if self.source else None,
            install=tuple(map(tuple, self.install)),
            run=tuple(map(tuple, self.run)),
        )


class _DockerfileFile(_Common):
    dockerfile: BesidePath
    context: BesidePath | Literal["."] = "."
    base_images: dict[Reference, Reference] = Field(default_factory=dict)
    build_args: dict[Variable, Value] = Field(default_factory=dict)
    network: Literal["default", "none", "host"] = "default"
    checks: list[Step] = Field(default_factory=list)

    def recipe(self, directory: Path) -> Recipe:
        return DockerfileRecipe(
            **self.common(directory),
            dockerfile=directory / self.dockerfile,
            context=directory / self.context,
            base_images=self.base_images,
            build_args=self.build_args,
            network=self.network,
        )


def read_recipe(path: Path) -> Recipe:
    """Return the recipe of a file. Raises :class:`ConfigError` (``recipe-invalid``) with all that is wrong with it."""
    try:
        value = YAML(typ="safe").load(path)
        return _model(value).model_validate(value).recipe(path.parent)
    except ValidationError as error:
        raise ConfigError(problems=[_problem(path, item["loc"], item["msg"]) for item in error.errors()]) from None
    except (YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(problems=[_problem(path, (), str(error))]) from None


def _model(value: object) -> type[_SystemFile | _DerivedFile | _DockerfileFile]:
    """Choose by the one key that only one kind has."""
    keys = value.keys() if isinstance(value, dict) else ()
    if "debian" in keys:
        return _SystemFile
    return _DockerfileFile if "dockerfile" in keys else _DerivedFile


def _problem(path: Path, keys: tuple[int | str, ...], message: str) -> Problem:
    pointer = "".join(f"/{key}" for key in keys)
    return Problem("recipe-invalid", message, SourceLocation(str(path), pointer=pointer))
