"""The setup of repositories on a base image, from YAML files: those shipped here and one from the user.

A file contains a list ``setups``. Each setup names a repository, its versions and the wheels that its tests need. For a
version, it may also name a release on the package index. If there is no clone of the repository, images are built from
this release instead of a commit. See docs/how-to/import-a-benchmark.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from securebench.strict_input.faults import Fault, Problems
from securebench.strict_input.files import read_text
from securebench.strict_input.models import OPTIONAL, WireModel, fit, refusal
from securebench.strict_input.yaml_text import MAX_YAML_BYTES, parse_yaml
from securebench.tasks import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SHIPPED: Final = Path(__file__).parent / "setups"

_PIN: Final = re.compile(r"([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9])==[A-Za-z0-9][A-Za-z0-9._+!-]*")
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def _pin(text: str) -> str:
    if not _PIN.fullmatch(text):
        raise refusal(
            "field-value", "must pin one version, as name==version", "ranges, extras and markers are not allowed"
        )
    return text


def _repository(text: str) -> str:
    if not _REPOSITORY.fullmatch(text):
        raise refusal("field-value", "must be owner/name, as in the rows")
    return text


_Repository = Annotated[str, AfterValidator(_repository)]
_Project = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
_Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._+!-]*[A-Za-z0-9])?$")]
_Pin = Annotated[str, AfterValidator(_pin)]
_Python = Annotated[str, StringConstraints(pattern=r"^3\.[0-9]{1,2}$")]
_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
_Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
_Step = Annotated[list[_Text], Field(min_length=1)]


class SourceRelease(WireModel):
    """A source distribution on the package index, pinned by sha256 (hex).

    ``commit`` is the id of the commit that a build makes from the release, or empty if it is not known in advance.
    This id depends only on the release's content. ``absent`` are tests of the upstream commit that the release lacks
    or fails.
    """

    name: _Project
    version: _Version
    sha256: _Sha256
    commit: _Commit = ""
    absent: list[_Text] = Field(default_factory=list)


class VersionModel(WireModel):
    """Settings of one version. Images are built from ``release`` if there is no clone of the repository."""

    release: SourceRelease = OPTIONAL


class Setup(WireModel):
    """How versions of a repository are installed on the image ``base``, with pins for everything that their tests need.

    ``version_from_git`` is set if the repository's build takes the version number from git's history, which the image
    lacks. ``install`` are the commands (argument vectors) that install the repository, run in its directory. By
    default, pip installs it.
    """

    repository: _Repository
    versions: Annotated[dict[_Version, VersionModel], Field(min_length=1)]
    requirements: Annotated[list[_Pin], Field(min_length=1)]
    base: _Text = DEFAULT_IMAGE
    python: _Python = "3.11"
    version_from_git: bool = False
    install: Annotated[list[_Step], Field(min_length=1)] = Field(default_factory=list)

    @property
    def has_pytest(self) -> bool:
        """Whether pytest is pinned."""
        return any(pin.partition("==")[0].lower() == "pytest" for pin in self.requirements)


class PinsModel(WireModel):
    """A file of pins."""

    setups: Annotated[list[Setup], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Pins:
    """Setups and source releases. Each key is a repository and the authors' ``version``."""

    setups: Mapping[tuple[str, str], Setup] = field(default_factory=dict)
    releases: Mapping[tuple[str, str], SourceRelease] = field(default_factory=dict)

    def over(self, other: Pins) -> Pins:
        """Return these pins and ``other`` merged. For a version in both, ``other``'s setup and release are ignored."""
        releases = {key: release for key, release in other.releases.items() if key not in self.setups}
        return Pins({**other.setups, **self.setups}, {**releases, **self.releases})

    @property
    def known(self) -> str:
        """The repositories and their versions, for a message."""
        versions: dict[str, list[str]] = {}
        for repository, version in self.setups:
            versions.setdefault(repository, []).append(version)
        return "; ".join(f"{repository} {', '.join(found)}" for repository, found in sorted(versions.items()))


@cache
def shipped_pins() -> Pins:
    """Return SecureBench's own pins."""
    pins = Pins()
    for path in sorted(_SHIPPED.glob("*.yaml")):
        pins = read_pins(path).over(pins)
    return pins


def read_pins(path: Path) -> Pins:
    """Return the pins of a file. Raises :class:`ConfigError` with all problems, by line and column."""
    text, _ = read_text(path, "pins", MAX_YAML_BYTES)
    value, source, faults = parse_yaml(text, str(path))
    problems = Problems()
    problems.extend(faults, source)
    problems.raise_if_any()
    model, unfit = fit(PinsModel, value)
    problems.extend(unfit if model is None else _twice(model), source)
    problems.raise_if_any()
    assert model is not None  # otherwise a problem was raised above
    setups, releases = {}, {}
    for one in model.setups:
        for version, special in one.versions.items():
            setups[one.repository, version] = one
            if special.release is not None:
                releases[one.repository, version] = special.release
    return Pins(setups, releases)


def _twice(model: PinsModel) -> Iterator[Fault]:
    """Yield a fault for each version that has two setups in a file, and for each package that a setup pins twice."""
    claimed: set[tuple[str, str]] = set()
    for place, one in enumerate(model.setups):
        for version in one.versions:
            if (one.repository, version) in claimed:
                yield Fault(
                    "field-value",
                    f"{one.repository} {version} already has a setup above",
                    ("setups", place, "versions"),
                )
            claimed.add((one.repository, version))
        names = [pin.partition("==")[0].lower().replace("_", "-").replace(".", "-") for pin in one.requirements]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Fault("field-value", f"{name} is already pinned above", ("setups", place, "requirements", index))
