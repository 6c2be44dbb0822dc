"""Plain English: no banned phrase in the docs, messages, docstrings and comments, and no overlong line in a page.

``LIMITS`` lists how many findings are left in each part; a number may only go down. To print the current
table and the findings in some parts, run ``python tests/test_language.py src/securebench/cli docs/reference/cli.md``.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src" / "securebench"
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

MAX_LINE: Final = 120

BANNED: Final = {
    r"mend(?:s|ed|ing)?": "fix",
    r"remed(?:y|ies)": "fix",
    r"anew": "again",
    r"(?:be|is|are) had": "available",
    r"(?:to|could|can) be had": "available",
    r"(?<!there\s)(?:is|are|was|were|be) none": "is not a ..., does not exist",
    r"(?<!there\s)(?:is|are|was|were) no (?!longer|more|less|later|earlier|larger|such)[a-z]+": "is not a ...",
    r"(?:is|are|was|were|be) (?:not |already )?there(?! (?:an?|any|no)\b)": "exists, is installed, is missing",
    r"see(?:s|ing)? to": "handle, ensure",
    r"let(?:s|ting)? (?:\w+ ){0,3}through": "allow, accept",
    r"let us": "allow",
    r"told(?! to\b)": "reported, passed; distinguished",
    r"(?:held|holds?) (?:\w+ )?to(?= (?:an?|the|what|be|it|its|their|them|no)\b|[^\s\w])": "checked against",
    r"who(?:m)?ever": "the user, the process, anyone who",
    r"ways? out": "egress, escape, fix",
    r"he|his|him|himself": "the user, they",
    r"by (?:itself|themselves)": "automatically, alone",
    r"look-?alikes?": "confusable",
    r"last words": "exit reason, tail of stderr",
    r"by way of": "through",
    r"tak(?:e|es|en|ing) (?:\w+ ){0,2}for (?:an?|one|something|it|another)": "mistake for, treat as",
    r"stands?(?!-in| (?:in )?for\b)|stood": "is, appears",
    r"(?:lie|lies|lay) (?:in|at|on|there|beside|below|above|beneath|outside|inside|where|here|under|behind)": "is",
    r"go(?:es|ing)? on": "continue",
    r"ours|theirs": "SecureBench's, the other side's",
    r"doors?": "forwarded port",
    r"keepers?": "supervisor",
    r"workshops?": "build directory",
    r"for want of": "because it lacks",
    r"otherwise than": "differently from",
    r"sp(?:oken|eaks?|oke) (?:to|with)": "connect to, call",
    r"c(?:o|a)mes? to (?:an?|no|its|their|nothing|belong|have)": "reach, become",
    r"knows? no": "does not know",
    r"nothing of (?:it|its|them|this|that|the|what)": "no part of, none of its",
    r"says? whether": "is true if, returns whether",
    r"(?:came|comes?) of": "the result of, from",
    r"for ever": "forever",
    r"raises? as": "raises the errors of",
    r"all the same": "anyway, still",
    r"gives? way": "is replaced",
    r"looked at": "read, checked, ignored",
    r"belongs? into": "belongs in",
    r"somebody": "another user, the agent",
}
"""Banned phrases, as regular expressions between word boundaries, and what to write instead."""

DATA: Final = frozenset({"verifiers/text/vocabulary.py"})
"""Files whose strings are word lists, not messages. Their docstrings and comments are checked."""

LIMITS: Final = """
docs/how-to/run-on-many-machines.md 1

docs/reference/events.md 1

docs/reference/records.md 1

docs/reference/tester-config.md 1

docs/reference/text-answers.md 1

docs/tutorial/first-benchmark.md 4

src/securebench/harnesses 1
"""
"""Packages and pages, and how many findings each may have.

Keep the blank lines, and lines that end in 0, while other people change this table: they prevent merge conflicts.
"""


class Finding(NamedTuple):
    """A line that has to be rewritten: its file relative to the project, its number from 1, and what is wrong."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


