"""Draw plausible alternatives to the values that tests expect.

All values for one place come from one distribution, which could also have produced the expected value. Code that sees
all of these values cannot tell which value the task expects.
"""

from __future__ import annotations

import math
import re
import secrets
from typing import TYPE_CHECKING, Final

from securebench.verifiers.repo_patch.evidence.words import WORDS

if TYPE_CHECKING:
    from securebench.verifiers.repo_patch.evidence.source import ModuleSource

MOST: Final = 16
"""The maximum number of alternative values that are drawn for one place."""

_RANDOM = secrets.SystemRandom()
_SPAN: Final = math.log(40)
"""The width of the logarithmic window from which the alternatives to an expected number are drawn.

The end of the window is about 40 times its start.
"""

_LARGEST: Final = 10**12
_WORD = re.compile(r"[A-Za-z][a-z]{2,}|[A-Z]{3,}")
_TRIES: Final = 120


class Values:
    """Chooses, at random, alternatives to the expected values in a module's tests."""

    def __init__(self, source: ModuleSource) -> None:
        self.words = source.words if len(source.words) > 1 else list(WORDS)
        self._numbers = source.numbers

    def others(self, value: object, text: str, *, apart: bool = False) -> list[str]:
        """Return other constants of the type of ``value``. The list may be empty.

        ``None`` is the only value of its type, so its alternative is ``True``. This is enough: no honest value equals
        both ``None`` and ``True``, and a value that equals everything equals both.

        ``text`` is the source of ``value``. If ``apart``, numbers differ by more than approximate assertions allow.
        """
        if value is None or isinstance(value, bool):
            return [str(not value)]
        if isinstance(value, int):
            return [str(other) for other in self._wholes(value, apart=apart)]
        if isinstance(value, float):
            whole, _, rest = repr(value).partition(".")
            wholes = self._wholes(int(whole), apart=apart) if whole.isdigit() and rest.isdigit() else []
            return [f"{other}.{rest}" for other in wholes]
        if isinstance(value, str):
            return [_literal(other, text, value) for other in self._texts(value)]
        if isinstance(value, bytes):
            return [repr(other.encode("latin-1", "replace")) for other in self._texts(value.decode("latin-1"))]
        return []

    def word(self) -> str:
        """Return a random word of the module, or a common word if the module has fewer than two words."""
        return _RANDOM.choice(self.words)

    def _wholes(self, value: int, *, apart: bool) -> list[int]:
        """Return other non-negative integers with the same number of trailing zeros.

        They are drawn from a window on a logarithmic scale, which is placed at random around ``value``. So ``value``
        cannot be recognized by its place among them.
        """
        digits = str(value)
        zeros = len(digits) - len(digits.rstrip("0")) if value else 0
        base = value // 10**zeros
        if base > _LARGEST:
            return [int(other) * 10**zeros for other in _other_digits(str(base))]
        middle = math.log(base + 2 + _RANDOM.uniform(-0.5, 0.5))
        best: list[int] = []
        for _ in range(3):  # a window near zero may contain few numbers
            low = middle - _SPAN * _RANDOM.random()
            found = self._in_window(base, low, zeros, apart=apart)
            best = max(best, found, key=len)
            if len(best) > MOST // 2:
                break
        return [other * 10**zeros for other in best]

    def _in_window(self, base: int, low: float, zeros: int, *, apart: bool) -> list[int]:
        found: list[int] = []
        for _ in range(_TRIES):
            if len(found) == MOST:
                break
            drawn = round(math.exp(_RANDOM.uniform(max(low, math.log(1.5)), low + _SPAN)) - 2)
            if self._numbers and not secrets.randbelow(3):
                number = _RANDOM.choice(self._numbers)
                drawn = number if low <= math.log(number + 2) <= low + _SPAN else drawn
            taken = [base, *found]
            if drawn < 0 or drawn in taken or (drawn % 10 == 0 and (drawn > 0 or zeros > 0)):
                continue
            if not apart or all(_are_apart(drawn * 10**zeros, other * 10**zeros) for other in taken):
                found.append(drawn)
        return found

    def _texts(self, text: str) -> list[str]:
        """Return variants of ``text`` in which one word is replaced.

        If ``text`` has no words, one letter or digit is replaced. If it has none of these, a word is added.
        """
        if words := list(_WORD.finditer(text)):
            old = _RANDOM.choice(words)
            pool = {*self.words, *_RANDOM.sample(WORDS, MOST)} - {old[0].lower()}
            chosen = _RANDOM.sample(sorted(pool), min(MOST, len(pool)))
            return [text[: old.start()] + _cased(word, old[0]) + text[old.end() :] for word in chosen]
        places = [place for place, character in enumerate(text) if character.isascii() and character.isalnum()]
        if not places:
            return [text + word for word in _RANDOM.sample(self.words, min(MOST, len(self.words)))]
        place = _RANDOM.choice(places)
        letters = [letter for letter in _alphabet(text[place]) if letter != text[place]]
        return [text[:place] + other + text[place + 1 :] for other in _RANDOM.sample(letters, min(MOST, len(letters)))]


def _are_apart(one: int, other: int) -> bool:
    return abs(one - other) >= max(2, max(one, other) / 4)


def _other_digits(digits: str) -> list[str]:
    """Return variants of a very large number, each with a different digit at the same position.

    The position is random, but it is neither the first nor the last.
    """
    place = 1 + secrets.randbelow(len(digits) - 2)
    return [digits[:place] + digit + digits[place + 1 :] for digit in "0123456789" if digit != digits[place]]


def _cased(word: str, like: str) -> str:
    """Return ``word`` in the letter case of ``like``: upper case, capitalized or unchanged."""
    return word.upper() if like.isupper() else word.title() if like[0].isupper() else word


def _literal(changed: str, text: str, value: str) -> str:
    """Return ``changed`` as a string literal. If ``text`` is just ``value`` between quotes, use the same quotes."""
    return text[0] + changed + text[-1] if text[0] in "'\"" and text[1:-1] == value else repr(changed)


def _alphabet(character: str) -> str:
    if character.isdigit():
        return "0123456789"
    return "abcdefghijklmnopqrstuvwxyz" if character.islower() else "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
