"""The format of a row (except for what its family defines) and of the environment in a row or a manifest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator

from securebench.families.fields import ContainerDirectory, FileReferenceModel, Identifier, Seconds
from securebench.families.registry import FAMILIES
from securebench.strict_input.faults import did_you_mean, shown
from securebench.strict_input.models import OPTIONAL, WireModel, refusal
from securebench.tasks import Environment

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_IMAGE_LENGTH: Final = 512
"""The maximum number of characters in an image reference. Registries allow 255 for the name and 128 for the tag."""

MAX_ASSETS: Final = 1000
"""The maximum number of asset objects of one row."""

_IMAGE = re.compile(
    r"""(?xa) (?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?          # registry
    [a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)* # name
    (?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?                                            # tag
    (?:@sha256:[0-9a-f]{64})?                                                          # digest
    """
)


def _image(reference: str) -> str:
    if len(reference) > MAX_IMAGE_LENGTH or not _IMAGE.fullmatch(reference):
        raise refusal(
            "image-invalid",
            "is not an image reference",
            "expected NAME[:TAG][@sha256:DIGEST], with NAME and DIGEST in lower case",
        )
    return reference


ImageName: TypeAlias = Annotated[str, AfterValidator(_image)]
"""A reference to an image."""


class EnvironmentModel(WireModel):
    """Where a task runs, and its time limit."""

    image: ImageName = OPTIONAL
    workdir: ContainerDirectory = OPTIONAL
    timeout_seconds: Seconds = OPTIONAL
    materialize_workdir_from_image: bool = OPTIONAL


def merge_environment(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> Environment:
    """Merge a row's environment: each key comes from the row, else from the manifest, else it has its default."""
    return Environment(**{**defaults, **own})


def _known_family(name: str) -> str:
    if name not in FAMILIES:
        raise refusal("family-unknown", f"is {shown(name)}, which is not a known family", did_you_mean(name, FAMILIES))
    return name


def _few(assets: list[FileReferenceModel]) -> list[FileReferenceModel]:
    if len(assets) > MAX_ASSETS:
        raise refusal("too-many-assets", f"contains more than {MAX_ASSETS} assets", "reference a directory instead")
    return assets


FamilyName: TypeAlias = Annotated[str, AfterValidator(_known_family)]


class RowModel(WireModel):
    """A row. The Pydantic models of its family validate ``input`` and ``eval``, unless the family is deferred."""

    id: Identifier
    family: FamilyName = OPTIONAL
    input: dict[str, Any] = OPTIONAL
    eval: dict[str, Any] = OPTIONAL
    assets: Annotated[list[FileReferenceModel], AfterValidator(_few)] = OPTIONAL
    environment: EnvironmentModel = OPTIONAL
    metadata: dict[str, Any] = OPTIONAL
