"""Remove the Markdown and LaTeX that models put around answers, before comparing answers."""

from __future__ import annotations

import html
import re
from typing import Final

_FONTS: Final = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf|tt|normal)|mbox|operatorname|fbox|boxed)\s?\{([^{}]*)\}"
)
_MATH: Final = re.compile(r"(?<![$\w])\$(?!\s)([^$\n]*[^\s$])\$(?![\d$])")
"""Inline mathematics by pandoc's rule: no space inside the dollars, no digit after them. ``$5 and $6`` is text."""

_SPACES: Final = re.compile(r"\\[,;:> ]|(?<=\S)~(?=\S)|\\\(|\\\)|\\\[|\\\]|\$\$|\\q?quad\b")
_GROUP: Final = re.compile(r"(?<=\d)\\,(?=\d{3}(?!\d))")
"""A LaTeX thin space as a thousands separator."""

_CALCULATION: Final = re.compile(r"<<[^<>\n]*>>(?=[$.\d])")
"""GSM8K's calculator annotations, right before their result: ``5*4=<<5*4=20>>20``."""

_LOOSE_STOP: Final = re.compile(r"(?<=\S)[ ]+([.,;:])(?=\s|$)")
"""Punctuation left alone when the dollar sign before it is removed."""

_ESCAPED_DOLLAR: Final = "\ue000"
_MAX_NESTING: Final = 8

_WRAPPERS: Final = (("**", "**"), ("__", "__"), ("*", "*"), ("`", "`"), ("$", "$"))
_BULLET: Final = re.compile(r"[*\u2022]\s+(?=\S)")
"""A bullet before the answer. A dash is not a bullet because it may be a minus."""

_EXCLAMATION: Final = re.compile(r"(?:(?<=[^\W\d_]{2})|(?<=[^\W\d_]{2}[*_\"'`)]))!+$")
"""Exclamation marks after a word. ``5!`` and ``n!`` are factorials and keep them."""

_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});?")
_BLOCK: Final = re.compile(
    r"</?(?:br|hr|p|div|pre|blockquote|[uod]l|li|d[td]|table|t[hdr]|h[1-6]|section|article)\b[^<>]*>", re.IGNORECASE
)
"""Tags that start a new line."""

_TAG: Final = re.compile(r"<[^<>]*>")
_LINK: Final = re.compile(r"!?\[([^\[\]]*)\]\([^()\[\]]*\)")
_HYPHENATED: Final = re.compile(r"[-\xad\u2010][ \t]*\r?\n\s*")
_MARKS: Final = re.compile(r"[*_`~\\]")


def rendered(text: str) -> str:
    """Return ``text`` roughly as a web page would show it, for finding rejected phrases and denials, never to accept.

    Decodes HTML entities. Removes tags, comments, link targets, emphasis, code marks, backslashes, LaTeX fonts and
    hyphens at the end of a line.
    """
    decoded = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    inline = _TAG.sub("", _BLOCK.sub("\n", _HYPHENATED.sub("", decoded)))
    return _MARKS.sub("", plain(_LINK.sub(r"\1", inline)))


def plain(text: str) -> str:
    """Return ``text`` without LaTeX fonts, spaces and delimiters, and with escapes resolved."""
    text = text.replace("\\$", _ESCAPED_DOLLAR).replace("\\%", "%").replace("{,}", ",").replace("\\!", "")
    text = _GROUP.sub(",", _CALCULATION.sub("", text))
    for _ in range(_MAX_NESTING):
        text, count = _FONTS.subn(r"\1", text)
        if not count:
            break
    text = _MATH.sub(r" \1 ", _SPACES.sub(" ", text))
    return _LOOSE_STOP.sub(r"\1", text.replace(_ESCAPED_DOLLAR, "$"))


def unwrapped(answer: str) -> str:
    """Return ``answer`` without a bullet, and without emphasis, code marks or LaTeX that enclose all of it."""
    answer = _BULLET.sub("", plain(answer).strip(), count=1) if _BULLET.match(answer.strip()) else plain(answer)
    for _ in range(_MAX_NESTING):
        answer = _EXCLAMATION.sub("", answer.strip())
        bare = answer.removesuffix(".")
        inside = (bare[len(a) : -len(b)] for a, b in _WRAPPERS if bare.startswith(a) and bare.endswith(b))
        inner = next((text for text in inside if text.strip()), None)
        if inner is None:
            break
        answer = inner
    return answer


def boxes(text: str) -> list[tuple[int, int, str]]:
    r"""Return the start, end and content of each ``\boxed{...}`` with matching braces, in one pass over ``text``."""
    found, position = [], 0
    while (start := text.find("\\boxed{", position)) >= 0:
        depth, end = 1, start + len("\\boxed{")
        opening = end
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        if depth:
            break
        found.append((start, end, text[opening : end - 1]))
        position = end
    return found
