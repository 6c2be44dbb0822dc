"""The images that a Dockerfile starts from, and others in their place: read as the builder reads it, line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.errors import ConfigError
from securebench.images.reference import canonical, check_reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)\s*", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*[A-Za-z]+\s*=.*")
_HEREDOC = re.compile(r"<<-?\s*[\"']?([A-Za-z_][A-Za-z0-9_]*)[\"']?")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::([-+])([^}]*))?\}|([A-Za-z_]\w*))")
_FROM = re.compile(r"FROM\s+((?:--\S+\s+)*)(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
_ARG = re.compile(r"ARG\s+(.+)", re.IGNORECASE)
_COPY = re.compile(r"(?:COPY|ADD)\s", re.IGNORECASE)
_COPY_FROM = re.compile(r"(--from=)(\S+)")
_MAX_LINES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The Dockerfile as it is built, and the images that it still takes from elsewhere, in their order."""

    text: str
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Instruction:
    """One instruction: its lines as they are written, and as one."""

    written: str
    line: str


def with_bases(text: str, bases: Mapping[str, str], arguments: Mapping[str, str]) -> Rewritten:
    """Put other images in the place of those that ``FROM`` and ``COPY --from`` name.

    ``bases`` has the others by the names that they replace, in any spelling; ``arguments`` are build arguments, which
    go before the defaults of an ``ARG``. Names of stages, and ``scratch``, are no images. A ``--platform`` goes where
    an image is replaced: the other one is this machine's. Raises :class:`ConfigError` (``dockerfile-invalid``).
    """
    return _Rewriting({_canonical(name): other for name, other in bases.items()}, arguments).run(text)


class _Rewriting:
    def __init__(self, bases: Mapping[str, str], arguments: Mapping[str, str]) -> None:
        self._bases = bases
        self._given = arguments
        self._known: dict[str, str] = {}
        self._stages: set[str] = set()
        self._count = 0
        self._images: dict[str, None] = {}

    def run(self, text: str) -> Rewritten:
        lines = "".join(self._rewritten(found) for found in _instructions(text))
        if not self._count:
            raise _invalid("it has no FROM")
        return Rewritten(lines, tuple(self._images))

    def _rewritten(self, found: _Instruction) -> str:
        if _FROM.match(found.line):
            return self._from(found)
        if not self._count and (argument := _ARG.fullmatch(found.line)):
            name, _, value = argument[1].strip().partition("=")
            self._known[name] = self._given.get(name, self._expanded(_unquoted(value)))
        if _COPY.match(found.line) and (source := _COPY_FROM.search(found.line)):
            return self._copy(found, source[2])
        return found.written

    def _from(self, found: _Instruction) -> str:
        parts = _FROM.fullmatch(found.line)
        if parts is None:
            raise _invalid(f"this is not a FROM instruction: {found.line[:200]!r}")
        _, written, stage = parts.groups()
        image = self._expanded(_unquoted(written))
        other = self._other(image)
        self._count += 1
        if stage:
            self._stages.add(stage.lower())
        if other is None:
            return found.written
        return f"FROM {other}{f' AS {stage}' if stage else ''}\n"

    def _copy(self, found: _Instruction, source: str) -> str:
        if source.isdigit() or (other := self._other(_unquoted(source))) is None:
            return found.written
        return found.written.replace(f"--from={source}", f"--from={other}", 1)

    def _other(self, image: str) -> str | None:
        """Return what stands in for an image; ``None`` for what is none, and for what nothing stands in for."""
        if image.lower() in self._stages or image == "scratch":
            return None
        try:
            check_reference(image)
        except ConfigError:
            raise _invalid(f"{image[:80]!r} is not an image reference") from None
        other = self._bases.get(_canonical(image))
        if other is None:
            self._images[image] = None
        return other

    def _expanded(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            name, how, word, plain = found.groups()
            known = self._known.get(name or plain, "")
            if how == "-":
                return known or word
            return (word if known else "") if how == "+" else known

        return _VARIABLE.sub(value, text)


def _instructions(text: str) -> Iterator[_Instruction]:
    """Give the instructions, and what lies between them, in order: together they are the whole text."""
    lines = iter(text.splitlines(keepends=True)[:_MAX_LINES])
    escape, directives = "\\", True
    for first in lines:
        stripped = first.strip()
        if directives and (found := _ESCAPE.fullmatch(stripped)):
            escape = found[1]
        directives = directives and bool(_DIRECTIVE.fullmatch(stripped))
        if not stripped or stripped.startswith("#"):
            yield _Instruction(first, "")
            continue
        written, line = first, stripped
        while line.endswith(escape):
            line = line.removesuffix(escape).rstrip() + " "
            more = next(lines, None)
            if more is None:
                break
            written += more
            # Empty lines and comments between the lines of an instruction are none of it.
            line += escape if not more.strip() or more.strip().startswith("#") else more.strip()
        for word in _HEREDOC.findall(line) if re.match(r"(RUN|COPY|ADD)\s", line, re.IGNORECASE) else ():
            written += "".join(_until(lines, word))
        yield _Instruction(written, line.strip())


def _until(lines: Iterator[str], word: str) -> Iterator[str]:
    for line in lines:
        yield line
        if line.strip() == word:
            return


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _canonical(image: str) -> str:
    check_reference(image)
    return canonical(image)


def _invalid(problem: str) -> ConfigError:
    return ConfigError(
        f"the Dockerfile cannot be read: {problem}",
        code="dockerfile-invalid",
        hint="it must be what the engine's classic builder takes",
    )
