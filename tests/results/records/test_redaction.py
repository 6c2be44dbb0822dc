"""Redaction."""

from __future__ import annotations

import base64
import json
import random
import string
import subprocess
import urllib.parse
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from results.samples import task
from securebench.families.registry import FAMILIES, structure_fields
from securebench.limits import MIB
from securebench.resources import REDACTED
from securebench.results.records.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from securebench.resources import JsonValue

SECRET = 'CANARY-"7f3a"\n\tline två ☃ end'

ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": json.dumps,
    "json, not ascii": lambda s: json.dumps(s, ensure_ascii=False),
    "json in json": lambda s: json.dumps(json.dumps(s)),
    "repr": repr,
    "ascii": ascii,
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
    "url": urllib.parse.quote,
    "url, all": lambda s: urllib.parse.quote(s, safe=""),
    "form": urllib.parse.quote_plus,
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64, one byte in": lambda s: base64.b64encode(b"x" + s.encode() + b"tail").decode(),
    "base64, two bytes in": lambda s: base64.b64encode(b"xy" + s.encode() + b"tail").decode(),
    "base64, url": lambda s: base64.urlsafe_b64encode(b"??>" + s.encode()).decode(),
    "base64, wrapped": lambda s: base64.encodebytes((s * 4).encode()).decode(),
    "case": str.swapcase,
    "spread over lines": "\n".join,
}


def pieces(text: str, length: int = 10) -> set[str]:
    """Return all parts of ``text`` of this length."""
    return {text[start : start + length] for start in range(len(text) - length + 1)}


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
def test_found_in_every_encoding(encode: Callable[[str], str]) -> None:
    """A secret is redacted in every encoding in which it was printed (F13)."""
    encoded = encode(SECRET)
    redacted = Redactor([SECRET]).text(f"before {encoded} after")
    assert REDACTED in redacted
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert not pieces(encoded) & pieces(redacted)


@given(
    secret=st.text(min_size=8).filter(lambda s: len("".join(s.split())) >= 8),
    before=st.text(max_size=20),
    after=st.text(max_size=20),
    name=st.sampled_from(sorted(set(ENCODINGS) - {"base64, wrapped"})),
)
def test_nothing_of_any_secret_is_left(secret: str, before: str, after: str, name: str) -> None:
    """A complete secret is never in the result, whatever the text around it (F13).

    The secrets are random, with at least eight characters that are not white space.
    """
    encoded = ENCODINGS[name](secret) if secret.isprintable() or name == "plain" else secret
    assert encoded not in Redactor([secret]).text(before + encoded + after)


def test_short_values_stay_in_texts() -> None:
    """Short secrets stay in texts: an answer ``A`` must not blank every A (F14)."""
    redactor = Redactor(["A", "42", "Mercury"])
    assert redactor.text("Answer: A, because 42. Mercury!") == "Answer: A, because 42. Mercury!"


@pytest.mark.parametrize(
    "field", ["answer", "Expected_Answer", "expected", "expected_output", "tolerance", "reference"]
)
def test_fields_are_redacted_whatever_they_hold(field: str) -> None:
    """If a key names a secret or an expected result, its value is redacted, even if it is short or a number."""
    redactor = Redactor.for_task(task(public={}, inputs={}, hidden={"answer": "A", "tolerance": 0.1}))
    values: list[JsonValue] = ["A", 0.1, ["A"], {"x": "A"}, None, True]
    for value in values:
        assert redactor.value({"phase": "verify", field: value}) == {"phase": "verify", field: REDACTED}


def test_listed_choices_do_not_show_which_one_is_right() -> None:
    """An agent or a verifier may list the choices. The right one stays in the list: its absence would reveal it."""
    choices: JsonValue = ["Paris", "Rome", "Oslo"]
    redactor = Redactor.for_task(task(public={"choices": choices}, inputs={}, hidden={"answer": "Paris", "label": "B"}))
    listed: JsonValue = {"choices": choices, "labels": ["A", "B", "C"]}
    assert redactor.value(listed) == listed
    assert redactor.value({"choices": ["Paris", "Rome"]}, lines=True) == {"choices": ["Paris", "Rome"]}


def test_equal_strings_are_redacted_in_metadata() -> None:
    """A string in a verifier's metadata that equals a short secret is redacted; a text that contains it stays."""
    assert Redactor(["A"]).value({"matched": "A", "note": "A good try", "n": [1, "A"]}, lines=True) == {
        "matched": REDACTED,
        "note": "A good try",
        "n": [1, REDACTED],
    }


