"""Generate tests that always fail, in the style of the tests beside them."""

from __future__ import annotations

import secrets
from typing import Final

_RANDOM = secrets.SystemRandom()

_FUNCTION: Final = {
    "assert": "{word} = [{low}, {high}]\nassert {word}[0] + {word}[1] == {wrong}",
    "exception": "{word} = {low} - {high}\nif {word} < 0:\n    raise ValueError({low})",
    "text": "{word} = '{word}'.upper()\nassert {word} == '{word}{low}'",
    "membership": "{word} = list(range({low}))\nassert {high} in {word}",
}
_CASE: Final = {
    "assertEqual": "self.assertEqual({low} + {high}, {wrong})",
    "assertTrue": "self.assertTrue({low} > {high})",
    "assertFalse": "self.assertFalse({low} < {high})",
    "assertIn": "self.assertIn({high}, list(range({low})))",
    "assertNotIn": "self.assertNotIn({low}, [{low}, {high}])",
    "assertIs": "self.assertIs(None, {low})",
    "assertIsNone": "self.assertIsNone({low})",
    "assertIsNotNone": "self.assertIsNotNone(None)",
    "assertNotEqual": "self.assertNotEqual({low}, {low})",
    "assertGreater": "self.assertGreater({low}, {high})",
    "assertLess": "self.assertLess({high}, {low})",
    "assertIsInstance": "self.assertIsInstance({low}, str)",
    "assertAlmostEqual": "self.assertAlmostEqual({low}.5, {high}.25)",
    "assertRegex": "self.assertRegex('{word}', '{low}')",
    "assertCountEqual": "self.assertCountEqual([{low}], [{high}])",
    "assertListEqual": "self.assertListEqual([{low}], [{high}])",
    "assertDictEqual": "self.assertDictEqual({{'{word}': {low}}}, {{'{word}': {high}}})",
    "assertRaises": "with self.assertRaises(KeyError):\n    {word} = {low}",
    "assertRaisesRegex": "with self.assertRaisesRegex(KeyError, '{word}'):\n    raise KeyError({low})",
}
_WORDS: Final = ["value", "number", "result", "total", "entry", "found"]


def plain_test(name: str, used: set[str], *, method: bool, case: bool) -> str:
    """Return the source of a failing test.

    If ``case``, the test belongs to a ``unittest`` case. It then uses an assert method from ``used``, if possible.
    """
    forms = [form for key, form in _CASE.items() if key in used] if case else []
    low, high = secrets.randbelow(90) + 5, secrets.randbelow(90) + 100
    body = _RANDOM.choice(forms or list(_FUNCTION.values())).format(
        word=_RANDOM.choice(_WORDS), low=low, high=high, wrong=low + high + 1 + secrets.randbelow(9)
    )
    lines = [f"def {name}({'self' if method else ''}):", *("    " + line for line in body.splitlines())]
    return "\n".join(lines)
