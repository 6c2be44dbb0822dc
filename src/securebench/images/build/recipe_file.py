"""The strict reader of ``recipe.yaml``. A pack's recipe is untrusted input."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from securebench.errors import ConfigError
from securebench.families.fields import Argument
from securebench.images.build.derived.wheels import PIN, PROJECT
from securebench.images.build.recipe_kinds import DerivedRecipe, DockerfileRecipe, GitSource, PypiSource, SystemRecipe
from securebench.images.reference import check_reference
from securebench.strict_input.faults import Problems
from securebench.strict_input.files import read_text
from securebench.strict_input.models import OPTIONAL, WireModel, fit, matching, refusal
from securebench.strict_input.yaml_text import MAX_YAML_BYTES, parse_yaml

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Self

    from securebench.images.build.recipe_kinds import Recipe, Source

_NOT_KEPT = ("/proc", "/sys", "/dev", "/tmp", "/run")  # noqa: S108 - paths inside an image


def _checked_reference(reference: str) -> str:
    try:
        check_reference(reference)
    except ConfigError as error:
        raise refusal(error.code, "is not an image reference", error.hint) from None
    return reference


def _image_path(path: str) -> str:
    """Return ``path`` if a recipe may use it as a path in an image. Otherwise, raise a validation error."""
    parts = path.split("/")
    if not path.startswith("/") or {"..", "."} & set(parts) or "" in parts[1:] or "\0" in path:
        raise refusal(
            "field-value",
            "must be an absolute path other than '/', without '.', '..', empty parts or a slash at its end",
        )
    if any(path == top or path.startswith(f"{top}/") for top in _NOT_KEPT):
        raise refusal("field-value", "must not be at or below /proc, /sys, /dev, /tmp or /run: images do not keep them")
    return path


def _local_path(path: str) -> str:
    """Return ``path`` if it stays inside the recipe's directory. Otherwise, raise a validation error."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path or not path.strip("/"):
        raise refusal("path-unsafe", "must be a relative path inside the recipe's directory, without '..'")
    return path


def _pattern(pattern: str, what: str) -> AfterValidator:
    return matching(re.compile(pattern, re.ASCII), what)


Text = Annotated[str, Field(min_length=1)]
Tagged = Annotated[
    str,
    _pattern(
        r"[a-z0-9]+(?:[._/-][a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9_.-]*",
        "the name of an image with a tag, such as 'securebench/tool:1'",
    ),
]
Reference = Annotated[str, AfterValidator(_checked_reference)]
Package = Annotated[str, _pattern(r"[a-z0-9][a-z0-9+.-]+", "the name of a Debian package")]
Suite = Annotated[str, _pattern(r"[a-z]+", "the name of a Debian release, such as 'bookworm'")]
ImagePath = Annotated[str, AfterValidator(_image_path)]
LocalPath = Annotated[str, AfterValidator(_local_path)]
Variable = Annotated[str, _pattern(r"[A-Za-z_][A-Za-z0-9_]*", "the name of a variable")]
Project = Annotated[str, _pattern(PROJECT, "the name of a Python project")]
Version = Annotated[str, _pattern(r"[A-Za-z0-9](?:[A-Za-z0-9._+!-]*[A-Za-z0-9])?", "a version, such as '1.2.3'")]
Pin = Annotated[str, _pattern(PIN, "an exact requirement, such as 'pytest==8.3.3'")]
Sha256 = Annotated[str, _pattern(r"[0-9a-f]{64}", "a SHA-256 digest: 64 lowercase hexadecimal digits")]
Commit = Annotated[str, _pattern(r"[0-9a-f]{40}", "the full id of a commit: 40 lowercase hexadecimal digits")]
Url = Annotated[
    str,
    _pattern(
        r"https://[A-Za-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9._~/%+-]+",
        "an https address without a user, such as 'https://example.com/project.git'",
    ),
]
PythonVersion = Annotated[str, _pattern(r"3\.[0-9]{1,2}", "a version of Python, such as '3.11'")]
Step = Annotated[list[Argument], Field(min_length=1)]


