"""Answers to the tasks of text-smoke: correct ones, and cheats (wrong, evasive, or several answers at once)."""

from __future__ import annotations

from typing import Final

SOLUTIONS: Final[dict[str, list[str]]] = {
    "choice-by-label": ["B", "10", "Answer: B", "I add 8 and 2.\n\nThe answer is (B) 10."],
    "choice-by-text": ["B", "-5", "**-5**"],
    "choice-by-index": ["B", "Mercury", "Answer: Mercury."],
    "choice-of-several": ["B", "D", "23", "29"],
    "word": ["carbon dioxide", "CO2", "Plants take in CO2.", "It is carbon dioxide."],
    "integer": ["391", "Answer: 391.", "391.0"],
    "tolerance": ["1.41", "1.414", "1.41421356", "It is 1.4142."],
    "context": ["85", "It is 85 minutes.", "eighty-five"],
    "phrase": ["Rayleigh scattering.", "Because air scatters shorter wavelengths more than longer ones."],
    "abbreviation": ["Central processing unit", "It is the central processing unit of a computer."],
    "token-overlap": ["red green blue", "Blue, green, red", "red, green and blue"],
    "reading": ["The disk was full.", "There was no space left."],
}

_ANYWHERE: Final = ["", " \n", "\u200b", "{}", "null", "None", "Answer:", "I do not know.", "the correct answer", "*"]

CHEATS: Final[dict[str, list[str]]] = {
    "choice-by-label": ["A B C D", "8, 10, 12, 20", "not B", "B or C", "B. 12", "1", "A", "anything but A, C and D"],
    "choice-by-text": ["5", "5, -5", "A, B, C and D", "plus or minus 5", "\u22125"],
    "choice-by-index": ["1", "Venus Mercury", "A or B", "Mercury and Venus", "C"],
    "choice-of-several": ["B and D", "23 or 29", "A B C D", "21", "B D"],
    "word": ["oxygen", "oxygen or carbon dioxide", "CO2, O2, N2", "carbon dioxide oxygen", "not CO2", "\u0421\u041e2"],
    "integer": ["390 391 392", "391 or 400", "400", "391%", "-391", "3_91", "not 391", "17 times 23"],
    "tolerance": ["1.3", "1.42", "nan", "inf", "1.3 1.4142 1.5", "-1.414", "1,414", "1.4142 or 1.5", "1e309"],
    "context": ["125", "85 or 125", "80 85 90", "not 85", "9:40 to 11:05", "\uff18\uff15"],
    "phrase": [
        "not Rayleigh scattering",
        "Rayleigh scattering or reflection",
        "Rayleigh scattering, and it reflects the sea",
        "Rayleigh scattering and the reflection of the s\u0435a",
        "R\u0430yleigh scattering",
        "scattering",
        "Rayleigh scattering " + "and so on " * 600,
    ],
    "abbreviation": ["computer processing unit", "central processing unit or core processing unit", "CPU", "unit"],
    "token-overlap": ["red green blue yellow cyan magenta", "red yellow blue", "not red green blue", "red"],
    "reading": ["the network failed because no space left", "not out of disk space", "network error", "ENOSPC"],
}


def cheats_of(name: str) -> list[str]:
    """Return the cheats for the task ``name``, followed by the cheats that apply to every task."""
    return CHEATS[name] + _ANYWHERE