def test_what_a_verifier_must_say_stays() -> None:
    """SecureBench's own fields, such as ``phase`` and ``reason``, stay even if an answer equals their value (F14)."""
    fields = {"verifier": "short_answer", "version": "1", "phase": "verify", "reason": "wrong_answer"}
    redactor = Redactor(fields.values())
    assert redactor.mapping({**fields, "said": "verify"}, lines=True) == {**fields, "said": REDACTED}


def test_every_string_in_every_lane_but_the_public_one_is_secret() -> None:
    """Nested strings of hidden values and evaluation inputs are redacted, and so is the JSON of a value (F13)."""
    hidden: dict[str, JsonValue] = {
        "rubric": {"accepted": ["first secret phrase"], "more": [{"deep": "second secret phrase"}]}
    }
    inputs: dict[str, JsonValue] = {"tests": {"source": "anything", "code": "assert double(3) == 6"}}
    redactor = Redactor.for_task(task(public={"q": "What?"}, inputs=inputs, hidden=hidden))
    for secret in ("first secret phrase", "second secret phrase", "assert double(3) == 6"):
        assert redactor.text(f"<{secret}>") == f"<{REDACTED}>"
    assert "source" not in redactor.text(json.dumps(inputs["tests"], indent=4))


def structured(family: str, public: dict[str, JsonValue], inputs: dict[str, JsonValue]) -> Redactor:
    """Return the redactor of a task of ``family``."""
    return Redactor.for_task(replace(task(public=public, inputs=inputs, hidden={}), task_type=family))


def test_structure_is_no_secret() -> None:
    """Paths, directories and policies that a family declares as structure stay; content is redacted (104, 171)."""
    tests: JsonValue = {
        "source": "command",
        "command": ["python3", "-m", "pytest", "-q", "tests/test_secret_thing.py"],
        "workdir": "/testbed",
        "test_patch": {"source": "inline", "patch": "+assert secret_thing() == 4711\n"},
        "candidate_policy": {"allow_paths": ["src/calc.py"]},
        "expect": {"fail_to_pass": ["tests/test_secret_thing.py::test_secret"]},
        "something_new": "a field that nobody declared",
    }
    redactor = structured("repo_patch", {}, {"tests": tests})
    for stays in ("cd /testbed", "diff --git a/src/calc.py b/src/calc.py", "command inline", "python3 -m pytest"):
        assert redactor.text(stays) == stays
    assert redactor.text("tests/test_secret_thing.py::test_secret failed") == f"{REDACTED} failed"
    assert REDACTED in redactor.text("assert secret_thing() == 4711", lines=True) + redactor.text(
        "+assert secret_thing() == 4711"
    )
    assert redactor.text("python3 -m pytest -q tests/test_secret_thing.py") == REDACTED
    assert redactor.text("is a field that nobody declared") == f"is {REDACTED}"


def test_what_a_verifier_says_of_its_isolation_stays() -> None:
    """In the record of a task with ``tests.isolation: shared``, the word ``shared`` stays (104)."""
    tests: JsonValue = {"source": "inline", "code": "assert double(3) == 6", "isolation": "shared"}
    redactor = structured("code_completion", {}, {"tests": tests})
    fields: dict[str, JsonValue] = {"isolation": "shared", "assurance": "lower", "note": "shared"}
    assert redactor.mapping(fields, lines=True) == fields


def test_needed_commands_are_structure() -> None:
    """``needed_commands`` stay, because a progress event names those that the tester's policy denied (145)."""
    inputs: dict[str, JsonValue] = {
        "checker": {"command": "chroot / true && grep -q 4711 result"},
        "needed_commands": ["chroot"],
    }
    redactor = structured("terminal_task", {}, inputs)
    assert redactor.mapping({"commands": ["chroot"]}, lines=True) == {"commands": ["chroot"]}
    assert redactor.text("ran: chroot / true && grep -q 4711 result") == f"ran: {REDACTED}"


def test_every_field_is_content_unless_it_is_declared_to_be_structure() -> None:
    """Only these fields are declared as structure, which is shown in records. A new field is secret by default."""
    declared = {name: structure_fields(name) for name, family in FAMILIES.items() if family.active}
    assert {name: fields for name, fields in declared.items() if fields} == {
        "free_response": ["rubric.votes", "rubric.template", "rubric.max_bytes"],
        "repo_patch": ["tests.workdir", "tests.timeout_seconds", "tests.candidate_policy"],
        "terminal_task": ["checker.workdir", "checker.timeout_seconds", "checker.image", "needed_commands"],
    }