class _Common(WireModel):
    reference: Tagged
    summary: Text
    checks: list[Step]

    def common(self, directory: Path) -> dict[str, Any]:
        """Return the fields that all kinds of recipe share."""
        return {
            "name": directory.name,
            "directory": directory,
            "reference": self.reference,
            "summary": self.summary,
            "checks": tuple(map(tuple, self.checks)),
        }


class _Debian(WireModel):
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


class _Pypi(WireModel):
    name: Project
    version: Version
    sha256: Sha256 = OPTIONAL


class _Git(WireModel):
    commit: Commit
    url: Url = OPTIONAL
    path: Text = OPTIONAL

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if len(self.model_fields_set & {"url", "path"}) != 1:
            raise refusal("recipe-invalid", "must have exactly one of 'url' and 'path'")
        return self


class _Source(WireModel):
    pypi: _Pypi = OPTIONAL
    git: _Git = OPTIONAL

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise refusal("recipe-invalid", "must have exactly one of 'pypi' and 'git'")
        return self

    def source(self, directory: Path) -> Source:
        if "pypi" in self.model_fields_set:
            return PypiSource(name=self.pypi.name, version=self.pypi.version, sha256=self.pypi.sha256 or "")
        path = directory / self.git.path if "path" in self.git.model_fields_set else None
        return GitSource(commit=self.git.commit, url=self.git.url or "", path=path)


class _DerivedFile(_Common):
    base: Reference
    workdir: ImagePath = OPTIONAL
    environment: dict[Variable, Argument] = Field(default_factory=dict)
    files: dict[LocalPath, ImagePath] = Field(default_factory=dict)
    python: PythonVersion = "3.11"
    requirements: list[Pin] = Field(default_factory=list)
    source: _Source = OPTIONAL
    install: list[Step] = Field(default_factory=list)
    run: list[Step] = Field(default_factory=list)
    checks: list[Step] = Field(default_factory=list)

    @field_validator("source")
    @classmethod
    def _has_workdir(cls, source: _Source, info: ValidationInfo) -> _Source:
        if info.data.get("workdir", "") is None:
            raise refusal("recipe-invalid", "needs the recipe's key 'workdir', which says where to unpack the source")
        return source

    def recipe(self, directory: Path) -> Recipe:
        return DerivedRecipe(
            **self.common(directory),
            base=self.base,
            workdir=self.workdir or "",
            environment=self.environment,
            files=self.files,
            python=self.python,
            requirements=tuple(self.requirements),
            source=self.source.source(directory) if "source" in self.model_fields_set else None,
            install=tuple(map(tuple, self.install)),
            run=tuple(map(tuple, self.run)),
        )


class _DockerfileFile(_Common):
    dockerfile: LocalPath
    context: LocalPath = "."
    base_images: dict[Reference, Reference] = Field(default_factory=dict)
    build_args: dict[Variable, Argument] = Field(default_factory=dict)
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


_MODELS: dict[str, type[_SystemFile | _DockerfileFile]] = {"debian": _SystemFile, "dockerfile": _DockerfileFile}
"""The Pydantic model for each key that marks a kind of recipe.

A recipe with none of these keys is for a derived image.
"""


def read_recipe(path: Path) -> Recipe:
    """Return the recipe of a file. Raises :class:`ConfigError` with every problem and its line and column."""
    text, _ = read_text(path, "recipe", MAX_YAML_BYTES)
    value, source, faults = parse_yaml(text, str(path))
    problems = Problems()
    problems.extend(faults, source)
    problems.raise_if_any()
    model, faults = fit(_model(value), value)
    problems.extend(faults, source)
    problems.raise_if_any()
    assert model is not None
    return model.recipe(path.parent)


def _model(value: Any) -> type[_SystemFile | _DerivedFile | _DockerfileFile]:
    """Return the Pydantic model of the recipe's kind, even if the key that marks the kind is misspelled.

    So the errors are about the fields of this kind.
    """
    keys = value if isinstance(value, dict) else ()
    found = [near for key in keys for near in get_close_matches(key, _MODELS, n=1, cutoff=0.8)]
    return _MODELS[found[0]] if found else _DerivedFile
