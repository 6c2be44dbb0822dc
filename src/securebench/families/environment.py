"""The environment object of manifests and rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator

from securebench.families.fields import ContainerDirectory, Seconds
from securebench.strict_input.models import OPTIONAL, WireModel, refusal
from securebench.tasks import Environment

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_IMAGE_LENGTH: Final = 512
"""Characters of an image reference: a registry's limit is 255 for the name and 128 for the tag."""

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
            "image-invalid", "is not an image reference", "expected NAME[:TAG][@sha256:DIGEST], in lower case"
        )
    return reference


ImageName: TypeAlias = Annotated[str, AfterValidator(_image)]
"""A reference to an image."""


class EnvironmentModel(WireModel):
    """Where a task runs."""

    image: ImageName = OPTIONAL
    workdir: ContainerDirectory = OPTIONAL
    timeout_seconds: Seconds = OPTIONAL
    materialize_workdir_from_image: bool = OPTIONAL


def merge_environment(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> Environment:
    """Merge a row's environment: each key comes from the row, else from the manifest, else it has its default."""
    return Environment(**{**defaults, **own})
