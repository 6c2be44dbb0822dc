"""Reading Dockerfiles in the same way as Docker's builders."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securebench.dockerfile import BaseImages, instructions
from securebench.errors import ConfigError


def read(text: str) -> list[tuple[str, str]]:
    """Return the names and operands of the instructions."""
    return [(found.name, found.operands) for found in instructions(text) if found.name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("copy a /b\r\nRUN x\r\n", [("COPY", "a /b"), ("RUN", "x")]),
        ("COPY te\\\nsts /b", [("COPY", "tests /b")]),
        ("RUN a \\ \t\n\n# comment\n  b\nCMD", [("RUN", "a   b"), ("CMD", "")]),
        ("RUN a \\", [("RUN", "a")]),
        ("# escape=`\nRUN a\\\nRUN b `\nc", [("RUN", "a\\"), ("RUN", "b c")]),
        ("# syntax=x\n# ESCAPE = `\nRUN b `\nc", [("RUN", "b c")]),
        ("# comment\n# escape=`\nRUN b `\nRUN c", [("RUN", "b `"), ("RUN", "c")]),
        ("RUN <<A cat <<-'B'\nRUN x\nA\nRUN y\n\tB\nRUN z", [("RUN", "<<A cat <<-'B'"), ("RUN", "z")]),
        ("RUN echo $((1<<X)) << Y\nRUN z", [("RUN", "echo $((1<<X)) << Y"), ("RUN", "z")]),
        ("ENV A=<<X\nRUN z", [("ENV", "A=<<X"), ("RUN", "z")]),
        ("ONBUILD COPY a b\nONBUILD FROM x", [("COPY", "a b"), ("ONBUILD", "FROM x")]),
        ("# comment\u2028COPY a b\nRUN x\x0cCOPY a b", [("RUN", "x\x0cCOPY a b")]),
    ],
)
def test_lines_are_joined_as_the_builder_joins_them(text: str, expected: list[tuple[str, str]]) -> None:
    """Continued lines, comments, the escape directive, here-documents and ``ONBUILD`` are read as the builder does."""
    assert read(text) == expected


def test_here_documents_can_be_read_as_instructions() -> None:
    """Without ``here_documents``, lines of a here-document are read as instructions, as by an older builder."""
    found = instructions("RUN cat <<CMD\nCOPY a b\nCMD", here_documents=False)
    assert [one.name for one in found] == ["RUN", "COPY", "CMD"]


def test_flags_end_where_operands_begin() -> None:
    """A word that looks like a flag but comes after the first operand is an operand."""
    (found,) = instructions("COPY --chown=1 --from=x a --from=y b")
    assert (found.flags, found.source, found.operands) == (("--chown=1", "--from=x"), "x", "a --from=y b")


@given(st.text(alphabet="\\`#<= \t\r\nAFROMUNCPYescape$", max_size=200), st.booleans())
def test_the_instructions_together_are_the_whole_text(text: str, here_documents: bool) -> None:
    """The texts of all instructions, joined, are the whole Dockerfile, whatever it contains."""
    assert "".join(found.written for found in instructions(text, here_documents=here_documents)) == text


def reading_seconds(lines: int) -> float:
    """Return the CPU time of reading an instruction with this number of continued lines."""
    text = "RUN a\\\n" + "b\\\n" * lines
    start = time.thread_time()
    (found,) = instructions(text)
    taken = time.thread_time() - start
    assert len(found.operands) == lines + 1
    return taken


def test_a_long_instruction_is_read_in_linear_time() -> None:
    """The time of reading an instruction grows linearly with its length, because a pack's Dockerfile is untrusted.

    For 100 times the lines, linear time grows by a factor of about 130, and quadratic time by more than 1,400.
    """
    assert reading_seconds(300_000) < 500 * min(reading_seconds(3_000) for _ in range(5))


def images(text: str, **arguments: str) -> list[str | None]:
    """Return the image that each instruction names, if any. ``arguments`` are build arguments."""
    found = BaseImages(arguments)
    return [found.image(one) for one in instructions(text) if one.name]


def test_a_stage_is_not_an_image() -> None:
    """A stage, named in upper or lower case or by number, takes precedence over an image of the same name."""
    text = "FROM a AS B\nFROM b\nCOPY --from=B x y\nCOPY --from=0 x y\nFROM scratch\nADD --from='c' x y\nRUN --from=d x"
    assert images(text) == ["a", None, None, None, None, "c", None]


def test_build_arguments_replace_the_defaults_of_arg() -> None:
    """Build arguments replace the defaults of those ``ARG`` instructions that come before the first ``FROM``."""
    text = 'ARG A="1"\nFROM x:$A\nARG A=2\nFROM x:${A}${B:-y}${A:+z}'
    assert images(text) == [None, "x:1", None, "x:1yz"]
    assert images(text, A="3", B="w") == [None, "x:3", None, "x:3yz"]


def test_a_from_that_cannot_be_read_is_refused() -> None:
    """A ``FROM`` that cannot be parsed is refused, and the error quotes it."""
    with pytest.raises(ConfigError, match="FROM a b") as caught:
        images("FROM a b")
    assert caught.value.code == "dockerfile-invalid"