PATCH = (
    "diff --git a/src/calc.py b/src/calc.py\n"
    "index 7fa5ac3..0000000 100644\n"
    "--- a/src/calc.py\n"
    "+++ b/src/calc.py\n"
    "@@ -1,3 +1,7 @@\n"
    " def add(a, b):\n"
    "-    return a - b\n"
    "+    return a + b\n"
    "+\n"
    "+def check():\n"
    "+    assert add(21, 21) == 42\n"
    "+++ not a header\n"
    " # src/calc.py, end of the secret_of_the_repository\n"
    "diff --git a/new.py b/new.py\n"
    "new file mode 100644\n"
    "--- /dev/null\n"
    "+++ b/new.py\n"
    "@@ -0,0 +1 @@\n"
    "+x = 1\n"
    "\\ No newline at end of file\n"
)


def applied(tmp_path: Path, patch: str) -> str:
    """Return the content of ``src/calc.py`` after git applied ``patch``."""
    (tmp_path / "src").mkdir(parents=True)
    file = tmp_path / "src" / "calc.py"
    file.write_text("def add(a, b):\n    return a - b\n# src/calc.py, end of the secret_of_the_repository\n")
    command = ["git", "apply", "--whitespace=nowarn", "-"]
    subprocess.run(command, input=patch.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "new.py").read_text() == "x = 1"
    return file.read_text()


@pytest.mark.parametrize(
    "secrets",
    [
        [],
        ["src/calc.py"],
        ["secret_of_the_repository"],
        ["def check():\n    assert add(21, 21) == 42\n"],
        ["assert add(21, 21) == 42"],
        ["diff --git a/src/calc.py b/src/calc.py"],
        ["@@ -1,3 +1,7 @@"],
        ["return a - b", "return a + b", "index 7fa5ac3..0000000 100644"],
        ["No newline at end of file"],
    ],
)
def test_git_applies_a_redacted_patch(tmp_path: Path, secrets: list[str]) -> None:
    """A redacted patch still applies, whatever part of it is a hidden value. Its added lines contain none (171)."""
    patch = Redactor(secrets).patch(PATCH, cap=10_000)
    text = applied(tmp_path, patch)
    assert text.count("\n") == 7
    added = "\n".join(line for line in text.splitlines() if "end of the" not in line)
    assert not [line for secret in secrets for line in secret.splitlines() if line.strip() and line in added]
    assert (patch == PATCH) is not any(REDACTED in line for line in patch.splitlines())


def test_a_patch_over_its_cap_is_whole_files(tmp_path: Path) -> None:
    """Files that do not fit into the cap are left out completely, so that git applies the rest."""
    large = PATCH + PATCH.partition("diff --git a/new.py")[0].replace("calc", "other") * 3
    patch = Redactor().patch(large, cap=len(PATCH) + 40)
    assert patch.startswith(PATCH)
    assert patch[len(PATCH) :].startswith("[clipped: ")
    applied(tmp_path, patch)


def test_a_credential_goes_from_names_too() -> None:
    """A credential is redacted even in the name of a file, although the patch then no longer applies."""
    patch = Redactor(credentials=["sk-live-0123"]).patch(PATCH.replace("new.py", "sk-live-0123.py"), cap=10_000)
    assert "sk-live-0123" not in patch


def test_what_is_public_is_no_secret() -> None:
    """The right choice of a question stays readable among the choices, because blanking it would reveal it (F14)."""
    choices = ["the mitochondrion", "the nucleus itself"]
    redactor = Redactor.for_task(task(public={"choices": list(choices)}, inputs={}, hidden={"answer": choices[1]}))
    assert redactor.text(" or ".join(choices)) == " or ".join(choices)
    assert redactor.value({"answer": choices[1]}) == {"answer": REDACTED}


def test_identities_stay() -> None:
    """The id of a task stays, even if it is also the answer."""
    one = task(public={}, inputs={}, hidden={"answer": "pack/one"})
    assert Redactor.for_task(one).text("task pack/one") == "task pack/one"


@pytest.mark.parametrize("credential", ["tok3n", "sk-live-0123456789abcdef"])
def test_credentials_go_everywhere(credential: str) -> None:
    """The value of a variable of ``harness.env`` is redacted, even if it is short or public."""
    redactor = Redactor.for_task(task(public={"q": credential}, inputs={}, hidden={}), [credential])
    assert credential not in redactor.text(f"key={credential}!")
    assert redactor.value({credential: 1}) == {REDACTED: 1}


