"""Free responses are judged by a ``contains_any`` rubric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import processor_seconds
from securebench.errors import ConfigError, FailureReason
from securebench.families.normalization import normalize_text
from securebench.testing.judging.text import verdict
from securebench.verifiers.base import MAX_TEXT_BYTES
from securebench.verifiers.text.free_response import (
    MAX_WORDS,
    FreeResponseVerifier,
    Rubric,
    judge_response,
    rubric_of,
    token_f1,
)

if TYPE_CHECKING:
    from securebench.resources import JsonValue

WRONG = FailureReason.WRONG_ANSWER
AMBIGUOUS = FailureReason.AMBIGUOUS_ANSWER
REJECTED = FailureReason.REJECTED_ANSWER
LIGHT = Rubric(
    accepted=("shorter wavelengths scatter more", "Rayleigh scattering"), rejected=("reflects the ocean", "ozone")
)


def _reason(text: str | None, rubric: JsonValue) -> FailureReason | None:
    return verdict(FreeResponseVerifier(), text, public={"prompt": "P"}, hidden={"rubric": rubric}).reason


@pytest.mark.parametrize(
    "text",
    [
        "Rayleigh scattering",
        "It is RAYLEIGH   scattering, which favours blue.",
        "Because shorter wavelengths\nscatter more.",
        "(Rayleigh scattering)",
        "It does not absorb: that is Rayleigh scattering.",
    ],
)
def test_an_accepted_phrase_as_whole_words_passes(text: str) -> None:
    """A response that contains an accepted phrase passes, in any case and spacing and with other words around it."""
    assert judge_response(text, LIGHT).reason is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Mie scattering", WRONG),
        ("Rayleigh scatterings", WRONG),
        ("R\u0430yleigh scattering", WRONG),
        ("scattering Rayleigh", WRONG),
        ("unlike Rayleigh scattering", AMBIGUOUS),
        ("Mie scattering rather than Rayleigh scattering", AMBIGUOUS),
        ("as opposed to Rayleigh scattering", AMBIGUOUS),
        ("instead of the Rayleigh scattering", AMBIGUOUS),
        ("Nothing is stronger than Rayleigh scattering here", None),
        ("than Rayleigh scattering this is rather", None),
        ("unlike Mie scattering, Rayleigh scattering favours blue", None),
        ("shorter wavelengths do scatter more", WRONG),
        ("{}", WRONG),
        ("null", WRONG),
    ],
)
def test_a_part_a_look_alike_or_another_order_is_not_the_phrase(text: str, reason: FailureReason | None) -> None:
    """E02: parts, look-alikes and reordered words of a phrase do not match.

    A phrase after words of contrast, such as ``unlike`` or ``rather than``, is ambiguous.
    """
    assert judge_response(text, LIGHT).reason is reason


@pytest.mark.parametrize(
    "text",
    [
        "Rayleigh scattering, and it reflects the ocean.",
        "OZONE! and Rayleigh scattering",
        "Rayleigh scattering (ozone-based)",
        "ozone/Rayleigh scattering",
        "Rayleigh scattering by \u043ez\u043ene",
        "Rayleigh scattering by \uff4fzone",
        "Rayleigh scattering by oz\u200bone",
        "Rayleigh scattering by \U0001d428zone",
        "Rayleigh scattering reflects the \u00adocean",
        "not ozone but Rayleigh scattering",
    ],
)
def test_a_rejected_phrase_fails_in_any_look_alike_spelling(text: str) -> None:
    """E03: a response with a rejected phrase fails, even if the phrase is between signs or has look-alike letters."""
    assert judge_response(text, LIGHT).reason is REJECTED


DISGUISES = {
    "Armenian": "L\u0585nd\u0585n",
    "Cherokee": "\u13deondon",
    "Lisu": "\ua4e1ondon",
    "Coptic": "L\u2c9fnd\u2c9fn",
    "Deseret": "L\U0001042cnd\U0001042cn",
    "small capital": "\u029fondon",
    "small capital o": "L\u1d0fnd\u1d0fn",
    "Cyrillic": "L\u043end\u043en",
    "Greek": "L\u03bfnd\u03bfn",
    "overlay": "L\u0335ondon",
    "accent": "L\u00f3ndon",
    "combining accents": "L\u0308o\u0301n\u0327don",
    "stroke": "L\u00f8ndon",
    "digit": "L0ndon",
    "digits in capitals": "L0ND0N",
    "full width": "\uff2condon",
    "mathematical": "\U0001d40bondon",
    "script": "\u2112ondon",
    "circled": "\u24c1ondon",
    "squared": "\U0001f17bondon",
    "flag": "\U0001f1f1ondon",
    "stops": "L.o.n.d.o.n",
    "underscores": "L_o_n_d_o_n",
    "spaces": "L o n d o n",
    "thin spaces": "L\u2009o\u2009n\u2009d\u2009o\u2009n",
    "hyphen": "Lon-don",
    "no-break hyphen": "Lon\u2011don",
    "ogham space": "Lon\u1680don",
    "emoji": "Lon\U0001f642don",
    "zero width": "Lon\u200bdon",
    "word joiner": "Lon\u2060don",
    "soft hyphen": "Lon\u00addon",
    "tag": "Lon\U000e0061don",
    "filler": "Lon\u3164don",
    "grapheme joiner": "Lon\u034fdon",
    "right to left": "\u202enodnoL\u202c",
    "no-break space": "Lon\u00a0don",
    "capital i": "Iondon",
    "Cyrillic capital i": "\u0406ondon",
    "decimal entity": "Lo&#110;don",
    "hexadecimal entity": "Lo&#x6e;don",
    "entity of an accent": "L&oacute;ndon",
    "entity of a soft hyphen": "Lon&shy;don",
    "entity of a space": "Lon&nbsp;don",
    "entity of a joiner": "Lon&zwj;don",
    "tag of emphasis": "L<b>on</b>don",
    "tag with attributes": "<span class='a'>Lon</span>don",
    "tag of a possible line break": "Lon<wbr>don",
    "comment": "Lon<!-- no -->don",
    "bold": "Lon**do**n",
    "emphasis": "_Lon_don",
    "code": "`Lon`don",
    "strike": "~~Lon~~don",
    "link": "[Lon](https://example.org)don",
    "backslash": "L\\ondon",
    "LaTeX": "Lon\\textbf{do}n",
    "hyphen at the end of a line": "Lon-\n  don",
    "all at once": "L&#111;<b>n</b>\\d**\u043e**\u00adn",
}


@pytest.mark.parametrize("name", DISGUISES)
def test_e05_a_rejected_phrase_is_found_in_every_disguise_that_the_docs_name(name: str) -> None:
    """E05: a rejected phrase is found despite other scripts, accents, digits, separators, markup or reversed order."""
    rubric = Rubric(accepted=("Paris",), rejected=("London",))
    assert judge_response(f"Paris. {DISGUISES[name]}. Take your pick.", rubric).reason is REJECTED
    several = Rubric(accepted=("Paris",), rejected=("Greater London area",))
    assert judge_response(f"Paris. Greater {DISGUISES[name]} area.", several).reason is REJECTED


@pytest.mark.parametrize(
    ("text", "rejected"),
    [
        ("Paris do zone in", "ozone"),
        ("Paris, a side effect", "aside"),
        ("Paris: to get her there", "together"),
        ("Paris in the mail", "mall"),
        ("Paris, well, being there", "wellbeing"),
        ("Paris, a Londoner says", "London"),
        ("Paris, founded in 10 BC", "io"),
        ("Paris \u043c\u043e\u0441\u043a\u0432\u0430", "moskva"),
        ("Paris: do<br>zone", "ozone"),
    ],
)
def test_words_that_only_touch_are_not_joined_to_a_rejected_phrase(text: str, rejected: str) -> None:
    """Whole words with a space or line break between them are not joined to a rejected phrase.

    A part of a word, or a word that is only similar, does not match a rejected phrase.
    """
    assert judge_response(text, Rubric(accepted=("Paris",), rejected=(rejected,))).reason is None


@pytest.mark.parametrize(
    "denial",
    [
        "n\u043et Paris",
        "n\u00f3t Paris",
        "Paris \u043er London",
        "\uff4eever Paris",
        "n&#111;t Paris",
        "n<b>o</b>t Paris",
        "not&nbsp;<i>Paris</i>, or Paris",
        "not <br> Paris",
        "n\\ot Paris",
        "not ** Paris",
    ],
)
def test_a_disguised_denial_is_a_denial(denial: str) -> None:
    """E04: a denial or hedge is recognized despite look-alike letters or markup."""
    assert judge_response(denial, Rubric(accepted=("Paris",))).reason is AMBIGUOUS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("No. Paris is the capital.", None),
        ("Is it Lyon? No! Paris.", None),
        ("**Wrong.** Paris is.", None),
        ("Paris. No doubt about it.", None),
        ("Paris, not London.", None),
        ("not... Paris", AMBIGUOUS),
        ("No, Paris.", AMBIGUOUS),
        ("Maybe. Paris.", AMBIGUOUS),
        ("Paris. Or London.", AMBIGUOUS),
        ("The capital is Paris. No, London.", AMBIGUOUS),
        ("Paris. Wrong!", AMBIGUOUS),
        ("Paris, no.", AMBIGUOUS),
    ],
)
def test_a_denial_counts_within_its_sentence(text: str, reason: FailureReason | None) -> None:
    """A denial counts if it precedes the phrase in the same sentence, or is a remark of its own after the phrase.

    Hedges count in any sentence.
    """
    assert judge_response(text, Rubric(accepted=("Paris",))).reason is reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("p\u00eache", None),
        ("La P\u00caCHE.", None),
        ("pe\u0302che", None),
        ("p\u00e9ch\u00e9", REJECTED),
        ("peche, p\u00eache", REJECTED),
        ("p\u00eache, p\u00e9ch\u00e9", REJECTED),
        ("p\u00eache p&eacute;<b>ch</b>\u00e9", REJECTED),
        ("p\u00ebch\u00eb, p\u00eache", REJECTED),
    ],
)
def test_an_accepted_phrase_is_not_mistaken_for_one_with_other_accents(text: str, reason: FailureReason | None) -> None:
    """A rejected phrase is found with any accents, except where the text has an accepted phrase exactly as written."""
    assert judge_response(text, Rubric(accepted=("p\u00eache",), rejected=("p\u00e9ch\u00e9",))).reason is reason


def test_a_look_alike_is_never_accepted() -> None:
    """E02: a disguised spelling would match a rejected phrase, but does not match an accepted phrase.

    Exceptions are spellings that equal the phrase after normalisation.
    """
    for disguise in DISGUISES.values():
        if normalize_text(disguise) != "london":
            assert judge_response(disguise, Rubric(accepted=("London",))).reason is not None


def test_a_rejected_number_keeps_its_sign() -> None:
    """E02: where `5` is rejected and `-5` accepted, `-5` is not rejected."""
    rubric = Rubric(accepted=("-5",), rejected=("5",))
    assert judge_response("-5", rubric).reason is None
    assert judge_response("-5 (or 5)", rubric).reason is REJECTED


@pytest.mark.parametrize(
    "text",
    [
        "not Rayleigh scattering",
        "It isn't the Rayleigh scattering",
        "never Rayleigh scattering",
        "Rayleigh scattering or Mie scattering",
        "Mie scattering or Rayleigh scattering",
        "perhaps Rayleigh scattering",
        "Rayleigh scattering; not Rayleigh scattering",
    ],
)
def test_a_phrase_denied_or_hedged_right_beside_it_fails(text: str) -> None:
    """E03, E04: an accepted phrase that is denied or hedged, or both asserted and denied, is ambiguous."""
    assert judge_response(text, LIGHT).reason is AMBIGUOUS


def test_a_phrase_that_holds_a_negation_itself_is_no_denial() -> None:
    """A negation within an accepted phrase does not count as a denial of the phrase."""
    assert judge_response("It is not blue at all.", Rubric(accepted=("not blue",))).reason is None
    assert judge_response("It is blue, no doubt.", Rubric(accepted=("not blue",))).reason is WRONG


@pytest.mark.parametrize(
    ("text", "minimum", "reason"),
    [
        ("the red fox quickly", 1.0, WRONG),
        ("fox the quick red", 1.0, None),
        ("the quick fox", 0.8, None),
        ("the quick fox", 0.9, WRONG),
        ("the red dog cat bird fish cow quick fox hen ant bee", 0.8, WRONG),
        ("not fox the quick red", 0.8, WRONG),
        ("something else", 0.0, WRONG),
        ("fox", 0.0, None),
    ],
)
def test_token_f1_weighs_precision_and_recall(text: str, minimum: float, reason: FailureReason | None) -> None:
    """E03, E04: extra words reduce the score, and a response with a denial fails.

    A response without any word of the accepted answer fails, even if the minimum score is 0.
    """
    assert judge_response(text, Rubric(accepted=("the quick red fox",), min_token_f1=minimum)).reason is reason


@pytest.mark.parametrize(
    ("wanted", "given_words", "expected"),
    [
        ("a b", "a b", 1.0),
        ("a b", "b a", 1.0),
        ("a b", "a", 2 / 3),
        ("a", "a a", 2 / 3),
        ("a", "b", 0.0),
        ("a", "", 0.0),
    ],
)
def test_token_f1_counts_each_word_as_often_as_it_stands(wanted: str, given_words: str, expected: float) -> None:
    """Token F1 is the harmonic mean of precision and recall over words, and repeated words count each time."""
    assert token_f1(tuple(wanted.split()), tuple(given_words.split())) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", FailureReason.CANDIDATE_EMPTY),
        ("\u2060 \n", FailureReason.CANDIDATE_EMPTY),
        (None, FailureReason.CANDIDATE_NOT_TEXT),
        ("x" * (MAX_TEXT_BYTES + 1), FailureReason.CANDIDATE_TOO_LARGE),
        ("word " * MAX_WORDS + "yes", FailureReason.CANDIDATE_TOO_LARGE),
    ],
)
def test_what_is_empty_or_lists_everything_fails(text: str | None, reason: FailureReason) -> None:
    """E01, E03: a response that is empty, not text or too long fails, even if the minimum score is 0."""
    assert _reason(text, {"type": "contains_any", "accepted_answers": ["yes"], "min_token_f1": 0}) is reason


def test_a_rubric_is_read_with_its_defaults() -> None:
    """Without `min_token_f1`, an accepted phrase is required. Without `rejected_answers`, nothing is rejected."""
    assert rubric_of({"type": "contains_any", "accepted_answers": ["a"]}) == Rubric(accepted=("a",))
    assert _reason("it is a", {"type": "contains_any", "accepted_answers": ["a"], "rejected_answers": ["b"]}) is None


@pytest.mark.parametrize(
    "rubric", ["is it good?", {"type": "judge"}, {"accepted_answers": ["a"]}, {"type": "contains_any"}, None, ["a"]]
)
def test_another_rubric_is_a_fault_of_the_pack_and_not_of_the_candidate(rubric: Any) -> None:
    """An unsupported rubric is a configuration error and not a verdict."""
    with pytest.raises(ConfigError) as caught:
        _reason("anything", rubric)
    assert caught.value.code == "rubric-unsupported"


def test_neither_message_nor_metadata_holds_a_phrase_of_the_rubric() -> None:
    """The result for a rejected response contains the reason but no phrase of the rubric."""
    rubric: JsonValue = {"type": "contains_any", "accepted_answers": ["canary-one"], "rejected_answers": ["canary-two"]}
    result = verdict(FreeResponseVerifier(), "canary-two", public={"prompt": "P"}, hidden={"rubric": rubric})
    assert result.reason is REJECTED
    assert "canary" not in f"{result}"


HOSTILE = [
    "not ",
    "(",
    "\ufdfa" * 8,
    "a\u0301",
    "a-",
    "<a",
    "[a](",
    "&#1",
    "\\text{",
    "- \n",
    "$a",
    "0I-",
    "&nbsp;",
    "\u202e",
]


@pytest.mark.parametrize("part", HOSTILE)
def test_judging_takes_time_in_proportion(part: str) -> None:
    """E09: long texts of repeated, nested or expanding characters are judged within five seconds of processor time."""
    text = part * (200_000 // len(part.encode())) if part != "not " else part * 1_000
    rubric = Rubric(accepted=("not " * 500 + "x",), rejected=("not " * 500 + "y", "a" * 500 + "b"))
    with processor_seconds(5):
        judge_response(text, rubric)


@given(st.binary(max_size=300))
def test_no_bytes_without_the_answer_pass(data: bytes) -> None:
    """A15: arbitrary bytes without the accepted phrase, in any decoding, raise no error and do not pass."""
    rubric = Rubric(accepted=("zq",), rejected=("x",), min_token_f1=0.1)
    for text in (data.decode("utf-8", "replace"), data.decode("utf-8", "surrogateescape"), data.decode("latin-1")):
        if "zq" not in normalize_text(text):
            assert judge_response(text, rubric).reason is not None
