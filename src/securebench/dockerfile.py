"""Read the instructions of Dockerfiles, and find the images that they need. Nothing is executed.

Lines are joined as Docker's own parser joins them. If this module read an instruction differently from the build, a
hidden file could get into an agent's image.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(\S?).*")
_INSTRUCTION = re.compile(r"(?:ONBUILD\s+(?!FROM\s))?([A-Za-z]+)(?:\s+((?:--\S+\s+)*)(.*))?", re.DOTALL | re.IGNORECASE)
_HERE_DOCUMENT = re.compile(r"(?<!\S)\d*<<-?([\"']?)([A-Za-z_][A-Za-z0-9_]*)\1(?!\S)")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::([-+])([^}]*))?\}|([A-Za-z_]\w*))")
_FROM = re.compile(r"(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile. An ``ONBUILD`` is represented by the instruction that it triggers.

    ``written`` are its lines in the file, with its here-documents. ``name`` is in upper case. It is empty for comments,
    blank lines, and instructions whose first word does not consist of letters only. ``flags`` are the options such as
    ``--from=x``. ``operands`` is the rest, as one line.
    """

    written: str
    name: str = ""
    flags: tuple[str, ...] = ()
    operands: str = ""

    @property
    def source(self) -> str:
        """The value of ``--from`` of a ``COPY`` or ``ADD``, or an empty string."""
        values = [flag.removeprefix("--from=") for flag in self.flags if flag.startswith("--from=")]
        return values[-1] if values and self.name in ("COPY", "ADD") else ""


def instructions(text: str, *, here_documents: bool = True) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile, and the comments and blank lines between them: the whole text.

    With ``here_documents`` off, the lines of here-documents are read as instructions. Builders that do not support
    here-documents, such as Docker's classic builder before version 23, do the same.
    """
    lines: Iterator[str] = io.StringIO(text, newline="\n")
    escape, is_head = "\\", True
    for first in lines:
        directive = _DIRECTIVE.fullmatch(first.strip()) if is_head else None
        is_head = directive is not None
        if directive and directive[1].lower() == "escape":
            escape = directive[2] or escape
        if not first.strip() or first.lstrip().startswith("#"):
            yield Instruction(first)
            continue
        written, parts = [first], [first.strip()]
        while parts[-1].endswith(escape) and (more := next(lines, None)) is not None:
            written.append(more)
            # Comments and blank lines do not end an instruction.
            if more.strip() and not more.lstrip().startswith("#"):
                parts[-1] = parts[-1].removesuffix(escape)
                parts.append(more.rstrip())
        match = _INSTRUCTION.fullmatch("".join(parts).removesuffix(escape).strip())
        name, flags, operands = (match[1].upper(), match[2] or "", match[3] or "") if match else ("", "", "")
        if here_documents and name in ("RUN", "COPY", "ADD"):
            for found in _HERE_DOCUMENT.finditer(operands):
                written += _until(lines, found[2])
        yield Instruction("".join(written), name, tuple(flags.split()), operands)


def _until(lines: Iterator[str], word: str) -> Iterator[str]:
    for line in lines:
        yield line
        if line.strip() == word:
            return


class BaseImages:
    """Finds the images of a Dockerfile. Pass the instructions in order: it keeps track of arguments and stages.

    ``arguments`` are build arguments, which replace the defaults of ``ARG``.
    """

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._defaults: dict[str, str] = {}
        self._stages: set[str] = set()
        self.has_from = False

    def image(self, found: Instruction) -> str | None:
        """Return the image that ``FROM`` or ``--from`` names, or ``None`` if ``found`` names no image.

        Stages and ``scratch`` are not images.

        Raises :class:`ConfigError` (``dockerfile-invalid``) for a ``FROM`` that cannot be read.
        """
        if found.name == "FROM":
            match = _FROM.fullmatch(found.operands)
            if match is None:
                raise dockerfile_error(f"invalid FROM instruction: {found.written[:200]!r}")
            image = self._named(self._expanded(_unquoted(match[1])))
            self._stages.add((match[2] or "").lower())
            self.has_from = True
            return image
        if found.name == "ARG" and not self.has_from:
            name, _, default = found.operands.partition("=")
            self._defaults[name] = self._arguments.get(name, self._expanded(_unquoted(default)))
        return self._named(_unquoted(found.source)) if found.source and not found.source.isdigit() else None

    def _named(self, image: str) -> str | None:
        return None if image == "scratch" or image.lower() in self._stages - {""} else image

    def _expanded(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            name, how, word, plain = found.groups()
            known = self._defaults.get(name or plain, "")
            if how == "-":
                return known or word
            return (word if known else "") if how == "+" else known

        return _VARIABLE.sub(value, text)


def dockerfile_error(problem: str) -> ConfigError:
    """Return the error for a Dockerfile that cannot be read."""
    hint = "change the Dockerfile so that Docker's classic builder accepts it"
    return ConfigError(f"the Dockerfile cannot be read: {problem}", code="dockerfile-invalid", hint=hint)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