def test_lines_of_a_secret_in_what_a_verifier_printed() -> None:
    """A single line of hidden tests, as a failed assertion shows it, is redacted only with ``lines=True`` (F13)."""
    code = "def check():\n    assert double(21) == 42\n"
    redactor = Redactor([code])
    printed = "E   assert double(21) == 42\nE   where 41 = double(21)"
    assert "double(21) == 42" not in redactor.text(printed, lines=True)
    assert redactor.text(printed) == printed


@pytest.mark.parametrize(
    "printed", ["self.assertEqual(candidate(", "self", "        self.assertEqual(candidate(7), 4x\n"]
)
def test_hostile_output_is_searched_quickly(printed: str) -> None:
    """A megabyte of text that almost matches 10,000 hidden lines is searched in seconds. It once took minutes."""
    lines = (f"        self.assertEqual(candidate({number}), {number * 7919})" for number in range(10_000))
    redactor = Redactor().with_files(["\n".join(lines)], ())
    text = (printed * (MIB // len(printed) + 1))[:MIB]
    with processor_seconds(5):
        assert redactor.text(text, cap=MIB, lines=True) == text  # 0.3 s on an idle machine


def test_a_patch_of_many_credentials_is_searched_quickly() -> None:
    """An agent may write a patch with a credential on each of 20,000 lines. It is redacted in seconds."""
    added = "+key\n" * 20_000
    patch = f"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1,20000 @@\n{added.replace('key', 'sk-0123456789')}"
    redactor = Redactor(credentials=["sk-0123456789"])
    with processor_seconds(5):
        assert redactor.patch(patch, cap=len(patch)).count(REDACTED) == 20_000


def test_the_longest_of_several_secrets_goes() -> None:
    """If several secrets have the same beginning, the longest one in the text is redacted completely."""
    secrets = ["secret one", "secret one and two", "secret one and two and three " + "x" * 300 + "end"]
    redactor = Redactor(secrets)
    for secret in secrets:
        assert redactor.text(f"({secret})") == f"({REDACTED})"
    assert redactor.text(f"({secrets[2][:-3]})") == f"({REDACTED} and three {'x' * 300})"


def test_clips_and_says_so() -> None:
    """A text longer than its cap is cut, and a note at its end says how much was left out (L17)."""
    assert Redactor().text("x" * 50, cap=20) == "x" * 20 + "\n[clipped: 30 more characters]"
    assert Redactor().text("x" * 20, cap=20) == "x" * 20


@pytest.mark.parametrize("start", range(10, 31))
def test_a_secret_across_the_cap_leaves_no_part(start: int) -> None:
    """If a text is cut in the middle of a secret, the beginning of the secret is not left."""
    text = "." * start + "TOP-SECRET-VALUE" + "." * 40
    redacted = Redactor(["TOP-SECRET-VALUE"]).text(text, cap=30)
    assert "TOP" not in redacted
    assert redacted.startswith("." * min(start, 30))


def test_many_secrets_before_the_cap_do_not_pull_a_later_one_in() -> None:
    """Redaction shortens a text, but no unredacted secret from beyond the cap moves into the result."""
    text = "TOP-SECRET-VALUE-THAT-IS-LONG " * 40
    redacted = Redactor(["TOP-SECRET-VALUE-THAT-IS-LONG"]).text(text, cap=100)
    assert "SECRET" not in redacted


def test_cost_is_linear_in_the_text() -> None:
    """The search for 1,000 secrets in a megabyte of output takes a second or two, not minutes (L17)."""
    rng = random.Random(0)
    letters = string.ascii_letters + string.digits + " \n"
    secrets = ["".join(rng.choices(letters, k=40)) for _ in range(1000)]
    text = "".join(rng.choices(letters, k=1_000_000))
    redactor = Redactor(secrets)
    with processor_seconds(5):
        redactor.text(text, cap=len(text))


def test_numbers_of_metadata_are_finite() -> None:
    """NaN and infinity, which JSON does not allow, become text."""
    assert Redactor().value({"a": float("nan"), "b": float("inf"), "c": 1.5}) == {"a": "nan", "b": "inf", "c": 1.5}


def test_nothing_to_hide_changes_nothing() -> None:
    """Without secrets, a text is not changed."""
    text = "Some text\n\twith <redacted> and \x00 in it"
    assert Redactor().text(text) == text


def test_the_name_of_a_harness_is_ours() -> None:
    """The name in the field ``harness`` stays, even if a secret is the same word."""
    redactor = Redactor(["command"], fields=["tests"])
    redacted = redactor.mapping({"harness": "command", "said": "command"}, lines=True)
    assert redacted == {"harness": "command", "said": REDACTED}
