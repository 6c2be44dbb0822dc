"""Replacing the base images of a Dockerfile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.dockerfile import BaseImages, dockerfile_error, instructions
from securebench.errors import ConfigError
from securebench.images.reference import canonical, check_reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.dockerfile import Instruction


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The rewritten Dockerfile, and the images that were not replaced, in order."""

    text: str
    images: tuple[str, ...]


def with_bases(text: str, bases: Mapping[str, str], arguments: Mapping[str, str]) -> Rewritten:
    """Replace the images that ``FROM`` and ``COPY --from`` name.

    ``bases`` maps image names, in any spelling, to replacements; ``arguments`` are build arguments. The
    ``--platform`` of a replaced image is dropped: the replacement has this machine's. Raises :class:`ConfigError`
    (``dockerfile-invalid``).
    """
    others = {_canonical(name): replacement for name, replacement in bases.items()}
    found = BaseImages(arguments)
    missing: dict[str, None] = {}
    written = []
    for instruction in instructions(text):
        image = found.image(instruction)
        other = None if image is None else others.get(_canonical(image))
        if image is not None and other is None:
            missing[image] = None
        written.append(instruction.written if other is None else _replaced(instruction, other))
    if not found.has_from:
        raise dockerfile_error("it has no FROM")
    return Rewritten("".join(written), tuple(missing))


def _replaced(found: Instruction, other: str) -> str:
    if found.name != "FROM":
        return found.written.replace(f"--from={found.source}", f"--from={other}", 1)
    _, *stage = found.operands.split(maxsplit=1)
    return " ".join(("FROM", other, *stage)) + "\n"


def _canonical(image: str) -> str:
    try:
        check_reference(image)
    except ConfigError:
        raise dockerfile_error(f"{image[:80]!r} is not an image reference") from None
    return canonical(image)