_BANNED: Final = [
    (re.compile(rf"\b(?:{pattern})\b".replace(" ", r"\s+"), re.IGNORECASE), instead)
    for pattern, instead in BANNED.items()
]
_CODE: Final = re.compile(r"`[^`\n]+`")
_GENERATED: Final = re.compile(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", re.DOTALL)
_ANCHOR: Final = re.compile(r"<a id=[^>]*></a>")
_LINK_TARGET: Final = re.compile(r"\]\([^)\n]*\)")


def phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yield each banned phrase of ``text``: its line, counted from 0, and what to write instead."""
    text = re.sub(r"[ \t]*\n[ \t]*", "\n", text)  # a lookbehind matches only one character between words
    for pattern, instead in _BANNED:
        for found in pattern.finditer(text):
            yield text.count("\n", 0, found.start()), f"'{' '.join(found[0].split())}', write: {instead}"


def _page(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the findings in a page. Code, link targets and generated tables may contain any phrase."""
    text = _GENERATED.sub(lambda found: "\n" * found[0].count("\n"), path.read_text(encoding="utf-8"))
    for number, line in enumerate(_ANCHOR.sub("", text).splitlines(), 1):
        if len(line) > MAX_LINE:
            yield number, f"{len(line)} characters, more than {MAX_LINE}"
    for below, what in phrases(_LINK_TARGET.sub("]()", _CODE.sub("``", text))):
        yield 1 + below, what


def _module(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each banned phrase in the comments, docstrings and messages of a module."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source if "#" in source else "").readline):
        if token.type == tokenize.COMMENT:
            yield from ((token.start[0], what) for _, what in phrases(token.string))
    messages = path.relative_to(SOURCE).as_posix() not in DATA
    for line, text, is_docstring in _strings(ast.parse(source)):
        if is_docstring or messages:
            yield from ((line + below, what) for below, what in phrases(_CODE.sub("``", text)))


def _strings(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Yield the docstrings and messages of a module: the first line of each, its text, and whether it is a docstring.

    A message is any other string of at least three words. Shorter strings are keys and data.
    """
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        else:
            continue
        if id(node) in docstrings or len(text.split()) > 2:
            yield node.lineno, text, id(node) in docstrings


@cache
def findings() -> tuple[tuple[str, Finding], ...]:
    """Return all findings, each with its package or page."""
    found = []
    for path in PAGES:
        name = path.relative_to(ROOT).as_posix()
        found += [(name, Finding(name, *one)) for one in _page(path)]
    for path in sorted(SOURCE.rglob("*.py")):
        package = SOURCE / path.relative_to(SOURCE).parts[0]
        name = (package if package.is_dir() else SOURCE).relative_to(ROOT).as_posix()
        found += [(name, Finding(path.relative_to(ROOT).as_posix(), *one)) for one in _module(path)]
    return tuple(found)


def limits() -> dict[str, int]:
    """Return how many findings each package or page may have. Those that are not listed may have none."""
    lines = (line.split() for line in LIMITS.splitlines() if line)
    return {name: int(count) for name, count in lines}


def test_no_part_has_more_findings_than_its_limit() -> None:
    """No package or page has more findings than its limit, so no banned phrase can be added."""
    counts = Counter(name for name, _ in findings())
    over = {name for name, count in counts.items() if count > limits().get(name, 0)}
    lines = [str(finding) for name, finding in findings() if name in over]
    summary = [f"{name}: {counts[name]}, the limit is {limits().get(name, 0)}" for name in sorted(over)]
    assert not over, "\n".join(["write this in plain English:", *lines, *summary])


def test_limits_follow_what_was_rewritten() -> None:
    """No limit is above the number of findings. Otherwise, removed phrases could come back unnoticed."""
    counts = Counter(name for name, _ in findings())
    stale = {name: counts[name] for name, limit in limits().items() if counts[name] < limit}
    lower = [f"{name} {count}" for name, count in stale.items()]
    assert not stale, "\n".join(["lower these in LIMITS:", *lower])


@pytest.mark.parametrize(
    "text",
    [
        "the command that mends it",
        "images that are not to be had",
        "what is none of the answer's",
        "the candidate is no Python",
        "the image is there already",
        "the file is not\n    there",
        "the keeper sees to it",
        "what the relay lets through",
        "The program told of no answer.",
        "rows are held to the rules",
        "whoever reads it",
        "the way out of a sandbox",
        "his own files",
        "it ends by itself",
        "a key stands twice",
        "the file lies in the workspace",
        "a run that goes on",
        "a directory of ours",
        "nothing of it is kept",
        "say whether it is empty",
        "what came of the attempts",
        "it is recorded all the same",
    ],
)
def test_the_private_voice_is_found(text: str) -> None:
    """A banned phrase is found, also across a line break."""
    assert list(phrases(text))


@pytest.mark.parametrize(
    "text",
    [
        "the command that fixes it",
        "there is none",
        "there is no container",
        "without a rule, there\n  is none",
        "it is no longer running",
        "Is there a sandbox?",
        "{} stands for the task",
        "commendable amendments",
        "The agent is told to stop.",
        "this history",
        "the lock that is held to create a directory",
    ],
)
def test_plain_english_is_not_found(text: str) -> None:
    """Words that only look like a banned phrase are not reported."""
    assert not list(phrases(text))


def test_code_and_identifiers_are_not_english(tmp_path: Path) -> None:
    """Names, code in backticks and strings of one or two words are not checked."""
    module = tmp_path / "module.py"
    module.write_text('his = "mend it"\n"""Call ``whoever.mend()``."""\n')
    assert [text for _, text, _ in _strings(ast.parse(module.read_text()))] == ["Call ``whoever.mend()``."]
    assert not list(phrases(_CODE.sub("``", "Call ``whoever.mend()``.")))


if __name__ == "__main__":
    counted = Counter(name for name, _ in findings())
    sys.stdout.write("\n\n".join(f"{name} {counted[name]}" for name in sorted(counted)) + "\n")
    if len(sys.argv) > 1:
        sys.stdout.writelines(f"{finding}\n" for name, finding in findings() if name in sys.argv[1:])
